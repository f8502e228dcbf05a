"""The minute roll-up: each minute once, late ones too, percentiles, failures, hours, retention."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import DatabaseError, connection, connections
from django.test.utils import CaptureQueriesContext

from django_ojs import clock, hooks
from django_ojs.domain import histogram
from django_ojs.domain.ids import Uuid7Generator
from django_ojs.models import Event, FailureStat, Incident, Job, MaintenanceRun, MinuteStat, TypeStat
from django_ojs.services import incidents, prune, rollup, stats_queries
from django_ojs.services.reap import reap
from tests.services.support import ack, fail, make, take

pytestmark = pytest.mark.every_database

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def at(ojs_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[clock.FrozenClock]:
    """A clock that stands at noon, by which ids are made too; everything before is counted."""
    ids = Uuid7Generator()
    rollup._next.clear()
    with clock.using_clock(clock.FrozenClock(START)) as stopped:
        assert isinstance(stopped, clock.FrozenClock)
        monkeypatch.setattr(
            clock, "new_id", lambda: ids.next(int(stopped.time.timestamp() * 1000), 1 << 20)
        )
        MaintenanceRun.objects.create(name=rollup.NAME, last_run_at=START, watermark_at=START)
        yield stopped
    rollup._next.clear()


def rows(**where: Any) -> list[tuple[Any, ...]]:
    """The minutes as they are stored."""
    found = MinuteStat.objects.filter(**where).order_by("step", "at", "queue")
    return list(found.values_list("at", "queue", "completed", "failed", "discarded", "timed_out"))


def run_jobs(at: clock.FrozenClock, took: float, waited: float = 0, count: int = 1, **o: Any) -> None:
    """Jobs that wait and run for so long."""
    make(count, **o)
    at.advance(waited)
    jobs = take(count, queues=(o.get("queue", "default"),))
    at.advance(took)
    ack(*jobs)


def test_a_minute_is_counted_once(at: clock.FrozenClock) -> None:
    run_jobs(at, 2.5, waited=0.2, count=3)
    run_jobs(at, 0.02, queue="mail")
    at.time = START + timedelta(seconds=149)
    assert rollup.rollup()["minutes"] == 0
    assert rows() == []
    at.time = START + timedelta(seconds=150)
    assert rollup.rollup()["minutes"] == 1
    expected = [(START, "", 4, 0, 0, 0), (START, "default", 3, 0, 0, 0), (START, "mail", 1, 0, 0, 0)]
    assert rows() == expected
    whole = MinuteStat.objects.get(queue="default")
    assert whole.durations == [0] * 13 + [3] + [0] * 11
    assert whole.waits == [0] * 8 + [3] + [0] * 16
    assert rollup.rollup()["minutes"] == 0
    assert rows() == expected
    assert stats_queries.watermark() == START + MINUTE


def test_what_is_stored_stays_when_the_mark_is_lost(at: clock.FrozenClock) -> None:
    run_jobs(at, 1)
    at.time = START + 3 * MINUTE
    rollup.rollup()
    before = rows()
    MaintenanceRun.objects.all().delete()
    Job.objects.all().delete()
    while rollup.rollup()["minutes"]:
        pass
    assert rows() == before
    assert stats_queries.watermark() == START + MINUTE


def test_quiet_minutes_and_gaps(at: clock.FrozenClock) -> None:
    at.time = START + timedelta(hours=1)
    run_jobs(at, 0)
    at.time = START + timedelta(hours=3)
    with CaptureQueriesContext(connection) as asked:
        assert rollup.rollup(seconds=60)["minutes"] == 1
    assert len(asked) <= 38, "empty minutes cost nothing"
    assert rows(queue="") == [(START + timedelta(hours=1), "", 1, 0, 0, 0)]
    assert stats_queries.watermark() == START + timedelta(hours=3) - 2 * MINUTE
    at.time = START + timedelta(days=9)
    rollup.rollup(most=1)
    assert stats_queries.watermark() == START + timedelta(days=9) - 2 * MINUTE


def test_an_id_of_the_far_future_stops_nothing(at: clock.FrozenClock) -> None:
    """Clients choose the ids of their jobs: this one has a time that no ``datetime`` can have."""
    make(1, queue="later", id="ffffffff-ffff-7fff-bfff-ffffffffffff")
    at.advance(600)
    assert rollup.rollup()["minutes"] == 1, "that in which it was enqueued"
    assert stats_queries.watermark() == START + 8 * MINUTE
    run_jobs(at, 1)
    at.advance(600)
    assert rollup.rollup()["minutes"] == 1
    assert [row[2] for row in rows(queue="")] == [1]


def test_a_run_is_short(at: clock.FrozenClock) -> None:
    for _number in range(3):
        run_jobs(at, 1)
        at.advance(60)
    at.time = START + timedelta(hours=3)
    assert rollup.rollup(seconds=0)["minutes"] == 1
    assert rollup.rollup(seconds=60)["minutes"] == 2


@pytest.mark.slow
def test_two_at_once(at: clock.FrozenClock) -> None:
    for _number in range(10):
        run_jobs(at, 1)
        take_and_fail(at)
        at.time = histogram.floor(at.time, MINUTE) + MINUTE
    at.advance(90)
    problems: list[BaseException] = []
    ready = threading.Barrier(4)

    def work() -> None:
        try:
            ready.wait(10)
            for _try in range(10):
                rollup.rollup(seconds=20)
        except BaseException as error:
            problems.append(error)
        finally:
            connections["default"].close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert problems == []
    assert [row[2:5] for row in rows(queue="")] == [(1, 1, 0)] * 10
    assert sum(FailureStat.objects.values_list("count", flat=True)) == 10


def take_and_fail(at: clock.FrozenClock, error: str = "app.Broken", **options: Any) -> None:
    """One job that fails."""
    make(1, queue="bad", **options)
    fail(*take(queues=("bad",)), type=error)


def test_failures_from_real_jobs(at: clock.FrozenClock) -> None:
    take_and_fail(at, "app.Broken")
    take_and_fail(at, "app.broken")
    take_and_fail(at, "app.Broken", retry={"max_attempts": 1})
    take_and_fail(at, "x" * 250, retry={"max_attempts": 1})
    make(1, queue="slow", timeout="1s", grace_period="0s")
    take(queues=("slow",))
    make(1, queue="never", enqueue_ttl="1s")
    at.advance(5)
    assert len(reap().jobs) == 2
    at.time = START + 3 * MINUTE
    rollup.rollup()
    assert rows(queue="") == [(START, "", 0, 6, 3, 2)]
    assert rows(queue="bad") == [(START, "bad", 0, 4, 2, 0)]
    assert rows(queue="never") == [(START, "never", 0, 1, 1, 1)]
    stored = FailureStat.objects.values_list("queue", "type", "error", "count").order_by("error")
    assert sorted(stored) == [
        ("bad", "test.job", "app.Broken", 2),
        ("bad", "test.job", "app.broken", 1),
        ("bad", "test.job", "x" * 200, 1),
        ("never", "test.job", "enqueue_ttl_expired", 1),
        ("slow", "test.job", "timeout", 1),
    ]
    found = stats_queries.failures(limit=2)
    assert (found[0].error, found[0].counts) == ("app.Broken", [2] * 5)
    assert len(found) == 2
    at.advance(2 * 3600)
    assert stats_queries.failures(limit=1, by=1)[0].counts == [0, 2, 2, 2, 2]


def test_a_failure_after_which_no_time_is_left_is_one(at: clock.FrozenClock) -> None:
    """The total timeout is why the job is given up: it has not run out."""
    make(1, timeout=60, total_timeout=70)
    (job,) = take()
    at.advance(10)
    fail(job)
    assert Job.objects.get().state == "discarded"
    at.time = START + 3 * MINUTE
    rollup.rollup()
    assert rows(queue="default") == [(START, "default", 0, 1, 1, 1)]
    assert list(FailureStat.objects.values_list("error", "count")) == [("test.Error", 1)]
    incident = Incident.objects.get()
    assert (incident.error, incident.id) == ("test.Error", Job.objects.get().incident)


def test_many_kinds_of_failure_are_folded(at: clock.FrozenClock, monkeypatch: Any) -> None:
    monkeypatch.setattr(incidents, "MOST", 3)
    for number in (0, 0, 1, 1, 2, 2, 3, 4):
        take_and_fail(at, f"e{number}")
    at.time = START + 3 * MINUTE
    rollup.rollup()
    found = {row.error: row.counts[0] for row in stats_queries.failures()}
    assert found == {"e0": 2, "e1": 2, "e2": 2, incidents.OTHER: 2}
    assert [row.error for row in stats_queries.failures() if row.is_rest] == [incidents.OTHER]


def test_other_events_are_no_failures(at: clock.FrozenClock) -> None:
    Event.objects.create(id=clock.new_id(), kind="queue.paused", created_at=START, queue="q")
    at.time = START + 3 * MINUTE
    assert rollup.rollup()["minutes"] == 1
    assert rows() == []


@pytest.mark.parametrize(
    ("took", "median", "most"),
    [
        ([50] * 100, 39, 50),
        ([2] * 50 + [20_000] * 50, 3, 30_000),
        ([0.5] * 99 + [7_200_000], 0.5, 1),
        ([7_200_000], 3_600_000, 3_600_000),
    ],
)
def test_percentiles(took: list[float], median: float, most: float) -> None:
    counts = histogram.empty()
    for value in took:
        place = next((i for i, b in enumerate(histogram.BUCKETS) if value <= b), len(histogram.BUCKETS))
        counts[place] += 1
    assert histogram.percentile(counts, 0.5) == pytest.approx(median, rel=0.05)
    assert histogram.percentile(counts, 0.95) == pytest.approx(most, rel=0.15)
    assert histogram.percentile(counts, 0.95) >= histogram.percentile(counts, 0.5)  # type: ignore[operator]


def test_no_jobs_have_no_percentile() -> None:
    assert histogram.percentile(histogram.empty(), 0.5) is None
    assert histogram.percentile([], 0.5) is None


def test_a_percentile_is_near_the_truth() -> None:
    values = [10 * 1.01**number for number in range(1000)]
    counts = histogram.empty()
    for value in values:
        place = next((i for i, b in enumerate(histogram.BUCKETS) if value <= b), len(histogram.BUCKETS))
        counts[place] += 1
    for share in (0.1, 0.5, 0.75, 0.95):
        truth = values[int(share * 1000)]
        assert histogram.percentile(counts, share) == pytest.approx(truth, rel=0.5)


def test_reading(at: clock.FrozenClock) -> None:
    run_jobs(at, 1)
    at.time = START + 5 * MINUTE
    run_jobs(at, 1, queue="mail", count=2)
    at.time = START + timedelta(minutes=7, seconds=30)
    rollup.rollup()
    until = stats_queries.watermark()
    assert until == START + 6 * MINUTE
    points = histogram.series(stats_queries.minute_stats(START), START, MINUTE, until=until)
    assert [(p.at, p.completed) for p in points] == [
        (START + n * MINUTE, {0: 1, 5: 2}.get(n, 0)) for n in range(6)
    ]
    assert points[0].duration_ms[0] is not None
    assert points[1].duration_ms == (None, None)
    wide = histogram.series(stats_queries.minute_stats(START, "mail"), START, 3 * MINUTE, until=until)
    assert [point.completed for point in wide] == [0, 2]
    hour = until - 60 * MINUTE
    assert histogram.total(stats_queries.minute_stats(hour), hour).completed == 3
    assert histogram.total(stats_queries.minute_stats(hour, "mail"), hour).completed == 2
    assert histogram.total(stats_queries.minute_stats(hour), until - MINUTE).completed == 2


@pytest.mark.slow
def test_minutes_become_hours(at: clock.FrozenClock) -> None:
    for number in (0, 30, 59):
        at.time = START + number * MINUTE
        run_jobs(at, 1)
        take_and_fail(at)
    at.time = START + timedelta(hours=1)
    run_jobs(at, 1)
    at.time = START + timedelta(hours=3, minutes=2)
    rollup.rollup(most=500, seconds=60)
    assert len(rows(step=60, queue="")) == 4
    before = histogram.total(stats_queries.minute_stats(START), START)
    at.time = START + timedelta(hours=27, minutes=3)
    counts = rollup.rollup(most=2000, seconds=60)
    assert counts["hours"] == 1
    assert rows(step=3600, queue="") == [(START, "", 3, 3, 0, 0)]
    assert rows(step=60, queue="") == [(START + timedelta(hours=1), "", 1, 0, 0, 0)]
    assert histogram.total(stats_queries.minute_stats(START), START) == before
    assert list(FailureStat.objects.values_list("at", "step", "error", "count")) == [
        (START, 3600, "app.Broken", 3)
    ]
    assert stats_queries.failures(by=3)[0].counts == [0, 0, 0, 3, 3]
    assert rollup.rollup()["hours"] == 0


def test_an_hour_is_merged_when_all_of_it_is_counted(at: clock.FrozenClock) -> None:
    """After a long gap a run may end in the middle of an hour."""
    for number in (0, 30):
        at.time = START + number * MINUTE
        run_jobs(at, 1)
        take_and_fail(at)
    at.time = START + timedelta(hours=30)
    assert rollup.rollup(most=1)["minutes"] == 1
    assert rollup.rollup(most=2000)["hours"] == 1
    assert rows(step=3600, queue="") == [(START, "", 2, 2, 0, 0)]
    assert list(FailureStat.objects.values_list("step", "count")) == [(3600, 2)]


@pytest.mark.slow
def test_failures_become_hours_as_soon_as_no_window_needs_their_minutes(at: clock.FrozenClock) -> None:
    """The numbers of windows that begin at whole hours stay what they were."""
    for number in (0, 59, 60):
        at.time = START + number * MINUTE
        take_and_fail(at)
    at.time = START + timedelta(hours=3, minutes=59)
    rollup.rollup(most=500)
    hour = timedelta(hours=1)
    stored = FailureStat.objects.order_by("at").values_list("at", "step", "count")
    assert list(stored) == [(START + n * MINUTE, 60, 1) for n in (0, 59, 60)]
    assert stats_queries.failures()[0].counts == [0, 2, 3, 3, 3]
    before = len(rows(step=60, queue=""))
    at.time = START + timedelta(hours=4, minutes=2)
    assert rollup.rollup(most=500)["hours"] == 1
    assert list(stored.all()) == [(START, 3600, 2), (START + hour, 60, 1)]
    assert len(rows(step=60, queue="")) == before, "the dashboard needs those for longer"
    assert stats_queries.failures()[0].counts == [0, 0, 3, 3, 3]
    at.time = START + timedelta(hours=24, minutes=30)
    assert stats_queries.failures()[0].counts == [0, 0, 3, 3, 3], "from the hour on that it is within"
    at.time = START + timedelta(hours=25)
    assert stats_queries.failures()[0].counts == [0, 0, 1, 3, 3]


@pytest.mark.slow
def test_failures_of_an_hour_are_not_counted_again_when_the_mark_is_lost(at: clock.FrozenClock) -> None:
    take_and_fail(at)
    at.time = START + timedelta(hours=5)
    assert rollup.rollup(most=500)["hours"] == 1
    MaintenanceRun.objects.filter(name=rollup.NAME).delete()
    assert rollup.rollup(most=2000)["minutes"] > 0
    assert sum(FailureStat.objects.values_list("count", flat=True)) == 1


def test_retention(at: clock.FrozenClock) -> None:
    run_jobs(at, 1)
    take_and_fail(at)
    at.time = START + 3 * MINUTE
    rollup.rollup()
    at.time = START + timedelta(days=29)
    assert prune.prune().counts["stats"] == 0
    at.time = START + timedelta(days=31)
    assert prune.prune(dry_run=True).counts["stats"] == 6
    assert MinuteStat.objects.count() == 3
    assert prune.prune().counts["stats"] == 6
    assert not MinuteStat.objects.exists()
    assert not FailureStat.objects.exists()
    assert not Incident.objects.exists()
    assert not TypeStat.objects.filter(step=86_400).exists()


def test_the_chore(at: clock.FrozenClock, monkeypatch: pytest.MonkeyPatch) -> None:
    (registered,) = [item for item in hooks.maintenance_tasks() if item.name == "rollup"]
    assert registered.enforces
    # Work that overruns its slice is gone on with at once.
    monkeypatch.setattr(rollup, "SLICE", 60.0)
    run_jobs(at, 1)
    at.time = START + 5 * MINUTE
    assert registered.run("default").counts["minutes"] == 1
    at.advance(300)
    with CaptureQueriesContext(connection) as asked:
        assert registered.run("default").counts == {}
    assert len(asked) == 0
    rollup._next.clear()

    def busy(**_: Any) -> Any:
        raise DatabaseError("database is locked")

    monkeypatch.setattr(rollup, "rollup", busy)
    assert registered.run("default").counts == {}
