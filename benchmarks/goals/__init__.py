"""The goals P1 to P20: what each measures, beside what, and when it is met."""

from __future__ import annotations

from benchmarks.goals import inside, kinds, speed, work
from benchmarks.goals.checks import Goal
from benchmarks.goals.scale import Scale


def all_goals(scale: Scale) -> list[Goal]:
    """Every goal, in order."""
    found = [*speed.goals(scale), *work.goals(scale), *inside.goals(scale), *kinds.goals(scale)]
    return sorted(found, key=lambda goal: int(goal.id[1:]))
