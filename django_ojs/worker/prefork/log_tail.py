"""The last lines that an attempt has logged, in its executor and in the supervisor."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

MOST_LINES = 200
MOST_BYTES = 32 << 10


class LogTail:
    """Keeps the last ``MOST_LINES`` lines, at most ``MOST_BYTES`` of UTF-8, and counts all."""

    __slots__ = ("_bytes", "count", "lines", "saved")

    def __init__(self) -> None:
        self.lines: deque[str] = deque()
        self._bytes = 0
        self.count = 0
        """How many lines there were, kept or not."""
        self.saved = 0
        """How many of them had been handed over to be stored."""

    def add(self, lines: Sequence[str], count: int | None = None) -> None:
        """Add lines, which are the last ones of ``count``; nothing if they are malformed."""
        size, number = sum(map(_size, lines)), max(len(lines), int(count or 0))
        self.lines.extend(lines)
        self._bytes += size
        self.count += number
        self._trim()

    def put_back(self, lines: Sequence[str], count: int) -> None:
        """Undo :meth:`take`; lines that were added since come behind."""
        self.lines.extendleft(reversed(lines))
        self._bytes += sum(map(_size, lines))
        self.count += count
        self._trim()

    def take(self) -> tuple[list[str], int]:
        """Remove what is kept; returns it, and how many lines there were."""
        lines, count = list(self.lines), self.count
        self.lines.clear()
        self._bytes = self.count = 0
        return lines, count

    def _trim(self) -> None:
        while len(self.lines) > MOST_LINES or self._bytes > MOST_BYTES:
            self._bytes -= _size(self.lines.popleft())


def _size(line: str) -> int:
    return 1 + (len(line) if line.isascii() else len(line.encode()))
