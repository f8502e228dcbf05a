"""Many kinds of work, large jobs, new queues, workflows, tasks: P20 to P25, on every database."""

from __future__ import annotations

from benchmarks.goals.checks import Check, Figure, Goal, Limit, Ratio
from benchmarks.goals.scale import Scale
from benchmarks.measuring import Measure

_DATABASES = {"ojs": "PostgreSQL", "ojs.mariadb": "MariaDB", "ojs.sqlite": "SQLite"}
_PAIRS = {100: (5, 20), 600: (3, 200), 10_000: (50, 200)}


def goals(scale: Scale) -> list[Goal]:
    """The six."""
    return [
        Goal(
            "P21",
            "a claim of 2 jobs where each pair of queue and type has work",
            [check for system in _DATABASES for check in _claims(system)],
        ),
        Goal(
            "P22",
            "a drain over many queues and many types, concurrency 2",
            [check for system in _DATABASES for check in _drains(system, scale.jobs)],
        ),
        Goal(
            "P23",
            "what is claimed ahead: 400 jobs of 1 MB, and short jobs with one of 150 ms among ten",
            [check for system in _DATABASES for check in _ahead(system)],
        ),
        Goal(
            "P24",
            "a claim of 200 jobs out of 50 queues",
            [check for system in ("ojs", "ojs.mariadb") for check in _locks(system)],
        ),
        Goal(
            "P25",
            "the first job of a new queue, on an idle worker",
            [check for system in _DATABASES for check in _new_queues(system, scale)],
        ),
        Goal(
            "P20",
            "beside plain jobs: a batch of 10,000 with a callback, tasks, unique, limited, coroutines",
            [
                check
                for system in _DATABASES
                for check in (
                    *_batches(system, scale.jobs),
                    *_tasks(system, scale),
                    *_options(system, scale),
                )
            ],
        ),
    ]


def _claims(system: str) -> list[Check]:
    def figure(queues: int, types: int, name: str = "ms", foreign: int = 0) -> Figure:
        options = (("queues", queues), ("types", types), ("foreign", foreign))
        return Figure(Measure(system, "claim_pairs", options=options, once=True), name, "ms")

    database = _DATABASES[system]
    one = figure(1, 1)
    return [
        *(
            Ratio(f"claim from {pairs:,} pairs, {database}", figure(*of), "1 pair", one, most=3)
            for pairs, of in _PAIRS.items()
        ),
        Limit(f"the same, 100,000 foreign jobs in front, {database}", figure(3, 200, foreign=100_000)),
        Limit(f"the same, nothing else waits, {database}", figure(3, 200, "idle_ms", 100_000)),
    ]


def _drains(system: str, jobs: int) -> list[Check]:
    def figure(queues: int, types: int) -> Figure:
        options = (("queues", queues), ("types", types), ("jobs", jobs))
        return Figure(Measure(system, "spread_drain", options=options, once=True), "rate", "jobs/s")

    database, one = _DATABASES[system], figure(1, 1)
    return [
        Ratio(f"drain, 50 queues, {database}", figure(50, 1), "one queue", one, least=0.7),
        Ratio(f"drain, 200 types, {database}", figure(1, 200), "one type", one, least=0.7),
    ]


def _batches(system: str, jobs: int) -> list[Check]:
    enqueued = Measure(system, "batch_enqueue", options=(("jobs", jobs), ("rounds", 3)), once=True)
    drained = Measure(system, "batch_drain", options=(("jobs", jobs),))
    plain = _plain(system, jobs)
    database, unit = _DATABASES[system], "jobs/s"
    return [
        Ratio(
            f"enqueue a batch, {database}",
            Figure(enqueued, "rate", unit),
            "enqueue_many",
            Figure(enqueued, "plain_rate", unit),
            least=0.7,
        ),
        Ratio(
            f"drain a batch, {database}",
            Figure(drained, "rate", unit),
            "plain jobs",
            Figure(plain, "rate", unit),
            least=0.5,
        ),
    ]


def _tasks(system: str, scale: Scale) -> list[Check]:
    options = (("jobs", scale.enqueues // 3), ("rounds", 4))
    enqueued = Measure(system, "task_enqueue", options=options, once=True)
    drained = Measure(system, "task_drain", options=(("jobs", scale.jobs),))
    plain = _plain(system, scale.jobs)
    database, unit = _DATABASES[system], "jobs/s"
    peers: list[Check] = []
    for name, peer in (("django-ox", "ox"), ("django-tasks-db", "tasks_db")) * (system == "ojs"):
        for what, ours, workload, jobs in (
            ("enqueue a task", enqueued, "enqueue_one", scale.enqueues),
            ("drain tasks", drained, "drain", scale.jobs_for(peer)),
        ):
            theirs = Measure(peer, workload, options=(("jobs", jobs),), once=True)
            figures = (Figure(measure, "rate", unit) for measure in (ours, theirs))
            peers.append(Ratio(f"{what}, {database}", next(figures), name, next(figures)))
    return [
        *peers,
        Ratio(
            f"enqueue a task, {database}",
            Figure(enqueued, "rate", unit),
            "a job",
            Figure(enqueued, "plain_rate", unit),
            least=0.95,
        ),
        Ratio(
            f"drain tasks, {database}",
            Figure(drained, "rate", unit),
            "jobs",
            Figure(plain, "rate", unit),
            least=0.95,
        ),
    ]


def _plain(system: str, jobs: int) -> Measure:
    return Measure(system, "drain", options=(("jobs", jobs),))


def _options(system: str, scale: Scale) -> list[Check]:
    database, unit = _DATABASES[system], "jobs/s"
    checks: list[Check] = []
    for option in ("unique", "limited"):
        options = (("option", option), ("jobs", scale.enqueues // 3), ("rounds", 2))
        measure = Measure(system, "option_enqueue", options=options, once=True)
        ours, plain = Figure(measure, "rate", unit), Figure(measure, "plain_rate", unit)
        checks.append(Ratio(f"enqueue, {option}, {database}", ours, "a plain job", plain))
    if system == "ojs":
        ten = Measure(system, "limited_drain", options=(("at_once", 10), ("jobs", scale.jobs // 10)))
        ours, plain = Figure(ten, "rate", unit), Figure(_plain(system, scale.jobs), "rate", unit)
        checks.append(Ratio("drain, ten at once, PostgreSQL", ours, "plain jobs", plain))
        slots = (("ASYNC_SLOTS", 50),)
        shared = Measure(system, "slots_drain", options=(("jobs", scale.jobs),), ojs=slots)
        ours = Figure(shared, "rate", unit)
        checks.append(Ratio("drain in 50 slots", ours, "two executors", plain))
    return checks


def _ahead(system: str) -> list[Check]:
    large = Measure(system, "large_drain", options=(("kib", 1000), ("jobs", 200)), once=True)
    options = (("long_ms", 150), ("one_in", 10), ("jobs", 1000))
    mixed = Measure(system, "mixed_drain", options=options, once=True)
    database, per = _DATABASES[system], "per 1,000 jobs"
    return [
        Limit(f"claims given back, large, {database}", Figure(large, "released", per), most=20),
        Limit(f"memory of the worker, large, {database}", Figure(large, "peak_mib", "MiB"), most=200),
        Limit(f"drain, large, {database}", Figure(large, "rate", "jobs/s")),
        Limit(f"claims given back, mixed, {database}", Figure(mixed, "released", per), most=20),
    ]


def _locks(system: str) -> list[Check]:
    many, one = (
        Measure(system, "claim_locks", options=(("queues", queues),), once=True) for queues in (50, 1)
    )
    checks: list[Check] = [
        Limit(f"rows locked, {_DATABASES[system]}", Figure(many, "locked", ""), most=200)
    ]
    if system == "ojs":
        checks.append(
            Ratio(
                "log written", Figure(many, "log_kib", "KiB"), "out of one queue",
                Figure(one, "log_kib", "KiB"), most=1.5,
            )
        )  # fmt: skip
    return checks


def _new_queues(system: str, scale: Scale) -> list[Check]:
    options = (("queues", 100 if scale.even else 12),)
    measure = Measure(system, "new_queue", options=options, once=True)
    return [
        Ratio(
            f"wait, p99, {_DATABASES[system]}", Figure(measure, "p99", "ms"), "a known queue",
            Figure(measure, "known_p99", "ms"), most=1.5,
        )
    ]  # fmt: skip
