"""Totals: what was ever counted, to the job, whatever was deleted since."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from django_ojs import clock
from django_ojs.api import cancel, enqueue, enqueue_many
from django_ojs.domain import exposition
from django_ojs.domain.exposition import Histogram
from django_ojs.domain.histogram import BUCKETS
from django_ojs.domain.ids import Uuid7Generator
from django_ojs.models import Attempt, Event, Job, MaintenanceRun, Queue, Total
from django_ojs.services import metrics, promote, prune, queues, rollup, totals
from django_ojs.services.operate import purge
from django_ojs.services.reap import reap
from tests.services.support import ack, fail, make, take

pytestmark = pytest.mark.every_database

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
Values = dict[tuple[str, ...], Any]


@pytest.fixture
def at(ojs_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[clock.FrozenClock]:
    """A clock that stands at noon, by which ids are made too; everything before is counted."""
    ids = Uuid7Generator()
    rollup._next.clear()
    with clock.using_clock(clock.FrozenClock(START)) as stopped:
        assert isinstance(stopped, clock.FrozenClock)

        def new_id() -> Any:
            return ids.next(int(stopped.time.timestamp() * 1000), 1 << 20)

        monkeypatch.setattr(clock, "new_id", new_id)
        monkeypatch.setattr(clock, "new_ids", lambda count: [new_id() for _ in range(count)])
        MaintenanceRun.objects.create(name=rollup.NAME, last_run_at=START, watermark_at=START)
        yield stopped
    rollup._next.clear()


def count(at: clock.FrozenClock) -> None:
    """Three minutes later all that has happened is counted."""
    at.advance(180)
    while rollup.rollup()["minutes"]:
        pass


def values(name: str) -> Values:
    """The samples of a metric; of a histogram how many there were."""
    (family,) = [one for one in metrics.collect() if one.name == name]
    return {
        labels: value.count if isinstance(value, Histogram) else value
        for labels, value in family.values.items()
    }


def test_jobs_and_attempts(at: clock.FrozenClock) -> None:
    make(3)
    at.advance(0.2)
    jobs = take(2)
    at.advance(2.5)
    ack(*jobs)
    fail(*take(1))
    make(1, retry={"max_attempts": 1}, queue="mail")
    fail(*take(queues=("mail",)))
    (waiting,) = make(1, queue="mail")
    cancel(waiting.id)
    count(at)
    key, mail = ("default", "test.job"), ("mail", "test.job")
    assert values("ojs_job_enqueued_total") == {key: 3, mail: 2}
    assert values("ojs_job_completed_total") == {key: 2}
    assert values("ojs_job_failed_total") == {mail: 1}
    assert values("ojs_job_cancelled_total") == {mail: 1}
    assert values("ojs_job_retried_total") == {key: 1}
    assert values("ojs_job_execution_duration_seconds") == {
        (*key, "completed"): 2,
        (*key, "failed"): 1,
        (*mail, "failed"): 1,
    }
    assert values("ojs_job_duration_seconds") == {
        (*key, "completed"): 2,
        (*key, "failed"): 1,
        (*mail, "failed"): 1,
    }
    assert values("ojs_job_queue_time_seconds") == {key: 3, mail: 1}
    assert values("ojs_job_enqueue_wait_time_seconds") == {("default",): 3, ("mail",): 1}
    row = Total.objects.get(metric="execution", queue="default", label="completed")
    assert (row.count, row.sum_ms) == (2, 5000)
    assert row.buckets is not None and row.buckets[BUCKETS.index(2500)] == 2


def test_a_second_start_is_no_first_one(at: clock.FrozenClock) -> None:
    make(1, retry={"max_attempts": 2, "initial_interval": "PT1S", "jitter": False})
    fail(*take(1))
    at.advance(2)
    promote.promote(seconds=1, using="default")
    ack(*take(1))
    count(at)
    assert values("ojs_job_queue_time_seconds") == {("default", "test.job"): 2}
    assert values("ojs_job_enqueue_wait_time_seconds") == {("default",): 1}


def test_the_five_timeouts(at: clock.FrozenClock) -> None:
    once: dict[str, Any] = {"retry": {"max_attempts": 1}, "grace_period": "0s"}
    make(1, queue="slow", timeout="1s", **once)
    make(1, queue="silent", heartbeat_timeout="2s", **once)
    make(1, queue="whole", total_timeout="3s", **once)
    take(3, queues=("slow", "silent", "whole"))
    make(1, queue="never", enqueue_ttl="1s")
    at.advance(20)
    reap()
    count(at)
    found = values("ojs_job_timeout_count_total")
    assert {queue: kind for kind, queue, _ in found} == {
        "slow": "execution",
        "silent": "stalled",
        "whole": "total",
        "never": "enqueue_ttl",
    }
    assert set(found.values()) == {1}
    outcomes = {queue: outcome for queue, _, outcome in values("ojs_job_execution_duration_seconds")}
    assert outcomes == {"slow": "timeout", "silent": "stalled", "whole": "total_timeout"}
    assert values("ojs_job_expired_total") == {("never", "test.job"): 1}


@pytest.mark.slow
def test_totals_are_those_of_the_rows_and_outlive_them(at: clock.FrozenClock) -> None:
    for _ in range(6):
        enqueue_many("test.job", [[n] for n in range(50)], retry={"max_attempts": 1})
        jobs = take(50)
        ack(*jobs[:40])
        fail(*jobs[40:])
        at.advance(61)
    count(at)
    by_state = {state: Job.objects.filter(state=state).count() for state in ("completed", "discarded")}
    attempts = (
        Attempt.objects.count()
        + by_state["completed"]
        - Attempt.objects.filter(outcome="completed").count()
    )
    at.advance(timedelta(days=400).total_seconds())
    assert prune.prune().counts["completed"] == by_state["completed"] == 240
    assert not Job.objects.exists()
    key = ("default", "test.job")
    assert values("ojs_job_enqueued_total") == {key: 300}
    assert values("ojs_job_completed_total") == {key: by_state["completed"]}
    assert values("ojs_job_failed_total") == {key: by_state["discarded"]}
    assert sum(values("ojs_job_execution_duration_seconds").values()) == attempts == 300


_BY_PAIR = "SELECT queue, type, COUNT(*) FROM django_ojs_job {} GROUP BY queue, type"
_ATTEMPTS = "SELECT queue, type, SUM(attempt) FROM django_ojs_job GROUP BY queue, type"


def counted(sql: str) -> Values:
    """What SQL counts by queue and type."""
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return {(queue, kind): int(number) for queue, kind, number in cursor.fetchall() if number}


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_hundred_thousand_jobs_to_the_job(at: clock.FrozenClock) -> None:
    """Some complete, some fail and are retried, some are discarded, cancelled or expire."""
    number, retry = 0, {"max_attempts": 2, "initial_interval": "PT1S", "jitter": False}
    for batch in range(100):
        queue, kind = f"q{batch % 3}", f"work.n{batch % 20}"
        options: dict[str, Any] = {"queue": queue, "retry": retry, "enqueue_ttl": "1h"}
        made = enqueue_many(kind, [[n] for n in range(number, number + 1000)], **options)
        number += 1000
        for job in made[:7]:
            cancel(job.id)
        jobs = take(980, queues=(queue,), types=(kind,))
        ack(*jobs[100:])
        fail(*jobs[:100])
        at.advance(30)
        promote.promote(seconds=5, using="default")
        again = take(1000, queues=(queue,), types=(kind,))
        retried = [job for job in again if job.attempt == 2]
        ack(*(job for job in again if job.attempt == 1), *retried[:60])
        fail(*retried[60:])
        enqueue_many(kind, [[0]] * (batch % 5), queue=queue, enqueue_ttl="1s")
        at.advance(40)
    while Job.objects.filter(finished_at=None).exists():
        reap()
    states = ("completed", "discarded", "cancelled")
    stored = {state: counted(_BY_PAIR.format(f"WHERE state = '{state}'")) for state in states}
    enqueued, attempts = counted(_BY_PAIR.format("")), counted(_ATTEMPTS)
    count(at)
    at.advance(timedelta(days=400).total_seconds())
    prune.prune()
    assert not Job.objects.exists()
    assert number == 100_000
    assert sum(enqueued.values()) == number + 200
    assert values("ojs_job_enqueued_total") == enqueued
    assert values("ojs_job_completed_total") == stored["completed"]
    assert values("ojs_job_failed_total") == stored["discarded"]
    assert values("ojs_job_cancelled_total") == stored["cancelled"]
    assert sum(values("ojs_job_expired_total").values()) == 200
    ran: Counter[tuple[str, ...]] = Counter()
    for (queue, kind, _), amount in values("ojs_job_execution_duration_seconds").items():
        ran[queue, kind] += amount
    assert ran == attempts
    assert values("ojs_job_queue_time_seconds") == attempts


def test_nothing_is_pruned_that_was_not_counted(at: clock.FrozenClock) -> None:
    """The roll-up has not run for longer than everything is kept."""
    make(1)
    ack(*take(1))
    make(1, retry={"max_attempts": 1})
    fail(*take(1))
    at.advance(timedelta(days=400).total_seconds())
    prune.prune()
    assert Job.objects.count() == 2
    assert Event.objects.exists()
    count(at)
    assert values("ojs_job_completed_total") == {("default", "test.job"): 1}
    prune.prune()
    assert not Job.objects.exists()
    assert values("ojs_job_failed_total") == {("default", "test.job"): 1}


@pytest.mark.parametrize("deleted", [False, True])
def test_a_clock_that_was_set_back_lowers_no_sum(at: clock.FrozenClock, deleted: bool) -> None:
    """The first job waited and ran for less than no time, the second for two seconds, the third for a
    time that is not known.
    """
    make(3)
    at.advance(2)
    first, _second, third = jobs = take(3)
    at.advance(2)
    ack(*jobs)
    hour = timedelta(hours=1)
    Job.objects.filter(pk=first.id).update(enqueued_at=START + 2 * hour, started_at=START + hour)
    Job.objects.filter(pk=third.id).update(enqueued_at=None, started_at=None)
    if deleted:
        purge([job.id for job in jobs])
    count(at)
    for metric in ("wait", "first_wait", "execution"):
        row = Total.objects.get(metric=metric)
        assert (row.count, row.sum_ms) == (2, 2000)


def test_what_is_deleted_by_hand_counts_once(at: clock.FrozenClock) -> None:
    """Jobs that end in the same minute: some are deleted before it is counted, some after."""
    make(6, retry={"max_attempts": 1})
    jobs = take(5)
    at.advance(2.5)
    ack(*jobs[:3])
    fail(*jobs[3:])
    cancel(Job.objects.get(state="available").id)
    purge([job.id for job in (jobs[0], jobs[3])])
    count(at)
    purge([jobs[1].id])
    purge(Job.objects.values_list("pk", flat=True))
    count(at)
    assert not Job.objects.exists()
    key = ("default", "test.job")
    assert values("ojs_job_enqueued_total") == {key: 6}
    assert values("ojs_job_completed_total") == {key: 3}
    assert values("ojs_job_failed_total") == {key: 2}
    assert values("ojs_job_cancelled_total") == {key: 1}
    assert values("ojs_job_execution_duration_seconds") == {
        (*key, "completed"): 3,
        (*key, "failed"): 2,
    }
    assert values("ojs_job_enqueue_wait_time_seconds") == {("default",): 5}
    row = Total.objects.get(metric="execution", label="completed")
    assert (row.count, row.sum_ms) == (3, 7500)


def test_a_roll_up_that_has_read_what_is_deleted_begins_again(
    at: clock.FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(2)
    ack(*take(2))
    first = Job.objects.values_list("pk", flat=True)[0]
    at.advance(180)
    plain = rollup._store

    def stored(*given: Any, **more: Any) -> bool:
        """Between the reading of the minute and its storing, one of its jobs is deleted."""
        monkeypatch.setattr(rollup, "_store", plain)
        purge([first])
        return plain(*given, **more)

    monkeypatch.setattr(rollup, "_store", stored)
    rollup.rollup()
    assert values("ojs_job_completed_total") == {("default", "test.job"): 1}
    rollup.rollup()
    assert values("ojs_job_completed_total") == {("default", "test.job"): 2}
    assert values("ojs_job_enqueued_total") == {("default", "test.job"): 2}


def test_later_pairs_count_together(at: clock.FrozenClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has a series of its own keeps it: that is decided where it is stored."""
    monkeypatch.setattr(totals, "MOST_PAIRS", 2)
    enqueue("a.first")
    enqueue("a.second")
    count(at)
    for name in ("a.third", "a.fourth", "a.first"):
        enqueue(name)
    count(at)
    assert values("ojs_job_enqueued_total") == {
        ("default", "a.first"): 2,
        ("default", "a.second"): 1,
        (totals.REST, totals.REST): 2,
    }


def test_gauges(at: clock.FrozenClock) -> None:
    make(3, queue="mail")
    make(1, queue="other")
    take(queues=("other",))
    at.advance(7)
    queues.pause(["other"])
    assert values("ojs_queue_depth")["mail", "available"] == 3
    assert values("ojs_queue_depth")["other", "active"] == 1
    assert values("ojs_queue_oldest_wait_seconds") == {("mail",): 7}
    assert values("ojs_job_heartbeat_age_seconds") == {("other",): 7}
    assert values("ojs_queue_paused") == {("mail",): 0, ("other",): 1}
    assert values("ojs_overdue_seconds") == {(): 0}
    at.advance(10_000)
    assert values("ojs_overdue_seconds")[()] > 5000
    assert values("ojs_maintenance_age_seconds")["rollup",] == 10_007
    assert values("ojs_workflows") == {(): 0}


@pytest.mark.slow
@pytest.mark.usefixtures("ojs_db")
def test_a_scrape_is_few_statements_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 60 queues and all pairs that have series: each with every metric, and long names."""
    made = [
        Total(
            metric=metric,
            queue=f"queue-{number % 60:03}".ljust(60, "q"),
            type=f"type-{number:03}".ljust(60, "t"),
            label=label,
            count=10**9,
            sum_ms=10**15,
            buckets=[10**9] * (len(BUCKETS) + 1),
        )
        for number in range(totals.MOST_PAIRS)
        for metric in totals.Metric
        for label in (("completed", "failed", "timeout") if metric == "execution" else ("",))
        if metric != "first_wait"
    ]
    Total.objects.bulk_create(made, batch_size=200)
    Queue.objects.bulk_create(
        [Queue(name=f"queue-{n:03}".ljust(60, "q")) for n in range(60)], ignore_conflicts=True
    )
    with CaptureQueriesContext(connection) as asked:
        text = exposition.render(metrics.collect())
    assert len(asked) <= 10
    assert len(text) < 4 << 20
    assert text.count("ojs_job_execution_duration_seconds_count") == 3 * totals.MOST_PAIRS


def test_a_queue_of_a_worker_that_is_alive(at: clock.FrozenClock) -> None:
    from django_ojs.models import Worker

    make(1, queue="mail")
    make(1, queue="idle")
    for number, (names, phase, heard) in enumerate(
        [
            (["mail"], "running", 0),
            ([], "running", 0),
            (["mail"], "stopped", 0),
            (["mail"], "running", 90),
        ]
    ):
        Worker.objects.create(
            name=f"w{number}",
            incarnation=clock.new_lease(),
            phase=phase,
            queues=names,
            running=2,
            started_at=START,
            heartbeat_at=START - timedelta(seconds=heard),
        )
    assert values("ojs_queue_workers") == {("idle",): 1, ("mail",): 2}
    assert values("ojs_workers_active") == {(): 2}
    assert values("ojs_workers_busy") == {(): 4}


@override_settings(OJS={"RETENTION": {"completed": None}})
def test_a_minute_that_two_count_counts_once(at: clock.FrozenClock) -> None:
    make(1)
    ack(*take(1))
    count(at)
    run = MaintenanceRun.objects.get(name=rollup.NAME)
    mark, minute = run.watermark_at, rollup._minute(START, "default")
    given = (START, run.last_run_at, START + rollup.MINUTE, at.time, minute)
    assert rollup._store(*given, using="default") is False
    assert MaintenanceRun.objects.get(name=rollup.NAME).watermark_at == mark
    assert values("ojs_job_completed_total") == {("default", "test.job"): 1}
