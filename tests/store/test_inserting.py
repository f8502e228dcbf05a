"""Rows arrive as they were given, one or many, shared or different, whatever their text looks like."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from django_ojs import clock
from django_ojs.api import enqueue_many, get
from django_ojs.models import Attempt
from django_ojs.store import inserting
from django_ojs.store.dialect import dialect

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("ojs_db")]

ODD = ["", "NULL", "null", "{}", "[]", "{1,2}", "a,b", '"', "\\", '\\"', "'", "%s", "%", "ü 🎈"]


def attempt(worker: str | None, number: int, **changes: Any) -> tuple[Any, ...]:
    now = clock.now("default")
    row = {
        "job_id": clock.new_id(),
        "lease_id": clock.new_lease(),
        "lease_seq": number,
        "attempt": 1,
        "worker_id": worker,
        "principal": worker,
        "outcome": "failed",
        "started_at": now,
        "ended_at": now,
        "deadline_at": None,
        "error": None,
        "late_report": None,
    } | changes
    return tuple(row[column] for column in inserting._ATTEMPT_COLUMNS)


def stored() -> set[tuple[Any, ...]]:
    return set(Attempt.objects.values_list(*inserting._ATTEMPT_COLUMNS[:-2]))


def without_json(rows: list[tuple[Any, ...]]) -> set[tuple[Any, ...]]:
    return {row[:-2] for row in rows}


def test_text_of_any_look_arrives_in_many_rows() -> None:
    rows = [attempt(worker, number) for number, worker in enumerate([*ODD, None])]
    inserting.attempts(rows, using="default")
    assert stored() == without_json(rows)


@pytest.mark.parametrize("worker", [*ODD, None])
def test_text_of_any_look_arrives_in_one_row_and_in_all_alike(worker: str | None) -> None:
    rows = [attempt(worker, number) for number in range(3)]
    inserting.attempts(rows[:1], using="default")
    inserting.attempts(rows[1:], using="default")
    assert stored() == without_json(rows)


def test_a_column_may_be_null_in_some_rows() -> None:
    later = clock.now("default") + timedelta(seconds=1)
    rows = [
        attempt("w", 0),
        attempt("w", 1, deadline_at=later, error=json.dumps({"message": '"\\'})),
        attempt(None, 0, error="null"),
    ]
    inserting.attempts(rows, using="default")
    assert stored() == without_json(rows)
    errors = Attempt.objects.order_by("id").values_list("error", flat=True)
    assert list(errors) == [None, {"message": '"\\'}, None]


def test_arguments_of_any_look_arrive() -> None:
    jobs = enqueue_many("test.job", [[text, {text: text}] for text in ODD])
    assert [get(job).args for job in jobs] == [[text, {text: text}] for text in ODD]


def test_the_texts_of_statements_are_not_kept_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inserting, "_REMEMBERED", 1)
    for number in range(3):
        inserting.attempts([attempt(None, number)], using="default")
        inserting.attempts([attempt("w", number)], using="default")
    assert len(dialect("default").statements) <= 1
    assert Attempt.objects.count() == 6
