"""The columns that raw statements use, and their types, from the models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from django.db import models

from django_ojs.domain.job import JobRow
from django_ojs.domain.states import TERMINAL, State
from django_ojs.models import Attempt, Event, Job


class ColumnType(StrEnum):
    """The type of a column on any database. JSON is handled as text."""

    UUID = "uuid"
    TEXT = "text"
    INT = "int"
    FLOAT = "float"
    BOOL = "bool"
    TIME = "time"
    JSON = "json"


_TYPES: Mapping[type[models.Field[Any, Any]], ColumnType] = {
    models.UUIDField: ColumnType.UUID,
    models.CharField: ColumnType.TEXT,
    models.TextField: ColumnType.TEXT,
    models.IntegerField: ColumnType.INT,
    models.FloatField: ColumnType.FLOAT,
    models.BooleanField: ColumnType.BOOL,
    models.DateTimeField: ColumnType.TIME,
    models.JSONField: ColumnType.JSON,
}


def types(model: type[models.Model], names: Iterable[str]) -> dict[str, ColumnType]:
    """What the columns of these names hold, by the fields of the model."""
    found = {}
    for name in names:
        field = model._meta.get_field(name)
        field = getattr(field, "target_field", field)
        found[name] = next(kind for base, kind in _TYPES.items() if isinstance(field, base))
    return found


JOB_COLUMNS: tuple[str, ...] = JobRow._fields
JOB: Mapping[str, ColumnType] = types(Job, JOB_COLUMNS)
JSON_COLUMNS = frozenset(name for name, kind in JOB.items() if kind is ColumnType.JSON)
ATTEMPT: Mapping[str, ColumnType] = types(
    Attempt,
    [
        "job_id",
        "lease_id",
        "lease_seq",
        "attempt",
        "worker_id",
        "principal",
        "outcome",
        "started_at",
        "ended_at",
        "deadline_at",
        "error",
        "late_report",
    ],
)
"""The columns of an attempt, in the order in which rows are inserted."""
EVENT: Mapping[str, ColumnType] = types(
    Event, ["id", "job_id", "kind", "job_type", "queue", "created_at", "data"]
)
"""The columns of an event, in the order in which rows are inserted."""


def among(states: Iterable[State], alias: str = "") -> str:
    """``state IN (...)`` with literals, in the words of the partial indexes.

    Literals, since a planner that does not know a parameter's value cannot use a partial index;
    spelled like the index, since SQLite proves no more than that.
    """
    names = ", ".join(f"'{state.value}'" for state in states)
    return f"{alias}state IN ({names})"


UNTIMED = (State.AVAILABLE, State.PENDING)
"""The states of the index ``ojs_job_untimed``, in its order."""
DUE = (State.SCHEDULED, State.RETRYABLE)
"""The states of the index ``ojs_job_due``, in its order."""
ENDED = tuple(sorted(TERMINAL))
"""The states of the index ``ojs_job_finished``, in its order."""
