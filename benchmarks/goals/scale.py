"""How much is measured: the short form, which is the default, and the full one."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.systems import SYSTEMS


@dataclass(frozen=True, slots=True)
class Scale:
    """Sizes of the measurements; seconds where the name says so."""

    jobs: int = 10_000
    enqueues: int = 1_500
    bulk: int = 20_000
    pickups: int = 50
    mixed_seconds: float = 10.0
    idle_seconds: float = 10.0
    http_seconds: float = 4.0
    passes: int = 5
    beats: int = 60
    crowd_jobs: int = 2_000
    minutes: float = 15.0
    """How long P15 is; what P17 deletes is in proportion."""
    even: bool = False
    """Whether slow systems drain as many jobs as fast ones, and all take part in what goes wrong."""

    @classmethod
    def full(cls) -> Scale:
        """For figures that are published."""
        return cls(
            enqueues=2_000,
            pickups=100,
            mixed_seconds=20.0,
            idle_seconds=30.0,
            http_seconds=6.0,
            passes=11,
            beats=100,
            crowd_jobs=30_000,
            even=True,
        )

    @property
    def history(self) -> int:
        """The finished jobs of P17."""
        return round(5_000_000 * self.minutes / 15)

    def jobs_for(self, system: str) -> int:
        """How many jobs a system drains."""
        return self.jobs if self.even else max(50, int(self.jobs * SYSTEMS[system].share))
