"""Many at a time: P14."""

from __future__ import annotations

from benchmarks.goals.checks import Figure, Goal, Ratio
from benchmarks.goals.scale import Scale
from benchmarks.measuring import Measure

_SESSIONS = 16


def goals(scale: Scale) -> list[Goal]:
    """The one."""
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
    ]  # fmt: skip
