"""Run a handler for one attempt, without a job in the database."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django_ojs import clock, conf
from django_ojs.domain import lifecycle, stored_envelope
from django_ojs.domain.admission import admit
from django_ojs.domain.arguments import split
from django_ojs.domain.envelope import Envelope, from_call
from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.job import JobRow
from django_ojs.domain.jsonvalue import encode
from django_ojs.domain.states import State
from django_ojs.domain.timeouts import soft_deadline
from django_ojs.handlers import registry
from django_ojs.handlers.context import MAX_CHECKPOINT_BYTES, JobContext
from django_ojs.handlers.exceptions import SoftStop
from django_ojs.handlers.registry import JobHandler
from django_ojs.services.job_defaults import resolve_defaults
from django_ojs.testing.committing import as_by_worker, is_verdict_of_test
from django_ojs.testing.draining import call, failure_to_report
from django_ojs.testing.job_clock import without_database
from django_ojs.testing.job_types import type_of
from django_ojs.testing.watched import WatchedContext
from django_ojs.worker.executor.results import result_text


@dataclass(frozen=True, slots=True)
class Performed:
    """What became of an attempt that :func:`perform` has run.

    ``state`` is the state of the job after it, ``result`` what the handler returned as it is read from
    JSON, ``error`` what it raised, ``retry_in`` when a ``retryable`` one would be due. The others are
    what it did with its context: ``progress`` as (fraction, message, data), ``checkpoints`` saved,
    ``heartbeats`` sent by hand, ``extended`` by how much in all, and ``added`` to its workflow as
    (type, args, kwargs).
    """

    state: str
    result: Any = None
    error: BaseException | None = None
    retry_in: timedelta | None = None
    progress: tuple[tuple[float, str, Any], ...] = ()
    checkpoints: tuple[Any, ...] = ()
    heartbeats: int = 0
    extended: timedelta = timedelta(0)
    added: tuple[tuple[str, list[Any], dict[str, Any]], ...] = ()


@dataclass(slots=True)
class RecordingSupervisor:
    """Keeps what a handler asks of its worker, and grants all of it."""

    job: JobRow
    parent_results: Sequence[Any] = ()
    reported: list[tuple[float, str, Any]] = field(default_factory=list)
    saved: list[Any] = field(default_factory=list)
    beats: int = 0
    members: list[tuple[str, list[Any], dict[str, Any]]] = field(default_factory=list)

    def heartbeat(self) -> None:
        """Count a sign of life."""
        self.beats += 1

    def progress(self, fraction: float, message: str, data: str | None) -> None:
        """Keep the progress."""
        self.reported.append((fraction, message, None if data is None else json.loads(data)))

    def checkpoint(self, state: str) -> None:
        """Keep the checkpoint."""
        self.saved.append(json.loads(state))

    def extend(self, by_ms: int) -> datetime:
        """Grant the time."""
        self.job = self.job._replace(extended_ms=self.job.extended_ms + by_ms)
        deadline = soft_deadline(self.job)
        assert deadline is not None
        return deadline

    def results(self, after: int) -> tuple[list[Any], int | None]:
        """Give the results that the test has given."""
        return list(self.parent_results), None

    def add(self, call: dict[str, Any]) -> str:
        """Keep the new member of the workflow."""
        envelope = stored_envelope.load(call).envelope
        meta = json.loads(envelope.meta_json)
        self.members.append((envelope.type, *split(json.loads(envelope.args_json), meta)))
        return str(clock.new_id())


class RecordingContext(WatchedContext):
    """A context that stops its handler at the n-th use."""

    _uses_left: int | None = None
    _stop_reason = "timeout"

    def _before_use(self) -> None:
        if self._uses_left is None or self._reason is not None:
            return
        self._uses_left -= 1
        if self._uses_left <= 0 and self._stop(self._stop_reason):
            raise SoftStop(self._stop_reason)


def perform(
    job: Any,
    *args: Any,
    kwargs: Mapping[str, Any] | None = None,
    attempt: int = 1,
    max_attempts: int | None = None,
    checkpoint: Any = None,
    meta: Mapping[str, Any] | None = None,
    parent_results: Iterable[Any] | None = None,
    stop_after: int | None = None,
    stop_reason: str = "timeout",
) -> Performed:
    """Call the handler of ``job`` as a worker would, and return what became of the attempt.

    ``job`` is a handler, a task or a job type with a handler here. The arguments are checked and
    encoded as by ``enqueue``. No job is stored, and nothing is read from the database unless the
    handler does. ``attempt`` counts from 1, ``checkpoint`` is what an earlier attempt saved,
    ``parent_results`` what the job has waited for in its workflow. With ``stop_after=n`` the n-th use
    of the context raises ``SoftStop(stop_reason)``. Execution middleware runs. What the handler raises
    is in the answer, not raised; the state follows from its retry policy.

    Raises ``TypeError`` for arguments that do not fit, :class:`HandlerNotFound`, and
    :class:`InvalidRequest` for numbers of attempts below 1.
    """
    for name, number in (("attempt", attempt), ("max_attempts", max_attempts)):
        if number is not None and number < 1:
            raise InvalidRequest(name, "must be at least 1")
    using = conf.current().database
    registry.find(type_of(job))
    with without_database():
        now = clock.now(using)
        envelope = _envelope(job, args, kwargs or {}, now)
        record = admit(envelope, resolve_defaults(envelope), job_id=clock.new_id(), now=now)
        record = record._replace(
            attempt=attempt - 1,
            state=State.AVAILABLE,
            max_attempts=max_attempts or record.max_attempts,
            meta=json.dumps({**record.json("meta"), **(meta or {})}),
            checkpoint=None if checkpoint is None else _stored(checkpoint),
            workflow_id=None if parent_results is None else clock.new_id(),
        )
        running = lifecycle.claim(
            record,
            lease_id=clock.new_lease(),
            worker_id="test",
            beats=True,
            visibility_ms=None,
            now=now,
        ).written
        supervisor = RecordingSupervisor(running, list(parent_results or ()))
        deadline = soft_deadline(running)
        assert deadline is not None
        context = RecordingContext._of(supervisor, running, deadline)
        context._uses_left, context._stop_reason = stop_after, stop_reason
    result, error = None, None
    try:
        # Even to make a step of a workflow takes a time.
        with without_database():
            result = result_text(as_by_worker(lambda: call(context)))
    except BaseException as raised:
        if is_verdict_of_test(raised):
            raise
        error = raised
    with without_database():
        ended = _ended(supervisor, context, result, error, clock.now(using))
    return Performed(
        state=str(ended.state),
        result=ended.json("result"),
        error=error,
        retry_in=_retry_in(ended, using),
        progress=tuple(supervisor.reported),
        checkpoints=tuple(supervisor.saved),
        heartbeats=supervisor.beats,
        extended=timedelta(milliseconds=supervisor.job.extended_ms),
        added=tuple(supervisor.members),
    )


def _stored(checkpoint: Any) -> str:
    return encode(checkpoint, "checkpoint", max_bytes=MAX_CHECKPOINT_BYTES)


def _envelope(job: Any, args: Sequence[Any], kwargs: Mapping[str, Any], now: datetime) -> Envelope:
    if isinstance(job, str):
        job = registry.find(job)
    if isinstance(job, JobHandler):
        return job.envelope(args, kwargs, now)
    job_type, options = job.__ojs_call__()
    fitting, named = registry.find(job_type).arguments(args, kwargs)
    return from_call(job_type, fitting, now=now, kwargs=named, **options)


def _ended(
    supervisor: RecordingSupervisor,
    context: JobContext,
    result: str | None,
    error: BaseException | None,
    now: datetime,
) -> JobRow:
    """The job as the services would decide; one that was cancelled stays so, whatever is reported."""
    job = supervisor.job
    if context.cancel_reason == "cancelled":
        return job._replace(state=State.CANCELLED, result=None)
    if error is None:
        return lifecycle.ack(job, result=result, now=now).written
    failure = failure_to_report(error, context.cancel_reason)
    return lifecycle.fail(job, failure, now=now, jitter=clock.jitter()).written


def _retry_in(ended: JobRow, using: str) -> timedelta | None:
    if ended.state != State.RETRYABLE or ended.retry_delay_ms is None:
        return None
    return timedelta(milliseconds=ended.retry_delay_ms)
