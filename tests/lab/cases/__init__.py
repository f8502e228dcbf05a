"""The cases: what is done, on which databases, how often."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.lab import NAMES
from tests.lab.stage import Stage

SERVERS = ("pg", "mariadb")
ROUNDS = 5


@dataclass(frozen=True)
class Case:
    """``play`` does the harm of one round.

    ``steppable`` asks for a server whose clock can be set; ``hooks`` arm what happens within worker
    ``A`` by files of these names; ``alone`` cases are not measured while others are.
    """

    name: str
    play: Callable[[Stage], None]
    rounds: int = ROUNDS
    databases: tuple[str, ...] = NAMES
    steppable: bool = False
    reaper: bool = True
    hooks: Mapping[str, str] = field(default_factory=dict)
    alone: bool = False


def every() -> list[Case]:
    """All cases, in the order of the table."""
    from tests.lab.cases import clocks, held, processes, volume, whole

    return [*whole.CASES, *held.CASES, *processes.CASES, *clocks.CASES, *volume.CASES]
