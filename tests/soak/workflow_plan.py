"""The workflows of a soak, drawn from its seed: of every kind, nested, with members that misbehave."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.soak import plan

RATE = 1.0
"""Workflows a second, unless as many are running as should."""
OPEN = 40
KINDS = ("chain", "group", "batch", "dag")
CALLBACKS = ("on_complete", "on_success", "on_failure")
DEEPEST = 3
MIX = {"quick": 70, "single": 8, "raise": 10, "slow": 4, "exit": 3, "kill-self": 2, "loop": 3}
"""Members by kind of job, in hundredths."""
NESTED, ENDED = 0.15, 0.2
CANCELLED, RESUMED, TIMED = 0.08, 0.08, 0.1
TIMEOUT = 12
"""Seconds that a workflow with a deadline has."""


@dataclass(frozen=True)
class Member:
    """A job of a workflow. Its first argument is for how many attempts it misbehaves."""

    kind: str
    queue: str
    args: list[int]
    when: str = "completed"


@dataclass(frozen=True)
class Shape:
    """A workflow to create. ``after`` has for each member of a DAG those that it waits for."""

    kind: str
    members: list[Member | Shape]
    callbacks: dict[str, Member]
    after: list[list[int]] = field(default_factory=list)
    timeout: int | None = None
    cancel_after: float | None = None
    resume_after: float | None = None


def shapes(seed: int) -> Iterator[Shape]:
    """Workflows without end."""
    dice = random.Random(f"workflows {seed}")
    while True:
        yield _shape(dice)


def _shape(dice: random.Random, depth: int = 1) -> Shape:
    kind = dice.choice(KINDS)
    members = [
        _shape(dice, depth + 1) if depth < DEEPEST and dice.random() < NESTED else _member(dice)
        for _ in range(dice.randint(1, 4))
    ]
    chosen = [name for name in CALLBACKS if dice.random() < 0.5]
    if kind == "batch" and not chosen:
        chosen = ["on_complete"]
    callbacks = {name: Member("quick", dice.choice(plan.QUEUES), [0, 5]) for name in chosen}
    after = [[other for other in range(place) if dice.random() < 0.5] for place in range(len(members))]
    acts = dice.random(), dice.uniform(0.0, 5.0), dice.uniform(5.0, 12.0)
    outermost = depth == 1
    return Shape(
        kind,
        members,
        callbacks,
        after if kind == "dag" else [],
        TIMEOUT if outermost and dice.random() < TIMED else None,
        acts[1] if outermost and acts[0] < CANCELLED else None,
        acts[2] if outermost and acts[0] < CANCELLED / 2 + RESUMED else None,
    )


def _member(dice: random.Random) -> Member:
    kind = dice.choices(list(MIX), list(MIX.values()))[0]
    bad = dice.choice((1, 9)) if kind == "raise" else 1
    millis = dice.randint(300, 1000) if kind == "slow" else dice.randint(1, 20)
    when = "ended" if dice.random() < ENDED else "completed"
    return Member(kind, dice.choice(plan.QUEUES), [bad, millis], when)
