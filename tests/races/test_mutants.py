"""The races find bugs that are planted where only a race shows them."""

from __future__ import annotations

import pytest

from django_ojs import clock
from tests.faults.mutants import MUTANTS
from tests.races import test_named as named
from tests.races.scenes import active
from tests.races.stepping import Player
from tests.races.test_pairs import race_all

Players = tuple[Player, Player]
pytestmark = pytest.mark.one_database


@pytest.mark.parametrize("bug", ["no-fence", "state-only-fence"])
@pytest.mark.parametrize(
    "race", [named.test_claim_reap_return, named.test_the_same_again_through_a_manual_retry]
)
def test_a_report_without_a_fence(
    players: Players, frozen: clock.FrozenClock, bug: str, race: object
) -> None:
    with MUTANTS[bug](), pytest.raises(AssertionError):
        race(players, frozen, read=False)  # type: ignore[operator]


def test_a_cancel_without_a_guard(players: Players, frozen: clock.FrozenClock) -> None:
    with MUTANTS["unguarded-cancel"](), pytest.raises(AssertionError):
        race_all(active, players, frozen, most=1)
