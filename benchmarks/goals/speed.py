"""Rates and latencies beside other systems: P1 to P8."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.goals.checks import Figure, Goal, Limit, Ratio
from benchmarks.goals.scale import Scale
from benchmarks.measuring import Measure

_RATE = "jobs/s"
_CURSOR = "a bare cursor with the same SQL"


def goals(scale: Scale) -> list[Goal]:
    """The eight."""

    def drain(system: str, profile: str = "default", times: int = 1) -> Figure:
        options = (("jobs", times * scale.jobs_for(system)),)
        return Figure(Measure(system, "drain", profile, options), "rate", _RATE)

    def extra(figure: Figure) -> Figure:
        """What is not part of a goal is measured in the first round only."""
        return replace(figure, measure=replace(figure.measure, once=True))

    def enqueue(system: str, workload: str = "enqueue_one", jobs: int = scale.enqueues) -> Figure:
        return Figure(Measure(system, workload, options=(("jobs", jobs),)), "rate", _RATE)

    def pickup(system: str, name: str) -> Figure:
        return Figure(Measure(system, "pickup", options=(("samples", scale.pickups),)), name, "ms")

    ours, tuned, lite = drain("ojs"), drain("ojs", "tuned"), drain("ojs.sqlite")
    one, bulk = enqueue("ojs"), enqueue("ojs", "enqueue_bulk", scale.bulk)
    bare = enqueue("ojs", "replay_enqueue")
    history, its_enqueue = drain("ojs.history"), enqueue("ojs.history")
    what = "drain, PostgreSQL, defaults"
    return [
        Goal(
            "P1",
            f"drain {scale.jobs:,} jobs that do nothing, PostgreSQL, default settings, concurrency 2",
            [
                Ratio(what, ours, "pgqueuer", drain("pgqueuer"), least=2.0),
                Ratio(what, ours, "procrastinate", drain("procrastinate"), least=10.0),
                Ratio(what, ours, "celery", drain("celery"), least=4.0),
                Ratio(what, ours, "django-ox", extra(drain("ox"))),
                Ratio(what, ours, "django-tasks-db", extra(drain("tasks_db"))),
            ],
        ),
        Goal(
            "P2",
            "the same with the best documented settings of each",
            [
                Ratio(
                    "drain, PostgreSQL, tuned", tuned, "pgqueuer tuned", drain("pgqueuer", "tuned"),
                    least=0.9, aim=1.2,
                ),
                Ratio(
                    f"drain of {4 * scale.jobs:,}, PostgreSQL, tuned", drain("ojs", "tuned", 4),
                    "pgqueuer tuned", drain("pgqueuer", "tuned", 4), least=1.0, aim=1.2,
                ),
                Ratio(
                    "drain, PostgreSQL, tuned", tuned, "django-ox tuned", extra(drain("ox", "tuned"))
                ),
            ],
        ),
        Goal(
            "P3",
            "enqueue one job, a commit each, PostgreSQL",
            [
                Ratio("enqueue one", one, "procrastinate", enqueue("procrastinate"), least=1.15),
                Ratio("enqueue one", replace(bare, name="enqueue"), _CURSOR, bare, least=0.92),
                Ratio("enqueue one", one, "pgqueuer", extra(enqueue("pgqueuer"))),
                Ratio("enqueue one", one, "celery", extra(enqueue("celery"))),
                Ratio("enqueue one", one, "django-ox", extra(enqueue("ox"))),
            ],
        ),
        Goal(
            "P4",
            "enqueue a thousand jobs per call, validated, PostgreSQL",
            [
                Ratio(
                    "enqueue 1,000 a call", bulk, "pgqueuer",
                    enqueue("pgqueuer", "enqueue_bulk", scale.bulk), least=1.0,
                ),
                *(
                    Ratio(
                        "enqueue 1,000 a call", bulk, name,
                        extra(enqueue(system, "enqueue_bulk", scale.bulk)),
                    )
                    for name, system in (("procrastinate", "procrastinate"), ("django-ox", "ox"))
                ),
            ],
        ),
        Goal(
            "P5",
            "from the enqueue's return to the handler's start, on an idle worker",
            [
                *(
                    Ratio(
                        f"pickup, PostgreSQL, {name}", pickup("ojs", name), "procrastinate",
                        pickup("procrastinate", name), most=1.0,
                    )
                    for name in ("p50", "p99")
                ),
                *(
                    Ratio(
                        "pickup, PostgreSQL, p50", pickup("ojs", "p50"), name,
                        extra(pickup(system, "p50")),
                    )
                    for name, system in (("pgqueuer", "pgqueuer"), ("django-ox", "ox"))
                ),
                *(
                    Limit(f"pickup, {database}, {name}", pickup(system, name), most=most)
                    for database, system in (("SQLite", "ojs.sqlite"), ("MariaDB", "ojs.mariadb"))
                    for name, most in (("p50", 6), ("p99", 20))
                ),
            ],
        ),
        Goal(
            "P6",
            "drain from a SQLite file, default settings, concurrency 2",
            [Ratio("drain, SQLite", lite, "huey on SQLite", drain("huey.sqlite"), least=4.0)],
        ),
        Goal(
            "P7",
            "with 1,000,000 finished jobs and 200,000 waiting, beside empty tables",
            [
                Ratio("drain, full tables", history, "empty", ours, least=0.9),
                Ratio("enqueue one, full tables", its_enqueue, "empty", one, least=0.9),
            ],
        ),
        Goal(
            "P8",
            "MariaDB beside PostgreSQL",
            [
                Ratio("drain, MariaDB", drain("ojs.mariadb"), "PostgreSQL", ours, least=0.75),
                Ratio("enqueue one, MariaDB", enqueue("ojs.mariadb"), "PostgreSQL", one, least=0.5),
            ],
        ),
    ]  # fmt: skip
