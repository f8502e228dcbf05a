"""Lines of attempts on their way: bounded everywhere, and waited for by nobody."""

from __future__ import annotations

import logging
import socket
import threading
from collections import deque
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from django.db import OperationalError, connections

from django_ojs import clock
from django_ojs.domain.leases import Lease
from django_ojs.models import AttemptLog
from django_ojs.services import attempt_logs
from django_ojs.services.attempt_logs import LoggedAttempt
from django_ojs.worker.executor.channel import Channel
from django_ojs.worker.executor.log_capture import AT_ONCE, LogCapture, LoggedLines
from django_ojs.worker.prefork.frames import Frame, FrameReader, pack
from django_ojs.worker.prefork.log_tail import MOST_BYTES, MOST_LINES, LogTail
from django_ojs.worker.threads import logs
from django_ojs.worker.threads.logs import LogWriter
from tests.services.support import held, make, take
from tests.support import poll


class TestLogTail:
    """The last lines, by number and by size."""

    def test_the_last_lines_are_kept_and_all_are_counted(self) -> None:
        tail = LogTail()
        tail.add([str(number) for number in range(MOST_LINES + 5)])
        tail.add(["end"], count=10)
        assert (tail.lines[0], tail.lines[-1]) == ("6", "end")
        assert (len(tail.lines), tail.count) == (MOST_LINES, MOST_LINES + 15)

    def test_the_size_is_that_in_bytes(self) -> None:
        tail = LogTail()
        for number in range(10):
            tail.add([f"{number}" + "ä" * 2_500])
        assert [line[0] for line in tail.lines] == ["4", "5", "6", "7", "8", "9"]
        assert sum(len(line.encode()) for line in tail.lines) <= MOST_BYTES

    def test_a_line_that_is_larger_than_everything_is_counted(self) -> None:
        tail = LogTail()
        tail.add(["x" * (MOST_BYTES + 1)])
        assert (tail.lines, tail.count) == (deque(), 1)
        tail.add(["small"])
        assert list(tail.lines) == ["small"]

    def test_what_could_not_be_sent_is_put_before_what_came_since(self) -> None:
        tail = LogTail()
        tail.add(["a", "b"])
        taken = tail.take()
        tail.add(["c"])
        tail.put_back(*taken)
        assert (list(tail.lines), tail.count) == (["a", "b", "c"], 3)
        assert tail.take() == (["a", "b", "c"], 3)
        assert tail.take() == ([], 0)


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a channel: of the executor, of the supervisor."""
    ours, theirs = socket.socketpair()
    yield ours, theirs
    ours.close()
    theirs.close()


class TestOffer:
    """A frame that is sent if nothing has to be waited for."""

    def test_what_is_queued_goes_first(self, ends: tuple[socket.socket, socket.socket]) -> None:
        channel = Channel(ends[0], lambda: None)
        channel.buffer({"op": "first"})
        assert channel.offer({"op": "second"})
        channel.send({"op": "third"})
        found = FrameReader().feed(ends[1].recv(1 << 16))
        assert [frame["op"] for frame in found] == ["first", "second", "third"]

    def test_another_thread_that_sends_is_not_waited_for(
        self, ends: tuple[socket.socket, socket.socket]
    ) -> None:
        channel = Channel(ends[0], lambda: None)
        channel._sending.acquire()
        assert not channel.offer({"op": "log"})
        channel._sending.release()
        assert channel.offer({"op": "log"})

    def test_a_supervisor_that_does_not_read_is_not_waited_for(
        self, ends: tuple[socket.socket, socket.socket]
    ) -> None:
        channel = Channel(ends[0], lambda: None)
        sent = 0
        while channel.offer({"op": "log", "number": sent, "text": "x" * 10_000}):
            sent += 1
        reader = FrameReader()
        found: list[Frame] = []
        channel.buffer({"op": "done"})
        sender = threading.Thread(target=channel.flush)
        sender.start()
        while not found or found[-1]["op"] != "done":
            found += reader.feed(ends[1].recv(1 << 20))
        sender.join(10)
        assert [frame.get("number") for frame in found] == [*range(sent), None], "no frame is torn"

    def test_a_frame_that_was_sent_in_part_is_completed(
        self, ends: tuple[socket.socket, socket.socket]
    ) -> None:
        """Sockets of some systems take a part of what they are given."""
        channel = Channel(ends[0], lambda: None)
        whole = pack({"op": "torn"})
        ends[0].sendall(whole[:5])
        channel._rest = whole[5:]
        assert channel.offer({"op": "next"})
        assert [frame["op"] for frame in FrameReader().feed(ends[1].recv(1 << 16))] == ["torn", "next"]


@pytest.fixture
def record() -> logging.LogRecord:
    """A record of a handler."""
    return logging.makeLogRecord({"name": "shop", "levelname": "INFO", "msg": "line"})


class TestLogCapture:
    """Which records are sent, and when."""

    def test_a_loop_sends_the_first_lines_at_once_and_the_last_at_the_end(
        self,
        ends: tuple[socket.socket, socket.socket],
        record: logging.LogRecord,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        now = clock.boottime()
        monkeypatch.setattr(clock, "boottime", lambda: now)
        channel, lines = Channel(ends[0], lambda: None), LoggedLines("lease")
        capture = LogCapture(channel, logging.INFO, lambda record: lines)
        for _ in range(AT_ONCE + 1000):
            capture.handle(record)
        sent = FrameReader().feed(ends[1].recv(1 << 20))
        assert [frame["count"] for frame in sent] == [1] * AT_ONCE
        now += 0.06
        capture.handle(record)
        (late,) = FrameReader().feed(ends[1].recv(1 << 20))
        assert (late["count"], len(late["lines"])) == (1001, MOST_LINES)
        capture.handle(record)
        capture.send_waiting()
        (last,) = FrameReader().feed(ends[1].recv(1 << 20))
        assert last["count"] == 1
        capture.handle(record)
        capture.end(lines)
        capture.end(lines)
        channel.send({"op": "done"})
        assert [frame["op"] for frame in FrameReader().feed(ends[1].recv(1 << 20))] == ["log", "done"]

    def test_a_signal_handler_may_log_while_a_frame_is_sent(
        self, ends: tuple[socket.socket, socket.socket], record: logging.LogRecord
    ) -> None:
        channel, lines = Channel(ends[0], lambda: None), LoggedLines("lease")
        capture = LogCapture(channel, logging.INFO, lambda record: lines)
        with channel._sending:
            capture.handle(record)
        capture.send_waiting()
        (frame,) = FrameReader().feed(ends[1].recv(1 << 20))
        assert frame["count"] == 1


@pytest.fixture
def writer() -> Iterator[LogWriter]:
    """A writer that is closed at the end."""
    made = LogWriter("default")
    yield made
    made.close(10)


@pytest.mark.every_database
@pytest.mark.usefixtures("ojs_db")
class TestLogWriter:
    """The thread that stores logs."""

    def test_it_starts_with_the_first_log_and_stores_the_newest(self, writer: LogWriter) -> None:
        make(2)
        jobs = take(2)
        assert writer.ident is None
        for number in range(3):
            for job in jobs:
                writer.put(LoggedAttempt(held(job), f"line {number}", 1, number))
        writer.close(10)
        assert not writer.is_alive()
        assert set(AttemptLog.objects.values_list("text", "dropped")) == {("line 2", 2)}
        assert AttemptLog.objects.count() == 2

    def test_logs_wait_while_the_database_is_away(
        self, writer: LogWriter, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        make()
        (job,) = take()
        monkeypatch.setattr(logs, "_AGAIN_S", 0.01)
        tried = threading.Semaphore(0)
        write = attempt_logs.write

        def fail(*given: object, **named: object) -> None:
            tried.release()
            raise OperationalError("server closed the connection unexpectedly")

        monkeypatch.setattr(logs, "in_batches", fail)
        writer.put(LoggedAttempt(held(job), "kept", 1, 0))
        for _ in range(2):
            assert tried.acquire(timeout=10)
        monkeypatch.setattr(
            logs, "in_batches", lambda batch, work, **named: write(batch, using="default")
        )
        poll(lambda: AttemptLog.objects.filter(text="kept").exists())
        monkeypatch.undo()

    @pytest.mark.slow
    def test_no_more_of_them_wait_than_may(
        self, writer: LogWriter, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(logs, "LIMIT", 3)
        monkeypatch.setattr(writer, "start", lambda: None)
        for number in range(5):
            writer.put(LoggedAttempt(Lease(uuid4(), uuid4()), str(number), 1, 0))
        assert [log.text for log in writer._next()] == ["2", "3", "4"]
        assert writer.dropped == 2
        assert caplog.text.count("the database does not keep up") == 1

    def test_one_that_the_database_refuses_costs_no_other(
        self, writer: LogWriter, caplog: pytest.LogCaptureFixture
    ) -> None:
        make(2)
        good, bad = take(2)
        writer.put(LoggedAttempt(held(bad), "refused", 1, 1 << 70))
        writer.put(LoggedAttempt(held(good), "stored", 1, 0))
        writer.close(20)
        assert [row.text for row in AttemptLog.objects.all()] == ["stored"]
        assert f"the database refused a log: job {bad.id}" in caplog.text

    def test_its_connection_is_closed_when_there_is_nothing_to_do(
        self, writer: LogWriter, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        make()
        (job,) = take()
        monkeypatch.setattr(logs, "_UNUSED_S", 0.01)
        closed = threading.Event()
        close = connections["default"].__class__.close

        def closing(self: Any) -> None:
            if threading.current_thread() is writer:
                closed.set()
            close(self)

        monkeypatch.setattr(connections["default"].__class__, "close", closing)
        writer.put(LoggedAttempt(held(job), "one", 1, 0))
        assert closed.wait(10)
        assert writer.is_alive()
