"""The columns that raw statements touch, and how each kind travels to and from a database."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from django_ojs.domain.job import JobRecord
from django_ojs.domain.states import TERMINAL, State


class Kind(StrEnum):
    """What a column holds, whatever the database calls it. JSON is handled as text."""

    UUID = "uuid"
    TEXT = "text"
    INT = "int"
    FLOAT = "float"
    BOOL = "bool"
    TIME = "time"
    JSON = "json"


def _kinds(**named: str) -> dict[str, Kind]:
    return {column: Kind(kind) for kind, columns in named.items() for column in columns.split()}


JOB: Mapping[str, Kind] = _kinds(
    uuid="id lease_id",
    text="state queue type worker_id lease_principal progress_message digest",
    int=(
        "priority attempt max_attempts lease_seq timeout_ms grace_period_ms heartbeat_timeout_ms"
        " total_timeout_ms enqueue_ttl_ms visibility_timeout_ms lease_visibility_ms extended_ms"
        " retry_delay_ms checkpoint_seq"
    ),
    float="progress",
    bool="timeout_explicit heartbeat_explicit heartbeat_armed dead_letter",
    time=(
        "created_at limits_from enqueued_at scheduled_at expires_at started_at heartbeat_at"
        " lease_expires_at deadline_at finished_at"
    ),
    json="retry args meta tags result error errors extra progress_data checkpoint checkpoint_info",
)
ATTEMPT: Mapping[str, Kind] = _kinds(
    uuid="job_id lease_id",
    int="lease_seq attempt",
    text="worker_id principal outcome",
    time="started_at ended_at deadline_at",
    json="error late_report",
)
EVENT: Mapping[str, Kind] = _kinds(
    uuid="id job_id", text="kind job_type queue", time="created_at", json="data"
)


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

JOB_COLUMNS: tuple[str, ...] = JobRecord._fields
assert set(JOB_COLUMNS) == set(JOB)
