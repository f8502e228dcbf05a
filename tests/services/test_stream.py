"""The stream of events: one order for all readers, and nothing is lost."""

from __future__ import annotations

import threading
from typing import Any
from uuid import UUID

import pytest
from django.db import connections, transaction

from django_ojs import clock
from django_ojs.api import enqueue, pause_queues
from django_ojs.models import Event, EventStream
from django_ojs.services import stream
from django_ojs.services.stream import Wanted
from tests.services.support import ack, make, take
from tests.support import poll

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("ojs_db")]
ANY = Wanted()


def kinds(rows: list[Event]) -> list[str]:
    return [row.kind for row in rows]


def test_events_are_read_in_order_and_once() -> None:
    ack(*take() if make() else [])
    first = stream.read(ANY, after=0, limit=2)[0]
    rest = stream.read(ANY, after=first[-1].seq or 0, limit=10)[0]
    assert kinds(first) == ["job.enqueued", "job.started"]
    assert kinds(rest) == ["job.completed"]
    assert [row.seq for row in (*first, *rest)] == [1, 2, 3]
    assert stream.read(ANY, after=3, limit=10)[0] == []
    assert stream.newest() == 3
    assert stream.place_of(first[0].pk) == 1


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (Wanted(kinds=["job.enqueued"]), ["job.enqueued", "job.enqueued"]),
        (Wanted(kinds=["queue.*"]), ["queue.paused"]),
        (Wanted(kinds=["job.*", "queue.paused"], queues=["b"]), ["job.enqueued", "queue.paused"]),
        (Wanted(within=["a"]), ["job.enqueued"]),
        (Wanted(within=["a", "b*"], kinds=["*"]), ["job.enqueued", "job.enqueued", "queue.paused"]),
        (Wanted(queues=["c"]), []),
    ],
)
def test_filters(wanted: Wanted, expected: list[str]) -> None:
    make(queue="a")
    make(queue="b")
    pause_queues(["b"])
    assert kinds(stream.read(wanted, after=0, limit=10)[0]) == expected


def test_by_job() -> None:
    one, two = make(2)
    found = stream.read(Wanted(job_id=two.id), after=0, limit=10)[0]
    assert [row.job_id for row in found] == [two.id]
    assert one.id != two.id


def test_a_late_commit_is_not_lost(vendor: str) -> None:
    """Its id is older than what was read meanwhile; its place is not."""
    if vendor == "sqlite":
        pytest.skip("SQLite has one writer at a time: no commit can overtake another")
    opened, go = threading.Event(), threading.Event()
    late: list[UUID] = []

    def slow() -> None:
        try:
            with transaction.atomic():
                late.append(enqueue("late.job").id)
                opened.set()
                assert go.wait(10)
        finally:
            connections["default"].close()

    thread = threading.Thread(target=slow)
    thread.start()
    assert opened.wait(10)
    quick = enqueue("quick.job").id
    seen = stream.read(ANY, after=0, limit=10)[0]
    assert [row.job_id for row in seen] == [quick]
    go.set()
    thread.join(10)
    more = stream.read(ANY, after=seen[-1].seq or 0, limit=10)[0]
    assert [row.job_id for row in more] == late
    assert more[0].pk < seen[0].pk


@pytest.mark.slow
def test_two_readers_at_once_give_each_event_one_place() -> None:
    make(300)
    found: list[list[int]] = []
    barrier = threading.Barrier(4)

    def reader() -> None:
        try:
            barrier.wait(10)
            found.append([row.seq or 0 for row in stream.read(ANY, after=0, limit=1000)[0]])
        finally:
            connections["default"].close()

    threads = [threading.Thread(target=reader) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert found == [list(range(1, 301))] * 4
    assert EventStream.objects.get().last == 300


def test_places_go_on_after_retention(frozen: clock.FrozenClock) -> None:
    make(2)
    assert stream.newest() == 2
    Event.objects.all().delete()
    make()
    assert [row.seq for row in stream.read(ANY, after=2, limit=10)[0]] == [3]


def test_since(frozen: clock.FrozenClock) -> None:
    make()
    frozen.advance(10)
    boundary = clock.new_id()
    make()
    stream.settle(using="default")
    before = stream.place_before(boundary)
    assert len(stream.read(ANY, after=before, limit=10)[0]) == 1
    frozen.advance(10)
    assert stream.place_before(clock.new_id()) == stream.newest() == 2


def test_a_backlog_is_placed_in_batches(monkeypatch: Any) -> None:
    monkeypatch.setattr(stream, "BATCH", 10)
    make(35)
    assert stream.settle(using="default") == 35
    assert poll(stream.newest) == 35
