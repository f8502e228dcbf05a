"""What a worker and the database have to do all the time: P11 to P13."""

from __future__ import annotations

from benchmarks.goals.checks import Figure, Goal, Limit, Same
from benchmarks.goals.scale import Scale
from benchmarks.measuring import Measure


def goals(scale: Scale) -> list[Goal]:
    """The three."""

    def reap(due: int, name: str, unit: str) -> Figure:
        options = (("active", 10_000), ("due", due), ("passes", scale.passes))
        return Figure(Measure("ojs.history", "reap_pass", options=options, once=True), name, unit)

    def beats(name: str, unit: str) -> Figure:
        options = (("active", 1_000), ("beats", scale.beats))
        return Figure(Measure("ojs.history", "beats", options=options, once=True), name, unit)

    def idle(system: str, name: str, unit: str) -> Figure:
        options = (("seconds", scale.idle_seconds),)
        return Figure(Measure(system, "footprint", options=options, once=True), name, unit)

    def tick(system: str, task: str) -> Figure:
        return Figure(Measure(system, "idle_tick", once=True), task, "")

    databases = {"ojs": "PostgreSQL", "ojs.sqlite": "SQLite"}
    return [
        Goal(
            "P11",
            "a pass of the reaper: 10,000 jobs run, 100 are due, 1,000,000 are finished",
            [
                Limit("pass of the reaper", reap(100, "ms", "ms"), most=150),
                Same(
                    "statements for 100 due",
                    reap(100, "statements", ""),
                    "for 10 due",
                    reap(10, "statements", ""),
                ),
            ],
        ),
        Goal(
            "P12",
            "a beat of a worker for 1,000 running jobs",
            [
                Limit("beat of 1,000 jobs", beats("ms", "ms"), most=20),
                Limit("statements per beat", beats("statements", ""), most=1),
                Limit("HOT updates", beats("hot_percent", "%"), least=95),
            ],
        ),
        Goal(
            "P13",
            "a worker with nothing to do, concurrency 2",
            [
                check
                for system, database in databases.items()
                for check in (
                    Limit(f"memory, idle, {database}", idle(system, "pss_mib", "MiB"), most=110),
                    Limit(f"processor, idle, {database}", idle(system, "cpu_percent", "%"), most=0.3),
                    *(
                        Limit(f"statements of an idle {task}, {database}", tick(system, task), most=1)
                        for task in ("claim", "promote", "reap")
                    ),
                )
            ],
        ),
    ]
