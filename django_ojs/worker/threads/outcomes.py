"""Outcomes on their way to the database, kept until they are written or their lease has ended."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import islice

from django.db import DatabaseError

from django_ojs import clock
from django_ojs.domain.exposition import Durations
from django_ojs.domain.failures import Failure
from django_ojs.domain.job import JobRow
from django_ojs.services import leases
from django_ojs.services.settle import Outcome, Report, SettleResult, Verdict, settle
from django_ojs.store.batches import OUTAGE, in_batches
from django_ojs.store.contention import is_held
from django_ojs.worker.threads.base import STATEMENT_SECONDS, MainLoop
from django_ojs.worker.threads.connection import ConnectionState
from django_ojs.worker.threads.progress import ProgressWriter

logger = logging.getLogger("django_ojs.worker")
_BATCH = 500
_AGAIN = 0.25
_TRIES = 5
_REFUSED = (Verdict.LOST, Verdict.MISSING)


@dataclass(slots=True, eq=False)
class Pending:
    """An outcome that is not durable yet. After ``until`` (boottime) it is dropped if the server has
    ended the attempt. While its row is locked elsewhere, or the database refuses it alone
    (``refusals``), it is retried at ``again_at``.
    """

    outcome: Outcome
    until: float
    again_at: float = 0.0
    refusals: int = 0


class OutcomeWriter:
    """The queue of outcomes to write: the supervisor adds to it, the database thread takes them out."""

    def __init__(
        self, loop: MainLoop, state: ConnectionState, progress: ProgressWriter, using: str
    ) -> None:
        self._loop = loop
        self._state = state
        self._progress = progress
        self._using = using
        self._pending: deque[Pending] = deque()
        self.took = Durations(STATEMENT_SECONDS)

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, outcomes: Sequence[Pending]) -> None:
        """Queue outcomes."""
        self._pending.extend(outcomes)

    def jobs(self) -> list[JobRow]:
        """The jobs whose outcome is queued."""
        # A copy, made in one step: the database thread removes what it has written.
        known = (pending.outcome.claimed for pending in list(self._pending))
        return [claimed for claimed in known if claimed is not None]

    def ready(self, now: float) -> list[Pending]:
        """The next batch to write."""
        return list(islice((one for one in self._pending if one.again_at <= now), _BATCH))

    def due_at(self) -> list[float]:
        """When to write each; 0 for at once."""
        return [one.again_at for one in self._pending]

    def write(self, batch: Sequence[Pending]) -> None:
        """Settle a batch. Database thread only."""
        tried_at: datetime | None = None
        began = clock.boottime()
        try:
            tried_at = clock.now(self._using)
            in_batches(
                self._with_progress_written(batch, tried_at),
                partial(self._write, tried_at),
                refused=self._refuse,
                size=_size,
                most=_BATCH,
                using=self._using,
            )
        except OUTAGE as error:
            _tried(batch, tried_at if is_held(error) else None)
            self._state.failed(error)
            self._drop_expired()
        else:
            self.took.add(clock.boottime() - began)
            self._state.succeeded()
            if any(pending.refusals for pending in batch):
                self._drop_expired()

    def _with_progress_written(self, batch: Sequence[Pending], tried_at: datetime) -> Sequence[Pending]:
        """Write what is left of their progress; those whose locked row holds that up are left out."""
        left = self._progress.of(pending.outcome.lease for pending in batch)
        if not left:
            return batch
        self._progress.write(left)
        waiting = {one.lease for one in self._progress.of(one.lease for one in left)}
        held = [one for one in batch if one.outcome.lease in waiting]
        _tried(held, tried_at)
        _postpone(held)
        return [one for one in batch if one.outcome.lease not in waiting]

    def _write(self, tried_at: datetime, batch: Sequence[Pending]) -> None:
        answers = settle([_known(one) for one in batch], wait=False, using=self._using)
        pairs = zip(batch, answers, strict=True)
        _tried([one for one, answer in pairs if answer.verdict is Verdict.HELD], tried_at)
        self._settled(batch, answers)

    def _settled(self, batch: Sequence[Pending], answers: Sequence[SettleResult]) -> None:
        pairs = list(zip(batch, answers, strict=True))
        _postpone([one for one, answer in pairs if answer.verdict is Verdict.HELD])
        for pending, answer in pairs:
            if answer.verdict is not Verdict.HELD:
                self._pending.remove(pending)
        if any(answer.verdict in _REFUSED for answer in answers):
            self._loop.call_soon(lambda: self._log_refusals(batch, answers))
        elif not self._pending:
            # Wake the supervisor, which may wait for this to end.
            self._loop.call_soon(lambda: None)

    def _refuse(self, pending: Pending, error: Exception) -> None:
        """Report a failure instead of an outcome that cannot be stored.

        If even that cannot be written, the lease expires. An error that may be the database's fault is
        retried first: two cut connections should not cost finished work.
        """
        if isinstance(error, OUTAGE):
            pending.refusals += 1
            if pending.refusals < _TRIES:
                pending.again_at = clock.boottime() + _AGAIN * 2**pending.refusals
                return
        lease, kind = pending.outcome.lease, pending.outcome.report
        about = {"job_id": str(lease.job_id), "report": str(kind)}
        logger.error("the database refused a report: job %s: %s", lease.job_id, error, extra=about)
        failure = Failure("report_refused", f"the report could not be stored: {error}")
        failed = pending.outcome._replace(
            report=Report.FAIL, result=None, failure=failure, claimed=None
        )
        try:
            answers = settle([failed], wait=False, using=self._using)
        except OUTAGE:
            raise
        except Exception:
            logger.exception("a report could not be stored: job %s", lease.job_id, extra=about)
            self._pending.remove(pending)
        else:
            self._settled([pending], answers)

    def _log_refusals(self, batch: Sequence[Pending], answers: Sequence[SettleResult]) -> None:
        for pending, answer in zip(batch, answers, strict=True):
            if answer.verdict in _REFUSED:
                job_id, kind = str(pending.outcome.lease.job_id), str(pending.outcome.report)
                logger.warning(
                    "report refused: %s of job %s, lease %s",
                    kind,
                    job_id,
                    answer.verdict,
                    extra={"job_id": job_id, "report": kind},
                )

    def _drop_expired(self) -> None:
        """Drop outcomes past their deadline if the server has ended the attempt.

        After an outage it waits for reports instead (decision T9), so the leases are checked.
        """
        now = clock.boottime()
        late = [pending for pending in list(self._pending) if pending.until < now]
        if not late:
            return
        try:
            kept = leases.holds([pending.outcome.lease for pending in late], using=self._using)
        except (DatabaseError, *OUTAGE):
            return
        waited_for = {lease.lease_id for lease in kept}
        for pending in late:
            if pending.outcome.lease.lease_id not in waited_for:
                self._pending.remove(pending)
                job_id = str(pending.outcome.lease.job_id)
                text = "report abandoned, not written before the deadline: job %s"
                logger.error(text, job_id, extra={"job_id": job_id})


def _postpone(held: Sequence[Pending]) -> None:
    again_at = clock.boottime() + _AGAIN
    for pending in held:
        pending.again_at = again_at


def _tried(batch: Sequence[Pending], at: datetime | None) -> None:
    """Note that reports wait for a lock since ``at`` or earlier: they are judged by that time
    (decision T6b). ``None`` after an outage, which is no such wait.
    """
    for pending in batch:
        first = None if at is None else pending.outcome.tried_at or at
        pending.outcome = pending.outcome._replace(tried_at=first)


def _known(pending: Pending) -> Outcome:
    """The outcome to settle; after a lock by the row, since the claimed record may be outdated."""
    return pending.outcome._replace(claimed=None) if pending.again_at else pending.outcome


def _size(pending: Pending) -> int:
    """The approximate bytes that settling the outcome writes."""
    outcome = pending.outcome
    history = len(outcome.claimed.errors) if outcome.claimed is not None else 0
    return len(outcome.result or "") + history
