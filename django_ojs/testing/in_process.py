"""The worker's side of a handler that runs in the process of the test."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TypeVar

from asgiref.sync import AsyncToSync

from django_ojs.domain import stored_envelope
from django_ojs.domain.errors import LeaseLost
from django_ojs.domain.job import Actor, JobRow
from django_ojs.domain.leases import Lease
from django_ojs.domain.timeouts import soft_deadline
from django_ojs.handlers import registry
from django_ojs.handlers.exceptions import LeaseGone, SoftStop
from django_ojs.services import attempts, leases, operate
from django_ojs.services.workflows import operate as workflows
from django_ojs.services.workflows import results
from django_ojs.store import selectors
from django_ojs.testing.watched import WatchedContext

T = TypeVar("T")
_WORKER = Actor("worker")
_open: list[InProcessSupervisor] = []


class InProcessSupervisor:
    """What a worker does for a running job, done here and now, in the connection of the test.

    ``heartbeats`` is whether it sends signs of life when the clock of the test moves on.
    """

    def __init__(self, job: JobRow, *, using: str, heartbeats: bool = True) -> None:
        assert job.lease_id is not None
        self.job = job
        self.lease = Lease(job.id, job.lease_id)
        self.heartbeats = heartbeats
        self._using = using
        self._saved: list[str] = []
        self._reported: leases.Progress | None = None

    def context(self) -> InProcessContext:
        """The context for the handler."""
        deadline = soft_deadline(self.job)
        assert deadline is not None
        return InProcessContext._of(self, self.job, deadline)

    def stop_reason(self) -> str | None:
        """Why the handler must stop now, if it must: its time is up, or the lease is lost."""
        return self._do(self._stop_reason)

    def _stop_reason(self) -> str | None:
        seen = attempts.check([self.lease], using=self._using)
        if not seen.kept:
            return seen.reasons[self.lease.lease_id]
        (kept,) = seen.kept
        self.job = self.job._replace(deadline_at=kept.deadline_at, extended_ms=kept.extended_ms)
        soft = soft_deadline(self.job)
        return "timeout" if soft is not None and soft <= seen.now else None

    def beat(self) -> None:
        """Send a sign of life for a handler with automatic heartbeats."""
        handler = registry.handler_of(self.job.type)
        if self.heartbeats and (handler is None or handler.heartbeat != "manual"):
            leases.beat([self.lease], using=self._using)

    def heartbeat(self) -> None:
        """Send a sign of life."""
        self._do(lambda: leases.beat([self.lease], using=self._using))

    def progress(self, fraction: float, message: str, data: str | None) -> None:
        """Store progress."""
        self._reported = leases.Progress(self.lease, fraction, message, data, self.job)
        reported = self._reported
        self._do(lambda: leases.progress([reported], using=self._using))

    def checkpoint(self, state: str) -> None:
        """Save JSON text."""
        self._do(lambda: self._save(state))
        self._saved.append(state)

    def _save(self, state: str) -> None:
        if not leases.checkpoint(self.lease, state, using=self._using):
            raise LeaseLost("the lease was lost")

    def extend(self, by_ms: int) -> datetime:
        """Extend the timeout."""
        (made,) = self._do(
            lambda: operate.extend_timeout(
                [self.lease.job_id], by_ms, lease=self.lease, actor=_WORKER, using=self._using
            )
        )
        self.job = made.job
        return made.soft_deadline_at

    def results(self, after: int) -> tuple[list[Any], int | None]:
        """Read results of the workflow."""
        return self._do(lambda: self._results(after))

    def _results(self, after: int) -> tuple[list[Any], int | None]:
        source = results.sources([self.job], using=self._using).get(self.job.id)
        if source is None:
            return [], None
        page = results.page(source, after=after, largest=results.LARGEST, using=self._using)
        return [json.loads(text) for text in page.texts], page.after

    def add(self, call: dict[str, Any]) -> str:
        """Add a member to the workflow."""
        added = self._do(
            lambda: workflows.add(self.lease, stored_envelope.load(call), using=self._using)
        )
        return str(added.id)

    def keep(self) -> None:
        """Write again what a transaction of the handler has taken back: a worker has saved checkpoints
        and progress in a connection of its own.
        """
        if not self._saved and self._reported is None:
            return
        stored = selectors.jobs([self.lease.job_id], using=self._using).get(self.lease.job_id)
        if stored is None:
            return
        if stored.checkpoint_seq < self.job.checkpoint_seq + len(self._saved):
            leases.checkpoint(self.lease, self._saved[-1], using=self._using)
        reported = self._reported
        if reported is not None and stored.progress != reported.fraction:
            leases.progress([reported], using=self._using)

    def _do(self, call: Callable[[], T]) -> T:
        """Make a call for the handler, from a coroutine too: in the thread that has the connection."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            loop = None
        executor: Any = None
        if loop is not None:
            # The first is that of the innermost async_to_sync(), as for sync_to_async().
            executor = getattr(AsyncToSync.executors, "current", None)
            executor = executor or AsyncToSync.loop_thread_executors.get(loop)
        try:
            return call() if executor is None else executor.submit(call).result()
        except LeaseLost as error:
            raise LeaseGone(str(error)) from None


class InProcessContext(WatchedContext):
    """A context that is asked to stop when it is used: nothing interrupts the handler in between."""

    _supervisor: InProcessSupervisor

    def _before_use(self) -> None:
        """Raise :class:`SoftStop`, once, when the time is up or the lease is lost."""
        if self._reason is None:
            reason = self._supervisor.stop_reason()
            if reason is not None and self._stop(reason):
                raise SoftStop(reason)


@contextmanager
def opened(supervisor: InProcessSupervisor) -> Iterator[None]:
    """Send signs of life for this job while the block runs and the clock of the test moves on."""
    _open.append(supervisor)
    try:
        yield
    finally:
        _open.remove(supervisor)


def beat_all() -> None:
    """Send the signs of life that the workers of the running jobs would have sent by now."""
    for supervisor in _open:
        supervisor.beat()
