"""The memory in which an executor leaves frames: nothing is lost in it, torn, or out of order."""

from __future__ import annotations

import mmap
import os
import platform
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_ojs.worker.executor.channel import Channel
from django_ojs.worker.executor.process import Executor
from django_ojs.worker.executor.shared import SharedExecutor
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
    """Frames of all sizes, round and round the ring, with a mark now and then."""
    writer, reader = ends
    wanted = [{"n": n, "text": "x" * (n * 37 % 3000)} for n in range(3000)]
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            for n, frame in enumerate(wanted):
                poll(lambda text=text_of(frame): writer.leave(text), 30)  # type: ignore[misc]
                if n % 50 == 0:
                    os.write(theirs, writer.mark().to_bytes(8, "big"))
        finally:
            os._exit(0)
    os.close(theirs)
    found: list[Frame] = []
    places: list[int] = []

    def read() -> bool:
        found.extend(reader.frames())
        if (len(found) - 1) // 50 == len(places):
            # Up to the mark, or behind it already.
            assert len(found) == 50 * len(places) + 1, "a mark was passed by"
            places.append(int.from_bytes(os.read(ours, 8), "big"))
            found.extend(reader.frames_before(places[-1] + 1))
        return len(found) >= len(wanted)

    try:
        poll(read, 30)
    finally:
        os.waitpid(pid, 0)
        os.close(ours)
    assert found == wanted
    assert len(places) == 60


def test_a_reader_stops_at_a_mark_until_it_may_pass(ends: Ends) -> None:
    writer, reader = ends
    writer.leave('{"n":1}')
    first = writer.mark()
    writer.leave('{"n":2}')
    second = writer.mark()
    writer.leave('{"n":3}')
    assert reader.frames() == [{"n": 1}]
    assert reader.frames() == []
    assert list(reader.frames_before(first)) == []
    assert reader.frames() == [], "the mark is not passed yet"
    assert list(reader.frames_before(second)) == [{"n": 2}]
    assert list(reader.frames_before(first + 1)) == [], "that is behind it"
    assert list(reader.frames_before(second + 1)) == []
    assert reader.frames() == [{"n": 3}]
    with pytest.raises(ProtocolError, match="not in the journal"):
        list(reader.frames_before(second + 1000))


def test_what_an_executor_has_left_is_read_after_its_end(ends: Ends) -> None:
    writer, reader = ends
    for n in range(3):
        writer.leave(f'{{"n":{n}}}')
        writer.mark()
    assert list(reader.rest()) == [{"n": 0}, {"n": 1}, {"n": 2}]


def test_a_full_journal_takes_marks_only(ends: Ends) -> None:
    writer, reader = ends
    count = 0
    while writer.leave('{"text":"' + "x" * 100 + '"}'):
        count += 1
    assert 500 < count < 600
    place = writer.mark()
    assert len(list(reader.frames_before(place + 1))) == count
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


@pytest.mark.parametrize(
    "why", ["not wanted", "another processor", "another library", "forbidden", "no memory"]
)
def test_without_one_the_channel_begins_with_the_same_byte(
    why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*given: object) -> int:
        raise PermissionError(given)

    if why == "another processor":
        monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    if why == "another library":
        monkeypatch.delattr(os, "memfd_create")
    if why == "forbidden":
        monkeypatch.setattr(os, "memfd_create", forbidden)
    if why == "no memory":
        monkeypatch.setattr(os, "ftruncate", forbidden)
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


MANY = range(ENOUGH)


def _leave(channel: Channel, lease: str, waiting: int = ENOUGH) -> None:
    if not channel.leave(messages.begin(lease), range(waiting)):
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
    assert not channel.leave(messages.begin("second"), MANY)
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
    while len(seen) < count - 1:
        look()
    assert not channel.leave(messages.begin("small"), MANY), "the last one is not sent yet"
    # Its end goes first.
    channel.send(messages.begin("small"))
    look()
    _leave(channel, "left")
    pool.read_journals()
    assert seen == [*["large"] * count, "small", "left"]


def test_nothing_overtakes_what_takes_several_packets(played: Played) -> None:
    """A result of a megabyte has a packet of its own."""
    pool, child, channel, seen, look = played
    large = {"op": "done", "lease": "large", "text": "x" * (3 << 20)}
    channel.buffer(large)
    sent = threading.Event()

    def send() -> None:
        channel.send(messages.begin("next"))
        assert channel.leave(messages.begin("last"), MANY)
        sent.set()

    thread = threading.Thread(target=send)
    thread.start()
    while not sent.is_set() or len(seen) < 3:
        look()
        pool.read_journals()
    thread.join()
    assert seen == ["large", "next", "last"]
    assert child.phase is Phase.READY


class Interrupted:
    """A socket whose next call is interrupted by a signal just before it is over."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._done = False

    def send(self, data: bytes, flags: int) -> int:
        """Send, then raise; the second time only send."""
        sent = self._end.send(data, flags)
        if not self._done:
            self._done = True
            raise InterruptedError("an alarm of the handler")
        return sent


def test_an_alarm_while_sending_costs_no_order(played: Played) -> None:
    """What was sent then is sent again, as ever."""
    pool, child, channel, seen, look = played
    _leave(channel, "left")
    channel._socket = Interrupted(channel._socket)  # type: ignore[assignment]
    with pytest.raises(InterruptedError):
        channel.send(messages.begin("sent"))
    assert not channel.leave(messages.begin("next"), MANY)
    channel.send(messages.begin("next"))
    _leave(channel, "last")
    look()
    pool.read_journals()
    assert seen == ["left", "sent", "sent", "next", "last"]
    assert child.phase is Phase.READY


class GivenBack(list[int]):
    """Jobs that the wake-up signal gives back between two looks at how many there are."""

    def __len__(self) -> int:
        self.looks = getattr(self, "looks", 0) + 1
        return ENOUGH if self.looks == 1 else 0


def test_jobs_that_were_just_given_back_do_not_count(played: Played) -> None:
    """With none waiting the supervisor would not look for the frame."""
    _, _, channel, seen, look = played
    assert not channel.leave(messages.begin("first"), GivenBack())
    channel.send(messages.begin("first"))
    look()
    assert seen == ["first"]


def test_an_executor_that_leaves_nonsense_is_killed(played: Played) -> None:
    pool, child, channel, seen, _ = played
    assert channel.leave("nonsense", MANY)
    pool.read_journals()
    assert child.phase is Phase.DYING
    assert seen == []


class TakenBetween(deque[Frame]):
    """Frames that the wake-up signal takes between a look at them and the next one taken."""

    def __bool__(self) -> bool:
        found = len(self) > 0
        if found:
            self.interrupt()
        return found

    def interrupt(self) -> None:
        """What the signal does."""


@pytest.mark.parametrize("shared", [False, True])
def test_frames_that_the_wake_up_signal_has_just_taken_are_not_taken_again(shared: bool) -> None:
    ours, theirs = socket.socketpair()
    reader, writer = os.pipe()
    with ours, theirs:
        ours.sendall(b"n")
        executor: Any = Executor(theirs, writer)
        channel = executor._channel
        if shared:
            executor = SharedExecutor(channel, executor._liveness, 2)
        arrived = channel.arrived = TakenBetween([messages.cancel("a lease", "timeout")])
        taken = []
        arrived.interrupt = lambda: taken.append(arrived.popleft())  # type: ignore[method-assign]
        executor._sort()
        assert not len(arrived)
    os.close(reader)
    os.close(writer)
