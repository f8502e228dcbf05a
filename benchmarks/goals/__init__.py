"""The goals P1 to P25: what each measures, beside what, and when it is met."""

from __future__ import annotations

from benchmarks.goals import crowds, inside, kinds, long, speed, work
from benchmarks.goals.checks import Goal
from benchmarks.goals.scale import Scale


def all_goals(scale: Scale) -> list[Goal]:
    """Every goal, in order."""
    rooms = (speed, work, inside, crowds, kinds, long)
    found = [goal for room in rooms for goal in room.goals(scale)]
    return sorted(found, key=lambda goal: int(goal.id[1:]))
