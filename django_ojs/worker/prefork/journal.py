"""Frames that an executor leaves in memory which it shares with the supervisor (ADR 55).

While it has enough to do, the supervisor need not see them at once: they cost no system call, and are
read from time to time. They survive the executor, however it ends.

Some frames go this way and others through the channel. To keep their order the executor leaves a mark
here before each packet that it sends there; a reader stops at a mark until it has read the packet.
"""

from __future__ import annotations

import mmap
import os
import platform
import socket

from django_ojs.worker.prefork import linux
from django_ojs.worker.prefork.frames import Frame, ProtocolError, parse_array

ENOUGH = 16
"""Jobs that wait in an executor behind the running one: with so many it may leave its frames here."""
LOOK_EVERY = 0.002
"""Seconds between two looks while an executor has so many."""

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
    return linux.LINUX and platform.machine() in _ORDERED


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
        try:
            descriptor = os.memfd_create("journal") if wanted and is_possible() else None
        except OSError:
            descriptor = None  # a sandbox may forbid it
        if descriptor is None:
            channel.sendall(b"-")
            return None
        try:
            os.ftruncate(descriptor, _HEAD + _SIZE)
            made = cls(mmap.mmap(descriptor, _HEAD + _SIZE))
            socket.send_fds(channel, [b"+"], [descriptor])
        finally:
            os.close(descriptor)
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

    def mark(self) -> None:
        """Leave a mark: the next packet comes before what is left from now on."""
        if not self._append(_MARK, 0):
            raise ProtocolError("too many packets were not read")

    def unmark(self) -> None:
        """Take back the mark that was left last, as its packet was not sent."""
        self._own -= len(_MARK)
        self._counts[_WRITTEN] = self._own

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
        left = unread if end < 0 else unread[:end]
        self._pass(len(left))
        return parse_array(b"[" + left[:-1] + b"]") if left else []

    def pass_mark(self) -> None:
        """The packet of the next mark is there. Raises :class:`ProtocolError` if it is not the next."""
        if self._unread()[:1] != _MARK:
            raise ProtocolError("a packet without a mark")
        self._pass(len(_MARK))

    def rest(self) -> list[Frame]:
        """What has been left by an executor that has ended, whether its last packet was sent or not."""
        found = self.frames()
        while self._unread():
            self.pass_mark()
            found += self.frames()
        return found

    def close(self) -> None:
        """Give the memory back."""
        for view in (self._counts, self._ring, self._view):
            view.release()
        self._memory.close()

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
