"""Many at a time, and what goes wrong: P14, P16, P18 and P19."""

from __future__ import annotations

from benchmarks.goals.checks import Check, Figure, Goal, Limit, Ratio
from benchmarks.goals.scale import Scale
from benchmarks.measuring import Measure
from benchmarks.systems import SYSTEMS

_SESSIONS = 16
_FAILING = ("ojs", "celery")
_ALL_FAILING = (*_FAILING, "procrastinate", "pgqueuer", "huey.sqlite", "ox")


def goals(scale: Scale) -> list[Goal]:
    """The four."""
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
            "P18",
            "200 queues, 500 types and 50 workers of concurrency 1 on one PostgreSQL server",
            _crowd(scale),
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
    limit = 240 if system == "ojs" else 90
    options = (("rounds", passes // 10_000), ("jobs", 10_000), ("limit", limit))
    measure = Measure(system, "held_snapshot", options=options, once=True)
    name = SYSTEMS[system].what
    kept, passed = Figure(measure, "kept", ""), Figure(measure, "passed", "jobs")
    return [
        Limit(f"last rounds beside the first, {name}", kept, least=0.8 if system == "ojs" else None),
        Limit(f"passed within {limit} s, {name}", passed),
    ]


def _crowd(scale: Scale) -> list[Check]:
    options = (
        ("queues", 200), ("types", 500), ("workers", 50), ("jobs", scale.crowd_jobs),
        ("seconds", scale.idle_seconds),
    )  # fmt: skip
    measure = Measure("ojs.crowd", "crowd", options=options, once=True)

    def figure(name: str, unit: str) -> Figure:
        return Figure(measure, name, unit)

    one = "one queue, one type"
    checks: list[Check] = [
        Ratio("drain", figure("rate", "jobs/s"), one, figure("one_rate", "jobs/s"), least=0.7),
        Ratio("claim, p99", figure("claim_p99", "ms"), one, figure("one_claim_p99", "ms")),
        Ratio("server, a job", figure("server_us", "us"), one, figure("one_server_us", "us")),
        Limit("server, all idle", figure("server_percent", "% of a processor")),
        Limit("statements, all idle", figure("statements", "a second")),
        Limit("workers, all idle", figure("workers_percent", "% of a processor")),
        Limit("memory of all workers", figure("pss_mib", "MiB")),
    ]
    return checks


def _failing(scale: Scale) -> tuple[str, ...]:
    return _ALL_FAILING if scale.even else _FAILING


def _failures(system: str, scale: Scale) -> list[Check]:
    ours = system == "ojs"
    # Some run it again after an hour, some never: the others wait together, and in the full form.
    killed = Measure(system, "killed_worker", options=(("limit", 75),), once=True, waits=not ours)
    hung, in_c = (
        Measure(system, "hung_handler", options=(("limit", 15), *more), once=True)
        for more in ((), (("in_c", True),))
    )
    return [
        Limit(f"{what}, {SYSTEMS[system].what}", Figure(measure, "seconds", "s"), most=most)
        for what, measure, most in (
            *(
                [("a killed worker's job runs again", killed, 65 if ours else None)]
                * (ours or scale.even)
            ),
            ("`while True` makes room", hung, 1 if ours else None),
            ("a call in C makes room", in_c, 3 if ours else None),
        )
    ]
