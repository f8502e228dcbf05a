"""Many at a time, and what goes wrong: P14, P16 and P19."""

from __future__ import annotations

from benchmarks.goals.checks import Check, Figure, Goal, Limit, Ratio
from benchmarks.goals.scale import Scale
from benchmarks.measuring import Measure
from benchmarks.systems import SYSTEMS

_SESSIONS = 16
_FAILING = ("ojs", "celery")
_ALL_FAILING = (*_FAILING, "procrastinate", "pgqueuer", "huey.sqlite", "ox")


def goals(scale: Scale) -> list[Goal]:
    """The three."""
    off, always = (("NOTIFY", False),), (("NOTIFY", True),)

    def rate(settings: tuple[tuple[str, object], ...] = ()) -> Figure:
        options = (("sessions", _SESSIONS), ("jobs", 8 * scale.enqueues))
        return Figure(Measure("ojs", "writers", options=options, ojs=settings), "rate", "jobs/s")

    def wait(name: str, settings: tuple[tuple[str, object], ...] = ()) -> Figure:
        options = (("sessions", _SESSIONS), ("seconds", scale.mixed_seconds), ("rate", 200))
        return Figure(Measure("ojs", "writers_pickup", options=options, ojs=settings), name, "ms")

    what = f"enqueue, {_SESSIONS} sessions"
    return [
        Goal(
            "P14",
            f"{_SESSIONS} sessions enqueue one by one, a commit each, PostgreSQL",
            [
                Ratio(what, rate(), "NOTIFY off", rate(off), least=0.95),
                Ratio(what, rate(), "NOTIFY with every commit", rate(always)),
                *(
                    Ratio(
                        f"pickup at 200 a second, {name}", wait(name), "NOTIFY with every commit",
                        wait(name, always), most=most,
                    )
                    for name, most in (("p50", None), ("p99", 1.1))
                ),
            ],
        ),
        Goal(
            "P16",
            "another session holds a snapshot while jobs pass, PostgreSQL, default settings",
            [check for system in _held(scale) for check in _snapshots(system, scale)],
        ),
        Goal(
            "P19",
            "seconds until a killed worker's job runs again, and until a hung one makes room",
            [check for system in _failing(scale) for check in _failures(system, scale)],
        ),
    ]  # fmt: skip


def _held(scale: Scale) -> tuple[str, ...]:
    return ("ojs", "pgqueuer", "procrastinate") if scale.even else ("ojs",)


def _snapshots(system: str, scale: Scale) -> list[Check]:
    passes = 300_000 if scale.even else 60_000
    options = (("rounds", passes // 10_000), ("jobs", 10_000), ("limit", 240))
    measure = Measure(system, "held_snapshot", options=options, once=True)
    name = SYSTEMS[system].what
    least = 0.8 if system == "ojs" else None
    return [
        Limit(f"last rounds beside the first, {name}", Figure(measure, "kept", ""), least=least),
        Limit(f"passed within 240 s, {name}", Figure(measure, "passed", "jobs")),
    ]


def _failing(scale: Scale) -> tuple[str, ...]:
    return _ALL_FAILING if scale.even else _FAILING


def _failures(system: str, scale: Scale) -> list[Check]:
    ours = system == "ojs"
    limit = 120 if scale.even else 75
    return [
        Limit(f"{what}, {SYSTEMS[system].what}", figure, most=most if ours else None)
        for what, workload, options, most in (
            ("a killed worker's job runs again", "killed_worker", (("limit", limit),), 65),
            ("`while True` makes room", "hung_handler", (("limit", 30),), 1),
            ("a call in C makes room", "hung_handler", (("limit", 30), ("in_c", True)), 3),
        )
        for figure in [Figure(Measure(system, workload, options=options, once=True), "seconds", "s")]
    ]
