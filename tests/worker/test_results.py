"""What a handler may return: JSON, and what Django writes as JSON."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from django.utils.functional import lazystr

from django_ojs.domain.errors import InvalidRequest, TooLarge
from django_ojs.domain.jsonvalue import sanitise_text
from django_ojs.worker.executor.invoke import failure_of
from django_ojs.worker.executor.results import result_text
from django_ojs.worker.prefork.frames import text_of

ID = UUID("019a8d3e-0000-7000-8000-000000000000")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        ({"a": [1, 2.5, "x", None, True]}, '{"a":[1,2.5,"x",null,true]}'),
        (datetime(2026, 11, 22, 8, 30, tzinfo=UTC), '"2026-11-22T08:30:00Z"'),
        (date(2026, 11, 22), '"2026-11-22"'),
        (time(8, 30), '"08:30:00"'),
        (timedelta(minutes=5), '"P0DT00H05M00S"'),
        (ID, f'"{ID}"'),
        (Decimal("1.10"), '"1.10"'),
        (lazystr("later"), '"later"'),
        ({"rows": ({"id": ID}, [Decimal(2)])}, f'{{"rows":[{{"id":"{ID}"}},["2"]]}}'),
    ],
)
def test_what_django_writes_is_stored(value: Any, text: str | None) -> None:
    assert result_text(value) == text


def endless() -> list[Any]:
    """A list that holds itself, and something to convert."""
    made: list[Any] = [ID]
    made.append(made)
    return made


@pytest.mark.parametrize(
    ("value", "path", "words"),
    [
        ({"rows": [ID, {1, 2}]}, "result.rows[1]", "not set"),
        ([object()], "result[0]", "not object"),
        (time(8, 30, tzinfo=UTC), "result", "not time"),
        ({ID: 1}, "result", "strings as keys"),
        ({"a": b"x", "b": ID}, "result.a", "not bytes"),
        (endless(), "result", "nested deeper"),
    ],
)
def test_the_rest_is_refused_by_its_path(value: Any, path: str, words: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        result_text(value)
    assert refused.value.field.startswith(path)
    assert words in str(refused.value)


def test_the_limit_is_that_of_the_text() -> None:
    with pytest.raises(TooLarge):
        result_text([ID] * 30_000)
    assert len(json.loads(result_text([ID] * 20_000) or "")) == 20_000


@pytest.mark.parametrize("own", ["payment.\udcff", "a\x00b", "x" * 100_000])
def test_the_name_that_an_error_gives_itself_can_be_reported(own: str) -> None:
    """A frame that cannot be written would end the process, and the attempt with a crash."""

    class OwnError(Exception):
        ojs_error_type = own

    failure = failure_of(OwnError("no"), None)
    assert len(text_of(failure).encode()) < 10_000
    assert failure["type"] == sanitise_text(own, 255)
