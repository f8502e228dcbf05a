"""Logging of ``runworker`` and ``reap_timeouts``: formats and handler."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from django.core.management.base import CommandParser

from django_ojs.domain.printable import lines
from django_ojs.observability.logs import JSONFormatter

LOGGER = "django_ojs"
FORMATS = ("text", "json")
_LEVELS = {0: logging.WARNING, 1: logging.INFO}


class TextFormatter(logging.Formatter):
    """Log lines for a terminal: time, level, message, with control characters escaped."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    _time = (0.0, "")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        """The time of the record, formatted once for the records of one commit, which share it."""
        if self._time[0] != record.created:
            self._time = (record.created, super().formatTime(record, datefmt))
        return self._time[1]

    def format(self, record: logging.LogRecord) -> str:
        """The record, with its traceback below it."""
        return lines(super().format(record))

    def text(self, messages: Sequence[tuple[int, str]], end: str) -> str:
        """Messages of this moment with their levels, each as a record of it would be formatted."""
        time = self.formatTime(logging.makeLogRecord({}))
        before = {level: f"{time} {logging.getLevelName(level)} " for level, _ in messages}
        return "".join([f"{before[level]}{lines(message)}{end}" for level, message in messages])


class LineHandler(logging.StreamHandler[Any]):
    """Writes the lines of one commit at once: every write may switch to another thread."""

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self._lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Buffer the record's line, and write the buffer unless more records follow at once."""
        try:
            try:
                self._lines.append(self.format(record) + self.terminator)
            finally:
                if not getattr(record, "more_follow", False):
                    self.flush()
        except Exception:
            self.handleError(record)

    def takes_text(self, level: int) -> bool:
        """Whether a record of this level would be written as its message, after time and level."""
        return level >= self.level and isinstance(self.formatter, TextFormatter)

    def write_lines(self, lines: Sequence[tuple[int, str]]) -> None:
        """Write messages of one moment, each with its level, as :meth:`emit` would."""
        assert isinstance(self.formatter, TextFormatter)
        text = self.formatter.text(lines, self.terminator)
        with self.lock or nullcontext():
            self._lines.append(text)
            self.flush()

    def flush(self) -> None:
        """Write the buffer; called at the end of the process too."""
        with self.lock or nullcontext():
            if self._lines:
                text = "".join(self._lines)
                self._lines.clear()
                self.stream.write(text)
            super().flush()


def log_format(text: str) -> str:
    """One of the formats. Raises ``ValueError``."""
    if text not in FORMATS:
        raise ValueError(text)
    return text


def add_log_format(parser: CommandParser, default: str | None = None) -> None:
    parser.add_argument(
        "--log-format",
        choices=FORMATS,
        default=default,
        help="write log lines to stderr in this form, whatever LOGGING says; default: text, "
        "where LOGGING has no handler for django_ojs",
    )


def set_up_logging(stream: Any, verbosity: int, form: str | None) -> None:
    """Write log lines to ``stream``: if a format is named, or the project has no handler for them.

    A handler of the project may be that of the root logger. With a format named the lines go to the
    stream only.
    """
    logger = logging.getLogger(LOGGER)
    if form is None and logger.hasHandlers():
        return
    if form is not None:
        logger.handlers.clear()
        logger.propagate = False
    handler = LineHandler(stream)
    handler.setFormatter(JSONFormatter() if form == "json" else TextFormatter())
    logger.addHandler(handler)
    logger.setLevel(_LEVELS.get(verbosity, logging.DEBUG))
