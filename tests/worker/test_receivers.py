"""The queue of events and its thread, without a worker around them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from django.db import connection, connections

from django_ojs import clock, signals
from django_ojs.domain.events import Kind
from django_ojs.signals import EventRecord, job_completed
from django_ojs.worker.threads import receivers
from django_ojs.worker.threads.receivers import Receivers
from tests.support import poll

Connect = Callable[[Callable[..., Any]], None]


def event(number: int = 0) -> EventRecord:
    return EventRecord(clock.new_id(), str(Kind.COMPLETED), datetime.now(UTC), {"number": number})


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Connect a receiver for the test."""
    connected: list[Callable[..., Any]] = []

    def connect(receiver: Callable[..., Any]) -> None:
        connected.append(receiver)
        job_completed.connect(receiver, weak=False)

    yield connect
    for receiver in connected:
        job_completed.disconnect(receiver)


def number_of(heard: list[int], event: EventRecord, **named: Any) -> None:
    heard.append(event.data["number"])


def test_events_are_delivered_in_order_by_one_other_thread(connect: Connect) -> None:
    heard: list[tuple[int, int]] = []
    connect(lambda event, **named: heard.append((event.data["number"], threading.get_ident())))
    queue = Receivers()
    with queue.serving(10):
        for number in range(100):
            signals.deliver(event(number))
    assert [number for number, _ in heard] == list(range(100))
    assert len({thread for _, thread in heard}) == 1
    assert heard[0][1] != threading.get_ident()
    signals.deliver(event(100))
    assert heard[-1] == (100, threading.get_ident()), "as it was before"


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3)])
def test_a_receiver_that_raises_harms_nobody(
    connect: Connect, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[int] = []

    def fail(**named: Any) -> None:
        raise error

    connect(partial(fail))
    connect(partial(number_of, heard))
    with Receivers().serving(10):
        signals.deliver(event(1))
        signals.deliver(event(2))
    if isinstance(error, Exception):
        assert heard == [1, 2]
        assert "functools.partial" in caplog.text, "a receiver without a name is named all the same"
    else:
        assert caplog.text.count("a receiver exited: job.completed") == 2


def test_beyond_the_limit_only_reports_are_taken(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(receivers, "LIMIT", 4)
    heard: list[int] = []
    go_on, room = threading.Event(), threading.Event()

    def wait(event: EventRecord, **named: Any) -> None:
        assert go_on.wait(30)
        heard.append(event.data["number"])

    connect(wait)
    queue = Receivers(reporters=[threading.current_thread()], on_room=room.set)
    with queue.serving(30):
        signals.deliver(event(0))
        poll(lambda: signals.running_in(ident_of("ojs-receivers")))
        for number in range(1, 5):
            signals.deliver(event(number))
        full = [queue.full]
        for number in range(5, 12):
            signals.deliver(event(number))
        full.append(queue.full)
        assert full == [False, True]
        enforcer = threading.Thread(target=signals.deliver, args=[event(100)])
        enforcer.start()
        enforcer.join()
        assert "the receiver tests.worker.test_receivers" in caplog.text
        assert not room.is_set()
        go_on.set()
        assert room.wait(30)
        assert not queue.full
        assert "events dropped, receivers did not keep up: 4" in caplog.text, (
            "three reports beyond twice the limit, and 100"
        )
    assert heard == list(range(9))


def ident_of(name: str) -> int | None:
    return next((thread.ident for thread in threading.enumerate() if thread.name == name), None)


@pytest.mark.slow
def test_what_is_left_at_the_end_is_counted(connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    go_on = threading.Event()
    connect(lambda **named: go_on.wait(30))
    with Receivers().serving(0):
        for number in range(3):
            signals.deliver(event(number))
    assert "events not delivered to receivers: 2; the receiver tests.worker" in caplog.text
    go_on.set()
    poll(lambda: ident_of("ojs-receivers") is None)


def test_slow_receivers_are_named(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(signals, "SLOW_S", 0.0)

    class Slow:
        def __call__(self, **named: Any) -> None: ...

    async def later(**named: Any) -> None: ...

    connect(Slow())
    connect(later)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            signals.deliver(event())
    for name in ("Slow", "later"):
        assert caplog.text.count(f"{name} took") == 1, "once a minute"


@pytest.mark.every_database
def test_the_connection_of_the_thread_is_closed_when_unused(
    ojs_db: None, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receivers, "_UNUSED_S", 0.05)
    opened: list[Any] = []

    def query(**named: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        opened.append(connections["default"])

    connect(query)
    with Receivers().serving(10):
        signals.deliver(event())
        poll(lambda: opened and opened[0].connection is None)
        signals.deliver(event())
        poll(lambda: len(opened) == 2)
    assert opened[0] is opened[1], "a connection of one and the same thread"
    assert opened[1].connection is None
    assert opened[0] is not connections["default"]
