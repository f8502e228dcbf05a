"""Samples of what waits: one a minute, of the largest queues, bounded, in steps of any length."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connections

from django_ojs import clock
from django_ojs.clock import FrozenClock
from django_ojs.models import QueueSample, Worker
from django_ojs.services import prune, queue_samples, rollup
from django_ojs.services.queue_samples import ALL, MINUTE
from tests.services.support import make, take

pytestmark = pytest.mark.every_database

START = datetime(2026, 3, 1, 12, 0, 20, tzinfo=UTC)
NOON = START.replace(second=0)


@pytest.fixture
def at(ojs_db: None, frozen: FrozenClock) -> FrozenClock:
    """A clock that stands at 20 s past noon."""
    frozen.time = START
    return frozen


def stored(step: int = 60, **where: Any) -> dict[str, tuple[int, int, int]]:
    """Of each queue with a row: how many waited, for how long (in seconds), and how many ran."""
    rows = QueueSample.objects.filter(step=step, **where)
    return {row.queue: (row.waiting, row.oldest_ms // 1000, row.running) for row in rows}


def test_a_minute_has_one_sample(at: FrozenClock) -> None:
    make(3)
    at.advance(10)
    make(2, queue="mail")
    make(1, queue="later", delay="1h")
    take(1, queues=("mail",))
    assert queue_samples.sample() > 0
    expected = {ALL: (4, 10, 1), "default": (3, 10, 0), "mail": (1, 0, 1)}
    assert stored(at=NOON) == expected
    make(5)
    at.advance(29)
    assert queue_samples.sample() == 0
    assert stored(at=NOON) == expected
    at.advance(1)
    queue_samples.sample()
    assert stored(at=NOON + MINUTE)["default"] == (8, 40, 0)
    assert set(QueueSample.objects.values_list("at", flat=True).filter(step=60)) == {
        NOON,
        NOON + MINUTE,
    }


def test_nothing_is_a_sample_too(at: FrozenClock) -> None:
    queue_samples.sample()
    assert stored() == {ALL: (0, 0, 0)}
    whole = QueueSample.objects.get(step=60)
    assert (sum(whole.ages), whole.workers, whole.slots) == (0, 0, 0)


def test_how_long_they_have_waited(at: FrozenClock) -> None:
    make(2)
    at.advance(50)
    make(3, queue="mail")
    at.advance(2)
    queue_samples.sample()
    whole = QueueSample.objects.get(step=60, queue=ALL)
    # Up to 2 s, and up to 60 s.
    assert [(place, count) for place, count in enumerate(whole.ages) if count] == [(12, 3), (17, 2)]


def test_what_a_rate_limit_holds_waits_too(at: FrozenClock) -> None:
    make(4, rate_limit={"key": "bank", "concurrency": 1})
    at.advance(3)
    queue_samples.sample()
    assert stored()["default"] == (4, 3, 0)


def test_live_workers_and_their_slots(at: FrozenClock) -> None:
    for name, concurrency, age in (("a", 4, 0), ("b", 2, 59), ("c", 8, 61), ("d", None, 0)):
        Worker.objects.create(
            name=name,
            incarnation=clock.new_lease(),
            concurrency=concurrency,
            started_at=at.time,
            heartbeat_at=at.time - timedelta(seconds=age),
        )
    queue_samples.sample()
    whole = QueueSample.objects.get(step=60)
    assert (whole.workers, whole.slots) == (3, 6)


def test_the_largest_queues_have_rows_and_the_others_count(
    at: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_samples, "MOST_QUEUES", 2)
    for number in range(1, 5):
        make(number, queue=f"q{number}")
    queue_samples.sample()
    assert {name: said[0] for name, said in stored().items()} == {ALL: 10, "q4": 4, "q3": 3}


def test_counting_ends(at: FrozenClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The large ones share what may be counted, the others are counted in full."""
    monkeypatch.setattr(queue_samples, "_LEAST", 2)
    monkeypatch.setattr(queue_samples, "_MOST", 3)
    monkeypatch.setattr(queue_samples, "COUNTED", 12)
    for name, count in (("large", 9), ("huge", 8), ("small", 2)):
        make(count, queue=name)
    queue_samples.sample()
    rows = {row.queue: (row.waiting, row.capped) for row in QueueSample.objects.filter(step=60)}
    assert rows == {ALL: (14, True), "large": (6, True), "huge": (6, True), "small": (2, False)}


def test_of_a_longer_step_the_fullest_moment_stays(at: FrozenClock) -> None:
    for waiting in (1, 4, 2):
        jobs = make(waiting)
        queue_samples.sample()
        take(len(jobs))
        at.advance(60)
    assert [stored(at=NOON + n * MINUTE)[ALL][0] for n in range(3)] == [1, 4, 2]
    for step in (900, 7200, 21600):
        assert {name: said[0] for name, said in stored(step).items()} == {ALL: 4, "default": 4}
    at.time = START + timedelta(minutes=15)
    queue_samples.sample()
    assert stored(900, at=NOON + timedelta(minutes=15))[ALL] == (0, 0, 7)
    assert stored(7200, at=NOON)[ALL][0] == 4


def test_each_step_is_kept_as_long_as_it_is_drawn(at: FrozenClock) -> None:
    make(1)
    for moment, kept in (
        (timedelta(hours=3), {900, 7200, 21600}),
        (timedelta(hours=27), {7200, 21600}),
        (timedelta(days=9), {21600}),
    ):
        at.time = START
        QueueSample.objects.all().delete()
        queue_samples.sample()
        at.time = START + moment
        queue_samples.sample()
        assert set(QueueSample.objects.filter(at__lte=NOON).values_list("step", flat=True)) == kept
    at.time = START + timedelta(days=29)
    assert prune.prune().counts["stats"] == 0
    at.time = START + timedelta(days=31)
    assert prune.prune(dry_run=True).counts["stats"] == 2
    assert prune.prune().counts["stats"] == 2
    assert not QueueSample.objects.filter(at__lte=NOON).exists()


def test_two_at_once(at: FrozenClock) -> None:
    make(3)
    problems: list[BaseException] = []
    ready = threading.Barrier(4)

    def work() -> None:
        try:
            ready.wait(10)
            queue_samples.sample()
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
    for step in (60, 900, 7200, 21600):
        assert sorted(stored(step)) == [ALL, "default"]
        assert QueueSample.objects.filter(step=step).count() == 2


def test_reading(at: FrozenClock) -> None:
    make(2)
    make(3, queue="mail")
    queue_samples.sample()
    at.advance(120)
    make(4, queue="other")
    queue_samples.sample()
    found = queue_samples.read(NOON, MINUTE)
    assert {place: row.waiting for place, row in found.whole.items()} == {0: 5, 2: 9}
    assert {name: sorted(rows) for name, rows in found.queues.items()} == {
        "default": [0, 2],
        "mail": [0, 2],
        "other": [2],
    }
    assert found.largest(2) == ["mail", "default"]
    one = queue_samples.read(NOON, MINUTE, queue="mail")
    assert (dict(one.whole), list(one.queues)) == ({}, ["mail"])
    assert not queue_samples.read(NOON + timedelta(minutes=5), MINUTE).whole
    found = queue_samples.read(NOON, timedelta(hours=2))
    assert found.last_at == NOON + 2 * MINUTE
    assert found.last["other"].waiting == 4
    at.advance(180)
    assert queue_samples.read(NOON, MINUTE).last_at is None


def test_the_roll_up_samples(at: FrozenClock) -> None:
    rollup._next.clear()
    make(2)
    assert rollup.task("default").counts["samples"] > 0
    assert stored()[ALL][0] == 2
    rollup._next.clear()
