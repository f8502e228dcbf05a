"""Frames that an executor leaves in memory which it shares with the supervisor (ADR 55).

While it has enough to do, the supervisor need not see them at once: they cost no system call, and are
read from time to time. They survive the executor, however it ends.

Some frames go this way and others through the channel. To keep their order the executor leaves a mark
here before what it sends there, which names the mark's place before and after: a reader of the journal
stops at a mark, and a reader of the channel reads the journal up to the places that it finds.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import platform
import socket
from collections.abc import Iterator

from django_ojs.worker.prefork import linux
from django_ojs.worker.prefork.frames import Frame, ProtocolError, parse_array

ENOUGH = 16
"""Jobs that wait in an executor behind the running one: with so many it may leave its frames here."""
LOOK_EVERY = 0.002
LOOK_AT_LONG = 0.05
"""Seconds between two looks while an executor has so many, and while the running one is long."""

_SIZE = 1 << 16
_HEAD = 64
_SPARE = 1 << 12
"""Bytes that are kept free of frames, for marks: far more than a channel holds packets."""
_MARK = b"\0"
_WRITTEN, _READ = 0, 1
_ORDERED = ("x86_64", "AMD64")
"""Processors that show what one process has written in the same order to another."""


def is_possible() -> bool:
    """Whether processes can share memory here, and see what is written in the order of writing."""
    return linux.LINUX and hasattr(os, "memfd_create") and platform.machine() in _ORDERED


class Journal:
    """A ring of bytes with one writer, the executor, and one reader, the supervisor.

    Two counters of all bytes that were ever written and read precede it; each side writes its own.
    """

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory
        self._view = memoryview(memory)
        self._counts = self._view[:16].cast("Q")
        self._ring = self._view[_HEAD:]
        self._own = 0
        """What this side has written, or read."""

    @classmethod
    def shared_through(cls, channel: socket.socket, *, wanted: bool = True) -> Journal | None:
        """Make one and send it to the caller of :meth:`received`; ``None`` where it is not possible.

        That is the first byte of the channel in any case.
        """
        made: Journal | None = None
        with contextlib.ExitStack() as opened:
            # A sandbox may forbid it, or there is no memory left.
            with contextlib.suppress(OSError):
                if wanted and is_possible():
                    descriptor = os.memfd_create("journal")
                    opened.callback(os.close, descriptor)
                    os.ftruncate(descriptor, _HEAD + _SIZE)
                    made = cls(mmap.mmap(descriptor, _HEAD + _SIZE))
            if made is None:
                channel.sendall(b"-")
            else:
                socket.send_fds(channel, [b"+"], [descriptor])
        return made

    @classmethod
    def received(cls, channel: socket.socket) -> Journal | None:
        """The one that the other side has made."""
        _, descriptors, _, _ = socket.recv_fds(channel, 1, 1)
        if not descriptors:
            return None
        try:
            return cls(mmap.mmap(descriptors[0], _HEAD + _SIZE))
        finally:
            os.close(descriptors[0])

    # The executor.

    def leave(self, frame: str) -> bool:
        """Leave a frame, JSON text; return False if there is no room for it."""
        return self._append(frame.encode() + b",", _SPARE)

    def mark(self) -> int:
        """Leave a mark: what is sent next comes before what is left from now on. Returns its place."""
        place = self._own
        if not self._append(_MARK, 0):
            raise ProtocolError("too many packets were not read")
        return place

    def _append(self, data: bytes, spare: int) -> bool:
        if self._own - self._counts[_READ] + len(data) > _SIZE - spare:
            return False
        start = self._own % _SIZE
        end = start + len(data)
        if end <= _SIZE:
            self._ring[start:end] = data
        else:
            self._ring[start:] = data[: _SIZE - start]
            self._ring[: end - _SIZE] = data[_SIZE - start :]
        # Last: until then it is not there, whatever becomes of this process.
        self._own += len(data)
        self._counts[_WRITTEN] = self._own
        return True

    # The supervisor.

    def frames(self) -> list[Frame]:
        """What has been left, up to the next mark. Raises :class:`ProtocolError`."""
        unread = self._unread()
        end = unread.find(_MARK)
        return self._taken(unread if end < 0 else unread[:end])

    def frames_before(self, place: int) -> Iterator[Frame]:
        """What has been left before this place, marks or not. Raises :class:`ProtocolError`."""
        while (size := place - self._own) > 0:
            unread = self._unread()
            if size > len(unread):
                raise ProtocolError("a place that is not in the journal")
            yield from self._taken(unread[:size].partition(_MARK)[0])
            if self._own < place:
                self._pass(len(_MARK))

    def rest(self) -> Iterator[Frame]:
        """What has been left by an executor that has ended, whether its last packet was sent or not."""
        return self.frames_before(self._counts[_WRITTEN])

    def close(self) -> None:
        """Give the memory back."""
        for view in (self._counts, self._ring, self._view):
            view.release()
        self._memory.close()

    def _taken(self, left: bytes) -> list[Frame]:
        if not left:
            return []
        self._pass(len(left))
        return parse_array(b"[" + left[:-1] + b"]")

    def _unread(self) -> bytes:
        size = self._counts[_WRITTEN] - self._own
        if not size:
            return b""
        if not 0 < size <= _SIZE:
            raise ProtocolError("not a journal")
        start = self._own % _SIZE
        end = start + size
        if end <= _SIZE:
            return bytes(self._ring[start:end])
        return bytes(self._ring[start:]) + bytes(self._ring[: end - _SIZE])

    def _pass(self, size: int) -> None:
        self._own += size
        self._counts[_READ] = self._own
