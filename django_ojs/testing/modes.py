"""What becomes of the jobs that the code under test enqueues: kept, run at once, or recorded only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from datetime import datetime
from types import TracebackType
from typing import Any
from unittest import mock

from django.db import transaction

from django_ojs.domain.job import JobRow
from django_ojs.services import enqueue as enqueue_service
from django_ojs.services.workflows import create, starting
from django_ojs.store import selectors
from django_ojs.testing import recorded
from django_ojs.testing.committing import is_in_block, opened_connections
from django_ojs.testing.draining import drain, is_draining
from django_ojs.testing.job_clock import without_database

MODES = ("manual", "inline", "fake")
_insert = enqueue_service.insert


def mode(name: str, **options: Any) -> AbstractContextManager[Any]:
    """The block of a mode. Raises ``ValueError`` for an unknown one."""
    if name not in MODES:
        raise ValueError(f"{name!r} is no mode of django_ojs.testing: one of {', '.join(MODES)}")
    if name == "manual":
        return nullcontext()
    return inline(**options) if name == "inline" else fake(**options)


@contextmanager
def inline(*, raise_failures: bool = False) -> Iterator[None]:
    """In the block, :func:`drain` what was enqueued, at once or when the ``atomic()`` block around it
    ends, of whatever database.

    The record that ``enqueue`` returns is that of the job after it has run. Scheduled jobs and retries
    wait. ``raise_failures`` as for :func:`drain`.
    """
    waiting: list[bool] = []

    def run() -> None:
        if waiting and not is_draining() and not any(map(is_in_block, opened_connections())):
            try:
                drain(raise_failures=raise_failures)
            finally:
                waiting.clear()

    def insert(records: list[JobRow], *, now: datetime, using: str) -> list[JobRow]:
        stored = _insert(records, now=now, using=using)
        waiting.append(True)
        run()
        found = selectors.jobs([job.id for job in stored], using=using)
        return [found.get(job.id, job) for job in stored]

    leave = transaction.Atomic.__exit__

    def left(
        block: transaction.Atomic,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        leave(block, kind, error, trace)
        run()

    with _inserting(insert), mock.patch.object(transaction.Atomic, "__exit__", left):
        yield


@contextmanager
def fake() -> Iterator[None]:
    """In the block, record jobs instead of storing them: no database is needed, and none of them runs.

    :func:`enqueued` and the assertions see what was recorded. Workflows need the database
    (``RuntimeError``), and so does ``enqueue_on_commit``.
    """

    def insert(records: list[JobRow], *, now: datetime, using: str) -> list[JobRow]:
        recorded.add(records)
        return records

    def refuse(*args: Any, **options: Any) -> Any:
        raise RuntimeError("a workflow cannot be enqueued in the mode 'fake': it needs the database")

    refusing = mock.patch.object(create, "_create", refuse)
    with recorded.recording(), _inserting(insert), without_database(), refusing:
        yield


@contextmanager
def _inserting(insert: Any) -> Iterator[None]:
    """Have jobs inserted by another function, wherever they come from."""
    with ExitStack() as stack:
        for module in _inserters():
            stack.enter_context(mock.patch.object(module, "insert", insert))
        yield


def _inserters() -> Sequence[Any]:
    return (enqueue_service, starting)
