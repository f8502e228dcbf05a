"""Where the boxes of a graph go: below what they depend on, apart, and no line through a box."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from django_ojs.domain.graph import Layout, Position, layout


def crossings(found: Layout) -> int:
    """How many pairs of lines cross between two layers."""
    pieces = [(a, b) for line in found.lines for a, b in pairwise(line)]
    return sum(
        (a.column - c.column) * (b.column - d.column) < 0
        for number, (a, b) in enumerate(pieces)
        for c, d in pieces[:number]
        if a.layer == c.layer
    )


def test_a_chain_goes_down() -> None:
    found = layout([[], [0], [1]])
    assert found.places == [Position(0, 0), Position(0, 1), Position(0, 2)]
    assert (found.columns, found.layers) == (1, 3)
    assert found.lines == [[Position(0, 0), Position(0, 1)], [Position(0, 1), Position(0, 2)]]


def test_a_narrow_layer_is_centred() -> None:
    found = layout([[], [], [], [0, 1, 2]])
    assert found.places == [Position(0, 0), Position(1, 0), Position(2, 0), Position(1, 1)]


def test_crossed_lines_are_uncrossed() -> None:
    found = layout([[], [], [1], [0]])
    assert crossings(found) == 0
    assert found.places[2].column == found.places[1].column


def test_a_line_that_passes_a_layer_has_a_place_there() -> None:
    found = layout([[], [0], [1, 0]])
    long = next(line for line in found.lines if len(line) == 3)
    assert found.columns == 2
    assert long[1] not in found.places


def test_no_nodes_take_no_room() -> None:
    assert layout([]) == Layout([], [], 0, 0)


def test_a_circle_is_refused() -> None:
    with pytest.raises(ValueError, match="circle"):
        layout([[1], [0]])


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs(seed: int) -> None:
    dice = random.Random(seed)
    size = dice.randint(1, 40)
    depends_on = [
        sorted(dice.sample(range(node), min(node, dice.randint(0, 3)))) for node in range(size)
    ]
    # The order of the nodes says nothing about theirs in the graph.
    names = dice.sample(range(size), size)
    mixed: list[list[int]] = [[] for _ in range(size)]
    for node, needed in enumerate(depends_on):
        mixed[names[node]] = [names[other] for other in needed]
    found = layout(mixed)
    taken = [*found.places, *(corner for line in found.lines for corner in line[1:-1])]
    assert len(set(taken)) == len(taken), "two in one place"
    assert all(0 <= place.column < found.columns for place in taken)
    ends = sorted((line[0], line[-1]) for line in found.lines)
    wanted = [(found.places[b], found.places[a]) for a, needed in enumerate(mixed) for b in needed]
    assert ends == sorted(wanted)
    for line in found.lines:
        assert [corner.layer for corner in line] == list(range(line[0].layer, line[-1].layer + 1))
    for node, needed in enumerate(mixed):
        deepest = max((found.places[other].layer for other in needed), default=-1)
        assert found.places[node].layer == deepest + 1
