"""Where the boxes of a graph go: in layers from top to bottom, with few crossings. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import NamedTuple

from django_ojs.domain.workflow import in_order

_SWEEPS = 4


class Position(NamedTuple):
    """The middle of a box: ``column`` counts boxes from the left, in halves; ``layer`` from the top."""

    column: float
    layer: int


class Layout(NamedTuple):
    """A place for each node, the corners of each line, and the size in boxes."""

    places: list[Position]
    lines: list[list[Position]]
    columns: int
    layers: int


def layout(depends_on: Sequence[Collection[int]]) -> Layout:
    """Lay out nodes that each come below all that they depend on. Raises ``ValueError`` for a circle.

    A line that passes a layer has a place of its own there, so that it crosses no box.
    """
    order = in_order(depends_on)
    if len(order) < len(depends_on):
        raise ValueError("the nodes depend on each other in a circle")
    layer_of = [0] * len(depends_on)
    for node in order:
        layer_of[node] = max((layer_of[other] + 1 for other in depends_on[node]), default=0)
    above: list[list[int]] = [[] for _ in depends_on]
    edges = [(other, node) for node in order for other in sorted(set(depends_on[node]))]
    paths = [_path(*edge, layer_of, above) for edge in edges]
    layers: list[list[int]] = [[] for _ in range(max(layer_of, default=-1) + 1)]
    for node, layer in enumerate(layer_of):
        layers[layer].append(node)
    _uncross(layers, above)
    columns = max(map(len, layers), default=0)
    places = [Position(0.0, 0)] * len(layer_of)
    for layer, nodes in enumerate(layers):
        left = (columns - len(nodes)) / 2
        for column, node in enumerate(nodes):
            places[node] = Position(left + column, layer)
    lines = [[places[node] for node in path] for path in paths]
    return Layout(places[: len(depends_on)], lines, columns, len(layers))


def _path(begin: int, end: int, layer_of: list[int], above: list[list[int]]) -> list[int]:
    """A line between two nodes, with a new node in each layer that it passes."""
    path = [begin]
    for layer in range(layer_of[begin] + 1, layer_of[end]):
        layer_of.append(layer)
        above.append([path[-1]])
        path.append(len(layer_of) - 1)
    above[end].append(path[-1])
    return [*path, end]


def _uncross(layers: list[list[int]], above: Sequence[Sequence[int]]) -> None:
    """Order each layer by the middle of its neighbours, down and up by turns."""
    below: list[list[int]] = [[] for _ in above]
    for node, others in enumerate(above):
        for other in others:
            below[other].append(node)
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        neighbours = above if down else below
        walk = layers if down else layers[::-1]
        for fixed, moved in pairwise(walk):
            at = {node: column for column, node in enumerate(fixed)}
            own = {node: float(column) for column, node in enumerate(moved)}
            middle = {
                node: sum(at[other] for other in neighbours[node]) / len(neighbours[node])
                if neighbours[node]
                else own[node]
                for node in moved
            }
            moved.sort(key=lambda node: (middle[node], own[node]))
