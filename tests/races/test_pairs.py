"""Any two operations at once come to what one of them after the other comes to.

For each scene and each ordered pair of operations, the first is stopped at each of its points while
the second runs until it ends or waits for the first. What both said and all that they left behind
must be what one of the two orders gives; what passes over rows that somebody else holds (claims,
reapers) may also find nothing. The invariants hold after each.

One thing more may happen: a beat meets the row that a reaper holds, which has judged the silence and
not committed yet. The beat waits for nobody: it is put aside and says "kept", and the reaper ends the
attempt. All that is left behind is as if the beat had come later; the holder learns from its next
beat that the lease is lost (ADR 0015).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import combinations_with_replacement

import pytest

from django_ojs import clock
from django_ojs.models import LeaseBeat
from django_ojs.store import invariants
from tests.faults import tally
from tests.races.scenes import (
    MATTERS,
    OPERATIONS,
    PASSES_OVER,
    SCENES,
    Scene,
    Start,
    comes_to,
    expired,
    forget,
)
from tests.races.stepping import Player, Point, interleave
from tests.support import family

pytestmark = pytest.mark.every_database
START = datetime(2026, 1, 1, tzinfo=UTC)
_BRACKETS = {"BEGIN", "SAVEPOINT", "RELEASE", "ROLLBACK", "COMMIT"}


class Race:
    """Two operations on one scene."""

    def __init__(
        self,
        start: Start,
        names: tuple[str, str],
        players: tuple[Player, Player],
        time: clock.FrozenClock,
        sound: set[str],
    ) -> None:
        self._start, self._names, self._players, self._time = start, names, players, time
        self._sound = sound
        self.points: dict[str, list[Point]] = {}
        self.put_aside = False

    def _come_to(self, play: Callable[[Scene], dict[str, str]]) -> str:
        """What they said, and what they left behind, which breaks no invariant."""
        self._time.time = START
        scene = self._start(self._time)
        try:
            said = play(scene)
            left = comes_to(scene)
            if left not in self._sound:
                late = timedelta(minutes=1)
                findings = invariants.check(now=self._time.time, slack=late, using="default")
                assert not findings, (self._names, findings, left)
                self._sound.add(left)
                tally.checked(*invariants.RULES)
        finally:
            forget(scene)
        return f"{sorted(said.items())}\n{left}"

    def in_turn(self, *order: int) -> str:
        """What they come to one after the other; one that is left out finds nothing."""

        def play(scene: Scene) -> dict[str, str]:
            said = {}
            for index, name in enumerate(self._names):
                said[f"{index} {name}"] = PASSES_OVER.get(name, "")
            for index in order:
                name, player = self._names[index], self._players[index]
                said[f"{index} {name}"] = player.run(partial(OPERATIONS[name], scene))
                if index == order[0]:
                    self.points[name] = player.points
                    # Without a statement there is nothing to stop at, and any order ends alike.
                    labels = {point.label for point in player.points}
                    assert labels - _BRACKETS, f"{self._start.__name__}: {name} asked for nothing"
            return said

        return self._come_to(play)

    def stopped(self, first: int, point: Point) -> str:
        """What they come to when the other runs while the ``first`` stands at a point."""

        def play(scene: Scene) -> dict[str, str]:
            order = (first, 1 - first)
            works = [partial(OPERATIONS[self._names[index]], scene) for index in order]
            players = [self._players[index] for index in order]
            outcomes = interleave(players[0], works[0], point.number, players[1], works[1])
            self.put_aside = LeaseBeat.objects.filter(job_id=scene.job.id).exists()
            return {
                f"{index} {self._names[index]}": outcome
                for index, outcome in zip(order, outcomes, strict=True)
            }

        return self._come_to(play)

    def allowed(self) -> dict[str, str]:
        """What they may come to, by what would lead there."""
        one, other = self._names
        outcomes = {self.in_turn(0, 1): f"{one}, {other}", self.in_turn(1, 0): f"{other}, {one}"}
        for index, name in enumerate(self._names):
            if self._names[1 - index] in PASSES_OVER:
                outcomes[self.in_turn(index)] = f"only {name}"
        return outcomes

    def kept_too_late(self, first: int, allowed: dict[str, str]) -> dict[str, str]:
        """What a beat that was put aside beside a reaper with the row may say: as if it came later,
        but that it kept the lease.
        """
        if not self.put_aside or (self._names[first], self._names[1 - first]) != ("reap", "beat"):
            return {}
        return {
            text.replace("beat', '0 kept')", "beat', '1 kept')", 1): f"{order}, which was put aside"
            for text, order in allowed.items()
            if order == "reap, beat"
        }


def worth_stopping(points: list[Point]) -> list[Point]:
    """Where a stop can make a difference: on SQLite once per write transaction, which is alone."""
    if family() != "sqlite":
        return points
    return [
        point
        for index, point in enumerate(points)
        if not (point.open and index and points[index - 1].open)
    ]


def row_of(start: Start, names: tuple[str, str]) -> str:
    """The row of the catalogue that a pair belongs to."""
    if start is expired and "claim" in names:
        return "F71"
    if names == ("claim", "claim"):
        return "F53"
    if names == ("reap", "reap"):
        return "F55"
    if names[0] == names[1] and names[0].startswith("ack"):
        return "F60"
    for name, row in (
        ("pause", "F66"),
        ("enqueue", "F94"),
        ("enqueue other", "F94"),
        ("retry", "F65"),
        ("promote", "F59"),
        ("cancel", "F57"),
        ("stale beat", "F64"),
        ("stale ack", "F62"),
        ("stale fail", "F62"),
        ("reap", "F56"),
    ):
        if name in names:
            return row
    return "F53" if "claim" in names else "F60"


@pytest.mark.slow
@pytest.mark.parametrize("start", SCENES, ids=lambda start: start.__name__)
def test_two_at_once_are_as_one_after_the_other(
    players: tuple[Player, Player], frozen: clock.FrozenClock, start: Start
) -> None:
    """Pairs that are not like one of another scene, at one point: which, goes round.

    On each database every second pair: MariaDB has those that the two others have not.
    """
    race_all(start, players, frozen, most=1)


@pytest.mark.long
@pytest.mark.parametrize("start", SCENES, ids=lambda start: start.__name__)
def test_stopped_everywhere(
    players: tuple[Player, Player], frozen: clock.FrozenClock, start: Start
) -> None:
    """Every pair, at every point."""
    race_all(start, players, frozen, most=100)


def test_every_operation_is_played() -> None:
    assert {name for names in SCENES.values() for name in names} == set(OPERATIONS)


def race_all(
    start: Start, players: tuple[Player, Player], time: clock.FrozenClock, *, most: int
) -> None:
    """Race each pair of a scene, at up to ``most`` points of either."""
    turn = 0
    sound: set[str] = set()
    own = 1 if family() == "mysql" else 0
    for number, names in enumerate(combinations_with_replacement(SCENES[start], 2)):
        if most == 1 and (number % 2 != own or not MATTERS.get(start, set(names)) & set(names)):
            continue
        race = Race(start, names, players, time, sound)
        allowed = race.allowed()
        for first in {names: 0, names[::-1]: 1}.values():
            points = worth_stopping(race.points[names[first]])
            turn += 1
            for shift in range(min(most, len(points))):
                point = points[(turn + shift) % len(points)]
                came_to = race.stopped(first, point)
                may = {**race.kept_too_late(first, allowed), **allowed}
                assert came_to in may, (
                    f"{start.__name__}: {names[first]} stopped before {point},"
                    f" {names[1 - first]} meanwhile:\n{came_to}\n\n"
                    + "\n\n".join(f"{order}: {text}" for text, order in may.items())
                )
                tally.injected(row_of(start, names))
