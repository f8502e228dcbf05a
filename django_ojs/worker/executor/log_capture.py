"""What handlers log, on its way to the supervisor, which outlives this process (``OJS["LOGS"]``).

The first lines are sent at once: a handler that crashes with the next instruction has left them. One
that logs in a loop sends twenty times a second, each time the last lines only. Nothing here waits for
another thread or for the supervisor: a signal handler or a destructor may log anywhere.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import FrameType

from django_ojs import clock, conf
from django_ojs.domain.jsonvalue import sanitise_text
from django_ojs.domain.printable import one_line
from django_ojs.worker.executor.channel import Channel
from django_ojs.worker.prefork import messages
from django_ojs.worker.prefork.log_tail import LogTail

MOST_CHARACTERS = 2_000
"""Of a message, and of a line of a traceback."""
MOST_LINES = 50
"""Of the beginning of a message, and of the end of a traceback."""
AT_ONCE = 50
PER_SECOND = 20
"""How often lines are sent by themselves: so many times in a row, then so many times a second."""
_formatter = logging.Formatter()


class LoggedLines(LogTail):
    """The lines of one attempt that are still to be sent."""

    __slots__ = ("lease",)

    def __init__(self, lease: str) -> None:
        super().__init__()
        self.lease = lease


class LogCapture(logging.Handler):
    """Takes the records of the job that ``find`` names, of ``level`` and above.

    A handler of the root logger, and of the loggers that do not propagate but have handlers. Where the
    root logger had none, its level becomes ``level``, and warnings still go to stderr as Python does it
    then.
    """

    def __init__(
        self, channel: Channel, level: int, find: Callable[[logging.LogRecord], LoggedLines | None]
    ) -> None:
        super().__init__(level)
        self._channel = channel
        self.find = find
        self._pid = os.getpid()
        # Reentrant, since whoever logs may be interrupted by whoever logs; and never held while another
        # lock is waited for.
        self._changing = threading.RLock()
        self._waiting: set[LoggedLines] = set()
        self._formatting = threading.local()
        self._sends = float(AT_ONCE)
        self._counted_at = clock.boottime()

    def createLock(self) -> None:
        """No lock around :meth:`emit`, which runs code of others where it formats arguments."""
        self.lock = None

    def handle(self, record: logging.LogRecord) -> bool:
        """Take a record."""
        self.emit(record)
        return True

    @classmethod
    def if_wanted(
        cls, channel: Channel, find: Callable[[logging.LogRecord], LoggedLines | None]
    ) -> LogCapture | None:
        """One for ``OJS["LOGS"]``, if that is set."""
        level = conf.current().logs
        return None if level is None else cls(channel, getattr(logging, level), find)

    def _attach(self) -> None:
        """Add this to the loggers, unless it is there; the project may have configured them again."""
        root = logging.getLogger()
        if self in root.handlers:
            return
        if not root.handlers:
            root.setLevel(min(root.level, self.level))
        root.addHandler(self)
        for logger in list(root.manager.loggerDict.values()):
            if isinstance(logger, logging.Logger) and not logger.propagate and _writes(logger):
                logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record of the job, and send it if it may be sent now."""
        if logging.root.handlers == [self]:
            self._show(record)
        if os.getpid() != self._pid or getattr(self._formatting, "on", False):
            # A process that the handler has forked, or an argument that logs while it is formatted.
            return
        self._formatting.on = True
        try:
            kept = self.find(record)
            if kept is not None:
                self._keep(kept, list(lines_of(record)))
        except Exception as error:
            if _is_of_signal(error):
                raise
        finally:
            self._formatting.on = False

    def _keep(self, kept: LoggedLines, lines: list[str]) -> None:
        with self._changing:
            kept.add(lines)
            self._waiting.add(kept)
            if not self._may_send():
                return
        self._send_waiting()

    def _may_send(self) -> bool:
        now = clock.boottime()
        self._sends = min(AT_ONCE, self._sends + (now - self._counted_at) * PER_SECOND)
        self._counted_at = now
        if self._sends < 1:
            return False
        self._sends -= 1
        return True

    def send_waiting(self) -> None:
        """Send what is still to be sent, as far as it can be without waiting. From another thread than
        the main one.
        """
        with suppress(Exception):
            self._send_waiting()

    def _send_waiting(self) -> None:
        while True:
            with self._changing:
                if not self._waiting:
                    return
                kept = self._waiting.pop()
                lines, count = kept.take()
            if count and not self._channel.offer(messages.log(kept.lease, lines, count)):
                with self._changing:
                    kept.put_back(lines, count)
                    self._waiting.add(kept)
                return

    def begin(self, lease: str) -> LoggedLines:
        """An attempt begins: where its lines come."""
        self._attach()
        return LoggedLines(lease)

    def end(self, kept: LoggedLines) -> None:
        """The attempt has ended: its last lines are sent with its outcome. Main thread only."""
        with self._changing:
            self._waiting.discard(kept)
            lines, count = kept.take()
        if count:
            self._channel.buffer(messages.log(kept.lease, lines, count))

    def _show(self, record: logging.LogRecord) -> None:
        """Show a record that has no other handler as if this were none either."""
        last = logging.lastResort
        if last is None or record.levelno < last.level:
            return
        logger: logging.Logger | None = logging.getLogger(record.name)
        while logger is not None:
            if any(handler is not self for handler in logger.handlers):
                return
            logger = logger.parent
        last.handle(record)


def lines_of(record: logging.LogRecord) -> Iterator[str]:
    """A record as lines of plain text; all but the first are indented."""
    at = time.strftime("%H:%M:%S", time.localtime(record.created))
    first, *more = _cut(_message(record)).split("\n")
    yield _plain(f"{at}.{int(record.msecs):03d} {record.levelname} {record.name}: {first}")
    if len(more) > MOST_LINES:
        more[MOST_LINES:] = [f"… ({len(more)} lines)"]
    for line in [*more, *_below(record)]:
        yield "    " + _plain(_cut(line))


def _below(record: logging.LogRecord) -> list[str]:
    """The end of the traceback of a record, and its stack, if there is one."""
    text = record.exc_text or ""
    if record.exc_info and not text:
        text = _formatter.formatException(record.exc_info)
    if record.stack_info:
        text += f"\n{record.stack_info}"
    if not text:
        return []
    lines = text.strip("\n").split("\n")
    kept = lines[-MOST_LINES:]
    return kept if len(kept) == len(lines) else [f"… ({len(lines)} lines)", *kept]


def _message(record: logging.LogRecord) -> str:
    """The message of a record, also if its arguments do not fit."""
    try:
        return record.getMessage()
    except Exception as error:
        if _is_of_signal(error):
            raise
        text = record.msg if isinstance(record.msg, str) else f"<{type(record.msg).__name__}>"
        return f"{text} (not formatted: {type(error).__name__})"


def _is_of_signal(error: Exception) -> bool:
    """Whether a signal handler has raised this, which is for what it has interrupted: such a handler
    gets the frame of that as an argument.
    """
    for frame, _ in traceback.walk_tb(error.__traceback__):
        for given in frame.f_locals.values():
            if any(isinstance(one, FrameType) for one in (given if type(given) is tuple else (given,))):
                return True
    return False


def _cut(text: str) -> str:
    if len(text) <= MOST_CHARACTERS:
        return text
    return f"{text[:MOST_CHARACTERS]}… ({len(text)} characters)"


def _plain(text: str) -> str:
    return text if text.isprintable() else one_line(sanitise_text(text, 1 << 20))


def _writes(logger: logging.Logger) -> bool:
    return any(not isinstance(handler, logging.NullHandler) for handler in logger.handlers)
