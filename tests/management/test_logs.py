"""Log lines of the commands, as they reach a stream."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest

from django_ojs.management.logs import LineHandler


class Stream(io.StringIO):
    """Counts its writes."""

    writes = 0

    def write(self, text: str) -> int:
        """One more, if there is anything to write."""
        self.writes += bool(text)
        return super().write(text)


@pytest.fixture
def stream() -> Stream:
    return Stream()


@pytest.fixture
def handler(stream: Stream) -> Iterator[LineHandler]:
    made = LineHandler(stream)
    yield made
    made.close()


def record(message: str, *values: object, more: bool = False) -> logging.LogRecord:
    made = logging.makeLogRecord({"msg": message, "args": values})
    made.more_follow = more
    return made


def test_lines_of_one_commit_are_one_write(stream: Stream, handler: LineHandler) -> None:
    handler.handle(record("one", more=True))
    handler.handle(record("two", more=True))
    assert stream.getvalue() == ""
    handler.handle(record("three"))
    assert stream.getvalue() == "one\ntwo\nthree\n"
    assert stream.writes == 1


def test_a_record_of_somebody_else_takes_them_along(stream: Stream, handler: LineHandler) -> None:
    handler.handle(record("one", more=True))
    handler.handle(logging.makeLogRecord({"msg": "elsewhere"}))
    assert stream.getvalue() == "one\nelsewhere\n"


def test_nothing_is_left_at_the_end_of_the_process(stream: Stream, handler: LineHandler) -> None:
    handler.handle(record("one", more=True))
    handler.flush()
    assert stream.getvalue() == "one\n"


def test_a_line_that_cannot_be_made_holds_back_no_other(
    stream: Stream, handler: LineHandler, capsys: pytest.CaptureFixture[str]
) -> None:
    handler.handle(record("one", more=True))
    handler.handle(record("%d", "no number"))
    assert stream.getvalue() == "one\n"
    assert "TypeError" in capsys.readouterr().err
