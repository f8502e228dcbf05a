"""The context of a running job: what a handler can ask of its worker."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Protocol, Self, TypeVar

from django.utils.functional import Promise

from django_ojs.domain import jsonvalue, stored_envelope
from django_ojs.domain.arguments import split, unmarked
from django_ojs.domain.durations import parse_seconds_ms
from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.job import JobRow
from django_ojs.domain.workflow import Call, Step
from django_ojs.handlers.exceptions import SoftStop
from django_ojs.services.workflows.create import checked

T = TypeVar("T")
MAX_CHECKPOINT_BYTES = 1 << 20
MAX_PROGRESS_BYTES = 64 << 10


class Supervisor(Protocol):
    """The supervisor, as a context uses it.

    All raise :class:`LeaseGone`, the first two only once the job has ended.
    """

    def heartbeat(self) -> None:
        """Send a sign of life."""

    def progress(self, fraction: float, message: str, data: str | None) -> None:
        """Report progress; ``data`` is JSON text."""

    def checkpoint(self, state: str) -> None:
        """Save JSON text; return when it is durable."""

    def extend(self, by_ms: int) -> datetime:
        """Extend the timeout; return the new time of the soft stop."""

    def results(self, after: int) -> tuple[list[Any], int | None]:
        """Read results of the workflow behind a place; return the next place, ``None`` at the end."""

    def add(self, call: dict[str, Any]) -> str:
        """Add a member to the workflow; return the id of its job."""


class RunningWorkflow:
    """The workflow of the running job; ``id`` is a string."""

    def __init__(self, context: JobContext, supervisor: Supervisor, id: str) -> None:
        self._context = context
        self._supervisor = supervisor
        self.id = id

    def add(self, step: Step) -> str:
        """Add a member to the group, batch or DAG before this job ends; returns the id of its job.

        The new job waits for nothing, and the workflow waits for it. Counts when it returns, whatever
        becomes of this attempt: a retry adds again. Raises :class:`Conflict` for a chain, in a
        callback, and when the workflow does not run any more; :class:`LeaseGone`.
        """
        if not isinstance(step, Step) or not isinstance(step.what, Call) or step.depends_on:
            raise TypeError("add() takes a step, like handler.step(...)")
        call = checked(step.what)
        return self._supervisor.add(stored_envelope.dump(call))

    async def aadd(self, step: Step) -> str:
        """:meth:`add` for coroutines."""
        return await self._context._answer(partial(self.add, step))


class JobContext:
    """The running attempt, for a handler that has a parameter of this type.

    ``id``, ``type``, ``queue``, ``attempt`` (1 for the first), ``max_attempts``, ``meta`` and
    ``last_checkpoint`` (what an earlier attempt saved, or ``None``) and ``last_progress_data`` (the
    ``data`` of the last progress that an earlier attempt reported, or ``None``) are plain values.
    ``args`` is the list of arguments, ``kwargs`` has those by keyword: execution middleware may put
    others there. ``workflow`` is the :class:`RunningWorkflow` that the job is a member or a callback
    of, or ``None``.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        *,
        id: str,
        type: str,
        queue: str,
        attempt: int,
        max_attempts: int,
        meta: dict[str, Any],
        args: list[Any],
        last_checkpoint: Any,
        deadline: datetime,
        last_progress_data: Any = None,
        workflow_id: str | None = None,
    ) -> None:
        self._supervisor = supervisor
        self.id = id
        self.type = type
        self.queue = queue
        self.attempt = attempt
        self.max_attempts = max_attempts
        self.meta = unmarked(meta)
        self.args, self.kwargs = split(args, meta)
        self.last_checkpoint = last_checkpoint
        self.last_progress_data = last_progress_data
        self.workflow = None if workflow_id is None else RunningWorkflow(self, supervisor, workflow_id)
        self._parent_results: list[Any] | None = None
        self._deadline = deadline
        self._reason: str | None = None
        self._shields = 0
        self._raise_later = False
        self._soft = "raise"
        self._elsewhere: Callable[[Callable[[], Any]], Awaitable[Any]] | None = None

    @classmethod
    def _of(cls, supervisor: Supervisor, job: JobRow, deadline: datetime) -> Self:
        """The context of a job as its row has it; ``deadline`` is the time of the soft stop."""
        return cls(
            supervisor,
            id=str(job.id),
            type=job.type,
            queue=job.queue,
            attempt=job.attempt,
            max_attempts=job.max_attempts,
            meta=job.json("meta"),
            args=job.json("args"),
            last_checkpoint=job.json("checkpoint"),
            last_progress_data=job.json("progress_data"),
            workflow_id=None if job.workflow_id is None else str(job.workflow_id),
            deadline=deadline,
        )

    @property
    def cancelled(self) -> bool:
        """Whether the handler was asked to stop."""
        return self._reason is not None

    @property
    def cancel_reason(self) -> str | None:
        """Why, as in :class:`SoftStop`: ``timeout``, ``total_timeout``, ``cancelled``, ``stalled``,
        ``shutdown`` or ``lost``.
        """
        return self._reason

    @property
    def deadline(self) -> datetime:
        """The time of the soft stop, as last known (aware, UTC)."""
        return self._deadline

    @property
    def parent_results(self) -> list[Any]:
        """The results of what this job waited for in its workflow; read when first asked for.

        In a chain those of all steps before it, in a DAG of what it depends on, in a callback of all
        members, in their order. ``None`` stands for one without a result; of a nested workflow there is
        an object by index. Raises :class:`LeaseGone`, and :class:`Conflict` for such an object of more
        than 8,000,000 bytes.
        """
        if self._parent_results is None:
            self._parent_results = list(self.iter_parent_results())
        return self._parent_results

    def iter_parent_results(self) -> Iterator[Any]:
        """As :attr:`parent_results`, page by page: for the callback of a large batch."""
        after: int | None = -1
        while self.workflow is not None and after is not None:
            values, after = self._supervisor.results(after)
            yield from values

    def check(self) -> None:
        """Raise :class:`SoftStop` if the handler was asked to stop. For loops and threads."""
        if self._reason is not None:
            raise SoftStop(self._reason)

    def heartbeat(self) -> None:
        """Send a sign of life; needed only with ``heartbeat="manual"``."""
        self._supervisor.heartbeat()

    def progress(self, fraction: float, message: str = "", data: Any = None) -> None:
        """Report progress from 0 to 1; also a sign of life. Stored twice a second at most.

        ``data`` is any JSON value up to 64 KiB; the next attempt gets what was stored last
        (``last_progress_data``). Raises :class:`InvalidRequest` for what is not as it must be.
        """
        text = None
        if data is not None:
            text = jsonvalue.encode(data, "data", max_bytes=MAX_PROGRESS_BYTES)
        try:
            clipped = min(1.0, max(0.0, float(fraction)))
        except (TypeError, ValueError, OverflowError):
            raise InvalidRequest("fraction", "must be a number from 0 to 1") from None
        if not isinstance(message, (str, Promise)):
            raise InvalidRequest("message", "must be text")
        self._supervisor.progress(clipped, jsonvalue.sanitise_text(str(message), 1024), text)

    def checkpoint(self, state: Any) -> None:
        """Save where the next attempt resumes (``last_checkpoint``); durable when it returns.

        Any JSON value up to 1 MiB. Independent of the handler's transaction, and allowed during
        clean-up after :class:`SoftStop`: a checkpoint after the total timeout is kept for a manual
        retry. Raises :class:`InvalidRequest`, :class:`LeaseGone`.
        """
        text = jsonvalue.encode(state, "checkpoint", max_bytes=MAX_CHECKPOINT_BYTES)
        self._supervisor.checkpoint(text)
        self.last_checkpoint = state

    def extend_timeout(self, by: int | str | timedelta) -> datetime:
        """Add time to this attempt: seconds, ``timedelta``, ``"10s"`` or ISO 8601.

        Returns the new time of the soft stop, once both database and worker have it. Grants no more
        than the total timeout leaves. Raises :class:`Conflict` if that is nothing, :class:`LeaseGone`.
        """
        by_ms = parse_seconds_ms(by, "by")
        self._deadline = self._supervisor.extend(by_ms)
        return self._deadline

    async def aprogress(self, fraction: float, message: str = "", data: Any = None) -> None:
        """:meth:`progress` for coroutines."""
        self.progress(fraction, message, data)

    async def acheckpoint(self, state: Any) -> None:
        """:meth:`checkpoint` for coroutines."""
        await self._answer(partial(self.checkpoint, state))

    async def aextend_timeout(self, by: int | str | timedelta) -> datetime:
        """:meth:`extend_timeout` for coroutines."""
        return await self._answer(partial(self.extend_timeout, by))

    async def aparent_results(self) -> list[Any]:
        """:attr:`parent_results` for coroutines."""
        return await self._answer(lambda: self.parent_results)

    async def _answer(self, ask: Callable[[], T]) -> T:
        """Ask and wait for the answer: in a thread where other coroutines run in this one."""
        return ask() if self._elsewhere is None else await self._elsewhere(ask)

    @contextlib.contextmanager
    def shield(self) -> Iterator[None]:
        """Defer :class:`SoftStop` until the end of the block. The hard stop is not deferred."""
        self._shields += 1
        try:
            yield
        finally:
            self._shields -= 1
            if self._raise_later and not self._shields:
                # Even if the block raised: the request to stop must not get lost.
                self._raise_later = False
                assert self._reason is not None
                raise SoftStop(self._reason)

    def _stop(self, reason: str) -> bool:
        """Note the request to stop; return whether it may be raised now."""
        self._reason = reason
        if self._soft == "flag":
            return False
        if self._shields:
            self._raise_later = True
            return False
        return True
