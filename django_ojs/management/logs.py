"""Logging of ``runworker`` and ``reap_timeouts``: formats and handler."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from typing import Any

from django.core.management.base import CommandParser

from django_ojs.domain.printable import lines
from django_ojs.observability.logs import JSONFormatter

LOGGER = "django_ojs"
FORMATS = ("text", "json")
_LEVELS = {0: logging.WARNING, 1: logging.INFO}


class TextFormatter(logging.Formatter):
    """Log lines for a terminal, with control characters escaped."""

    _time = (0.0, "")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        """The time of the record, formatted once for the records of one commit, which share it."""
        if self._time[0] != record.created:
            self._time = (record.created, super().formatTime(record, datefmt))
        return self._time[1]

    def format(self, record: logging.LogRecord) -> str:
        """The record, with its traceback below it."""
        return lines(super().format(record))


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
    plain = TextFormatter("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(JSONFormatter() if form == "json" else plain)
    logger.addHandler(handler)
    logger.setLevel(_LEVELS.get(verbosity, logging.DEBUG))
