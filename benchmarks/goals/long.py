"""What takes long, and is measured in the full form or when it is asked for by name: P15 and P17."""

from __future__ import annotations

from benchmarks.goals.checks import Check, Figure, Goal, Limit, Ratio
from benchmarks.goals.scale import Scale
from benchmarks.measuring import Measure
from benchmarks.systems import SYSTEMS

_RATE, _BATCH = 2_000, 20
_KEPT = (("RETENTION.completed", 60),)
_OURS = "ojs.lasting"
_PEERS = ("pgqueuer.lasting", "procrastinate.lasting")
"""Each on a server of its own, as PostgreSQL is installed: without autovacuum nothing lasts."""
_MARGIN = 300.0
"""What starting, waiting for the last job and reading the record may take, in seconds."""


def goals(scale: Scale) -> list[Goal]:
    """The two."""
    return [
        Goal(
            "P15",
            f"a day in {scale.minutes:g} minutes: {_RATE:,} jobs a second, {_BATCH} a call, a minute's"
            " retention",
            [check for system in (_OURS, *_PEERS) for check in _day(system, scale)],
            long=True,
        ),
        Goal(
            "P17",
            f"{scale.history:,} finished jobs are deleted while 1,000 a second run",
            _prune(scale),
            long=True,
        ),
    ]


def day(system: str, scale: Scale) -> Measure:
    """The load of P15; of the others for a sixth of the time."""
    ours = system == _OURS
    seconds = 60 * scale.minutes / (1 if ours else 6)
    options = (("seconds", seconds), ("rate", _RATE), ("batch", _BATCH))
    own = _KEPT if ours else ()
    return Measure(system, "day", options=options, ojs=own, once=True, seconds=seconds + _MARGIN)


def _day(system: str, scale: Scale) -> list[Check]:
    measure, name = day(system, scale), SYSTEMS[system].what
    least, most, grown = (0.95, 1.5, 1.1) if system == _OURS else (None, None, None)

    def figure(name: str, unit: str) -> Figure:
        return Figure(measure, name, unit)

    return [
        Ratio(
            f"last third, {name}", figure("last", "jobs/s"), "the first",
            figure("first", "jobs/s"), least=least,
        ),
        Ratio(
            f"pickup, p99, last third, {name}", figure("p99_last", "ms"), "the first",
            figure("p99_first", "ms"), most=most,
        ),
        Limit(f"tables, last third beside the second, {name}", figure("grown", ""), most=grown),
        Limit(f"tables and indexes, {name}", figure("mib", "MiB")),
        Limit(f"processor, {name}", figure("cpu_per_million", "s per million jobs")),
    ]  # fmt: skip


def _prune(scale: Scale) -> list[Check]:
    options = (
        ("history", scale.history), ("rate", 1_000), ("batch", 10),
        ("seconds", 4 * scale.minutes), ("limit", 36 * scale.minutes),
    )  # fmt: skip
    measure = Measure(
        _OURS, "prune_load", options=options, once=True,
        seconds=120 * scale.minutes + _MARGIN,
    )  # fmt: skip
    return [
        Ratio(
            "pickup, p99, while jobs are deleted", Figure(measure, "p99", "ms"), "undisturbed",
            Figure(measure, "undisturbed_p99", "ms"), most=2.0,
        ),
        Limit("deleted", Figure(measure, "per_minute", "jobs a minute")),
    ]  # fmt: skip
