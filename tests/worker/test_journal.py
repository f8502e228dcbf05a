"""The memory in which an executor leaves frames: nothing is lost in it, torn, or out of order."""

from __future__ import annotations

import mmap
import os
import platform
import selectors
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_ojs.worker.executor.channel import Channel
from django_ojs.worker.prefork import journal as module
from django_ojs.worker.prefork import messages
from django_ojs.worker.prefork.child import Child, Phase
from django_ojs.worker.prefork.frames import Frame, ProtocolError, text_of
from django_ojs.worker.prefork.journal import ENOUGH, Journal
from django_ojs.worker.prefork.pool import Pool
from django_ojs.worker.prefork.zygote import SpawnServer
from tests.support import not_none, poll

pytestmark = pytest.mark.skipif(not module.is_possible(), reason="processes share no memory here")
Ends = tuple[Journal, Journal]


@pytest.fixture
def ends() -> Iterator[Ends]:
    """The ends of the executor and of the supervisor."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        reader = not_none(Journal.shared_through(ours))
        writer = not_none(Journal.received(theirs))
        yield writer, reader
        reader.close()
        writer.close()


def test_frames_come_in_order_and_once(ends: Ends) -> None:
    writer, reader = ends
    assert reader.frames() == []
    assert writer.leave('{"n":1}')
    assert writer.leave('{"n":"ä"}')
    assert reader.frames() == [{"n": 1}, {"n": "ä"}]
    assert reader.frames() == []


def test_another_process_writes_while_this_one_reads(ends: Ends) -> None:
    """Frames of all sizes, round and round the ring; a packet now and then, which is a mark here."""
    writer, reader = ends
    wanted = [{"n": n, "text": "x" * (n * 37 % 3000)} for n in range(3000)]
    pid = os.fork()
    if pid == 0:
        try:
            for n, frame in enumerate(wanted):
                poll(lambda text=text_of(frame): writer.leave(text), 30)  # type: ignore[misc]
                if n % 50 == 0:
                    writer.mark()
        finally:
            os._exit(0)
    found: list[Frame] = []
    marks = 0

    def read() -> bool:
        nonlocal marks
        found.extend(reader.frames())
        if marks <= len(found) - 1 and (len(found) - 1) % 50 == 0 and len(found) // 50 == marks:
            reader.pass_mark()
            marks += 1
        return len(found) >= len(wanted)

    try:
        poll(read, 30)
    finally:
        os.waitpid(pid, 0)
    assert found == wanted
    assert marks == 60


def test_a_reader_stops_at_a_mark_until_it_has_the_packet(ends: Ends) -> None:
    writer, reader = ends
    writer.leave('{"n":1}')
    writer.mark()
    writer.leave('{"n":2}')
    writer.mark()
    assert reader.frames() == [{"n": 1}]
    assert reader.frames() == []
    reader.pass_mark()
    assert reader.frames() == [{"n": 2}]
    writer.unmark()
    writer.leave('{"n":3}')
    assert reader.frames() == [{"n": 3}]
    with pytest.raises(ProtocolError, match="without a mark"):
        reader.pass_mark()


def test_what_an_executor_has_left_is_read_after_its_end(ends: Ends) -> None:
    writer, reader = ends
    for n in range(3):
        writer.leave(f'{{"n":{n}}}')
        writer.mark()
    assert reader.rest() == [{"n": 0}, {"n": 1}, {"n": 2}]


def test_a_full_journal_takes_marks_only(ends: Ends) -> None:
    writer, reader = ends
    count = 0
    while writer.leave('{"text":"' + "x" * 100 + '"}'):
        count += 1
    assert 500 < count < 600
    writer.mark()
    assert len(reader.frames()) == count
    reader.pass_mark()
    assert writer.leave("{}")
    assert not writer.leave('"' + "x" * 70_000 + '"')
    assert reader.frames() == [{}]


@pytest.mark.parametrize("text", ["[1", "1", "[]", '{"a":1},2'])
def test_what_is_no_frame_is_refused(ends: Ends, text: str) -> None:
    writer, reader = ends
    writer.leave(text)
    with pytest.raises(ProtocolError):
        reader.frames()


def test_counts_that_cannot_be_are_refused() -> None:
    memory = mmap.mmap(-1, module._HEAD + module._SIZE)
    reader = Journal(memory)
    memory[0:8] = (1 << 40).to_bytes(8, "little")
    with pytest.raises(ProtocolError, match="not a journal"):
        reader.frames()
    reader.close()


@pytest.mark.parametrize("why", ["not wanted", "another processor", "forbidden"])
def test_without_one_the_channel_begins_with_the_same_byte(
    why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(name: str) -> int:
        raise PermissionError(name)

    if why == "another processor":
        monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    if why == "forbidden":
        monkeypatch.setattr(os, "memfd_create", forbidden)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert Journal.shared_through(ours, wanted=why != "not wanted") is None
        ours.sendall(b"what follows")
        assert Journal.received(theirs) is None
        assert theirs.recv(100) == b"what follows"


# With the channel.


class Kept(SpawnServer):
    """Starts nothing, and keeps the executor's end of the channel."""

    def spawn(self, control: socket.socket, channel: socket.socket, liveness: int) -> None:
        """Keep a copy of it."""
        self.channel = channel.dup()


Played = tuple[Pool, Child, Channel, list[Any], Callable[[], None]]


@pytest.fixture
def played() -> Iterator[Played]:
    """A pool, its executor, played by the test, what the pool has seen, and a look at its sockets."""
    server, seen = Kept(), list[Any]()
    with selectors.DefaultSelector() as selector:
        pool = Pool(
            selector,
            server,
            on_frame=lambda child, frame: seen.append(frame.get("lease", frame["op"])),
            on_gone=lambda *_: None,
        )
        child = pool.spawn()
        child.phase = Phase.READY
        channel = Channel(server.channel, lambda: None, Journal.received(server.channel))

        def look() -> None:
            for key, mask in selector.select(0):
                if key.fileobj is child.channel:
                    key.data[0](key.data[1], mask)

        yield pool, child, channel, seen, look
        for end in (child.channel, child.control, server.channel):
            end.close()
        os.close(child.liveness)


def _leave(channel: Channel, lease: str, waiting: int = ENOUGH) -> None:
    if not channel.leave(messages.begin(lease), waiting):
        channel.send(messages.begin(lease))


@pytest.mark.parametrize("first", ["the journal", "the channel"])
def test_frames_of_both_ways_come_in_the_order_of_sending(played: Played, first: str) -> None:
    pool, _, channel, seen, look = played
    steps = (pool.read_journals, look)
    sent = []
    for round_ in range(20):
        for lease, waiting in (("a", ENOUGH), ("b", 0), ("c", ENOUGH), ("d", 1), ("e", 99)):
            _leave(channel, f"{lease}{round_}", waiting)
            sent.append(f"{lease}{round_}")
        for step in steps if first == "the journal" else reversed(steps):
            step()
    for step in steps * 2:
        step()
    assert seen == sent


def test_a_frame_that_waits_in_the_process_is_not_overtaken(played: Played) -> None:
    pool, _, channel, seen, look = played
    channel.buffer(messages.begin("first"))
    assert not channel.leave(messages.begin("second"), ENOUGH)
    channel.send(messages.begin("second"))
    pool.read_journals()
    assert seen == []
    look()
    assert seen == ["first", "second"]


def test_what_could_not_be_offered_leaves_no_mark(played: Played) -> None:
    pool, child, channel, seen, look = played
    child.channel.setblocking(False)
    large = {"op": "log", "lease": "large", "text": "x" * 1000}
    count = 0
    while channel.offer(large):
        count += 1
    assert count
    while len(seen) < count:
        look()
    # The end of the last one that was offered goes first.
    channel.send(messages.begin("small"))
    look()
    _leave(channel, "left")
    pool.read_journals()
    assert seen == [*["large"] * count, "small", "left"]


def test_an_executor_that_leaves_nonsense_is_killed(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool, child, channel, seen, _ = played
    assert channel.leave("nonsense", ENOUGH)
    pool.read_journals()
    assert child.phase is Phase.DYING
    assert seen == []
