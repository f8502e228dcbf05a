"""A job as the public API shows it: values, not text."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Generic, Self, TypeVar, overload
from uuid import UUID

from django_ojs.domain.arguments import split, unmarked
from django_ojs.domain.ids import parse_uuid7
from django_ojs.domain.job import JobRow
from django_ojs.domain.retry import UNLIMITED

T = TypeVar("T")


class _Field(Generic[T]):
    """A column as it is stored."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, record: None, owner: type) -> Self: ...
    @overload
    def __get__(self, record: JobRecord, owner: type) -> T: ...
    def __get__(self, record: JobRecord | None, owner: type) -> Any:
        return self if record is None else self.of(record.row)

    def __set__(self, record: JobRecord, value: object) -> None:
        raise AttributeError(f"{self.name}: a record of a job does not change")

    def of(self, row: JobRow) -> Any:
        """The value in a row."""
        return getattr(row, self.name)


class _Parsed(_Field[T]):
    """A column of JSON, parsed when it is asked for: every time anew, so that it may be changed."""

    def of(self, row: JobRow) -> Any:
        """The value in a row."""
        return row.json(self.name)


class JobRecord:
    """A job as it was when it was read; it does not change.

    ``args`` and ``kwargs`` are what the handler is called with, ``result`` what it returned. ``error``
    is the last error, ``errors`` are those of all attempts, each as OJS describes it (``type``,
    ``message``, ``attempt``, ...). Times are aware, in UTC; limits are milliseconds.
    """

    __slots__ = ("row",)

    id = _Field[UUID]()
    type = _Field[str]()
    state = _Field[str]()
    queue = _Field[str]()
    priority = _Field[int]()
    attempt = _Field[int]()
    max_attempts = _Field[int]()
    created_at = _Field[datetime]()
    enqueued_at = _Field[datetime | None]()
    scheduled_at = _Field[datetime | None]()
    expires_at = _Field[datetime | None]()
    started_at = _Field[datetime | None]()
    heartbeat_at = _Field[datetime | None]()
    deadline_at = _Field[datetime | None]()
    finished_at = _Field[datetime | None]()
    timeout_ms = _Field[int]()
    grace_period_ms = _Field[int]()
    heartbeat_timeout_ms = _Field[int]()
    total_timeout_ms = _Field[int | None]()
    enqueue_ttl_ms = _Field[int | None]()
    attempt_ttl_ms = _Field[int | None]()
    extended_ms = _Field[int]()
    retry_delay_ms = _Field[int | None]()
    worker_id = _Field[str | None]()
    dead_letter = _Field[bool]()
    progress = _Field[float | None]()
    progress_message = _Field[str]()
    unique_key = _Field[str | None]()
    workflow_id = _Field[UUID | None]()
    workflow_step = _Field[int | None]()
    tags = _Parsed[list[str]]()
    retry = _Parsed[dict[str, Any]]()
    result = _Parsed[Any]()
    error = _Parsed[dict[str, Any] | None]()
    errors = _Parsed[list[dict[str, Any]]]()
    progress_data = _Parsed[Any]()
    checkpoint = _Parsed[Any]()

    def __init__(self, row: JobRow) -> None:
        self.row = row

    @property
    def deduplicated(self) -> bool:
        """Whether ``enqueue`` found this job instead of storing a new one."""
        return self.row.deduplicated

    @property
    def args(self) -> list[Any]:
        """The arguments by position."""
        return split(self.row.json("args"), self.row.json("meta"))[0]

    @property
    def kwargs(self) -> dict[str, Any]:
        """The arguments by keyword."""
        return split(self.row.json("args"), self.row.json("meta"))[1]

    @property
    def meta(self) -> dict[str, Any]:
        """What was given as ``meta``, and what extensions have put there."""
        return unmarked(self.row.json("meta"))

    def __eq__(self, other: object) -> bool:
        return self.row == other.row if isinstance(other, JobRecord) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.row)

    def __repr__(self) -> str:
        most = "" if self.max_attempts == UNLIMITED else f" of {self.max_attempts}"
        tried = f", attempt {self.attempt}{most}" if self.attempt else ""
        error = f": {self.error.get('type')}" if self.error else ""
        return f"<JobRecord {self.id} {self.type} {self.state}{tried}{error}>"


JobRef = JobRecord | JobRow | UUID | str
"""A job, or its id."""


def id_of(job: JobRef) -> UUID:
    """The id. Raises :class:`InvalidRequest` for one that is no UUIDv7."""
    return job.id if isinstance(job, JobRecord | JobRow) else parse_uuid7(job, "job")


def shown(rows: Iterable[JobRow]) -> list[JobRecord]:
    """The records of rows."""
    return list(map(JobRecord, rows))
