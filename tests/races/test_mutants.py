"""The races find bugs that are planted where only a race shows them, and operations that do nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from django_ojs import clock
from django_ojs.services import checkpoints
from tests.faults.mutants import MUTANTS
from tests.races import test_named as named
from tests.races.scenes import OPERATIONS, Operation, Scene, active
from tests.races.stepping import Player
from tests.races.test_pairs import race_all

Players = tuple[Player, Player]
Race = Callable[..., None]


@pytest.mark.parametrize("bug", ["no-fence", "state-only-fence"])
@pytest.mark.parametrize(
    "race", [named.test_claim_reap_return, named.test_the_same_again_through_a_manual_retry]
)
def test_a_report_without_a_fence(
    players: Players, frozen: clock.FrozenClock, bug: str, race: Race
) -> None:
    with MUTANTS[bug](), pytest.raises(AssertionError):
        race(players, frozen, read=False)


@pytest.mark.slow
def test_a_cancel_without_a_guard(players: Players, frozen: clock.FrozenClock) -> None:
    with MUTANTS["unguarded-cancel"](), pytest.raises(AssertionError):
        race_all(active, players, frozen, most=1)


def _signature_of_yesterday(scene: Scene) -> object:
    save: Callable[..., object] = checkpoints.save
    return save(scene.job.id, "{}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "found"),
    [
        (_signature_of_yesterday, (TypeError, "missing 2 required positional arguments")),
        (lambda scene: "saved", (AssertionError, "active: checkpoint asked for nothing")),
    ],
    ids=["raises", "returns"],
)
def test_an_operation_that_never_reaches_the_database(
    players: Players,
    frozen: clock.FrozenClock,
    monkeypatch: pytest.MonkeyPatch,
    broken: Operation,
    found: tuple[type[Exception], str],
) -> None:
    monkeypatch.setitem(OPERATIONS, "checkpoint", broken)
    error, words = found
    with pytest.raises(error, match=words):
        race_all(active, players, frozen, most=1)
