"""Outcomes on their way into the database: kept until they are durable or their lease has ended."""

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
from django_ojs.domain.failures import Failure
from django_ojs.domain.job import JobRecord
from django_ojs.services import leases
from django_ojs.services.settle import Outcome, Report, SettleResult, Verdict, settle
from django_ojs.store.batches import OUTAGE, in_batches
from django_ojs.store.contention import is_held
from django_ojs.worker.threads.base import MainLoop
from django_ojs.worker.threads.connection import ConnectionState

logger = logging.getLogger("django_ojs.worker")
_BATCH = 500
_AGAIN = 0.25
_TRIES = 5
_REFUSED = (Verdict.LOST, Verdict.MISSING)


@dataclass(slots=True, eq=False)
class Pending:
    """An outcome that is not durable yet. After ``until`` (boottime seconds) it is dropped once the
    attempt has been ended. While somebody else holds its job's row, or the database refuses it alone
    (``refusals``), it is tried again at ``again_at``.
    """

    outcome: Outcome
    until: float
    again_at: float = 0.0
    refusals: int = 0


class OutcomeWriter:
    """The outcomes that are not durable yet. :class:`DatabaseThread` guards the queue with its lock."""

    def __init__(self, loop: MainLoop, state: ConnectionState, using: str) -> None:
        self._loop = loop
        self._state = state
        self._using = using
        self._pending: deque[Pending] = deque()

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, outcomes: Sequence[Pending]) -> None:
        """Queue outcomes."""
        self._pending.extend(outcomes)

    def jobs(self) -> list[JobRecord]:
        """The claimed jobs whose outcome is queued."""
        known = (pending.outcome.claimed for pending in self._pending)
        return [claimed for claimed in known if claimed is not None]

    def ready(self, now: float) -> list[Pending]:
        """The next batch to be written."""
        return list(islice((one for one in self._pending if one.again_at <= now), _BATCH))

    def due_at(self) -> list[float]:
        """When each is to be tried; 0 for at once."""
        return [one.again_at for one in self._pending]

    def write(self, batch: Sequence[Pending]) -> None:
        """Settle these; on the thread that has the connection."""
        tried_at: datetime | None = None
        try:
            tried_at = clock.now(self._using)
            in_batches(
                batch,
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
            self._state.succeeded()
            if any(pending.refusals for pending in batch):
                self._drop_expired()

    def _write(self, tried_at: datetime, batch: Sequence[Pending]) -> None:
        answers = settle([_known(one) for one in batch], wait=False, using=self._using)
        held = [one for one, said in zip(batch, answers, strict=True) if said.verdict is Verdict.HELD]
        _tried(held, tried_at)
        self._settled(batch, answers)

    def _settled(self, batch: Sequence[Pending], answers: Sequence[SettleResult]) -> None:
        again = clock.boottime() + _AGAIN
        for pending, answer in zip(batch, answers, strict=True):
            if answer.verdict is Verdict.HELD:
                pending.again_at = again
            else:
                self._pending.remove(pending)
        if any(answer.verdict in _REFUSED for answer in answers):
            self._loop.call_soon(lambda: self._log_refusals(batch, answers))
        elif not self._pending:
            # A runner that is ending waits for nothing else.
            self._loop.call_soon(lambda: None)

    def _refuse(self, pending: Pending, error: Exception) -> None:
        """A report that cannot be stored becomes a failure that says so.

        If even that cannot be written, the lease runs out. By an error that the database may be to
        blame for, only after several tries: work that is done is not run again for two connections
        that were cut.
        """
        if isinstance(error, OUTAGE):
            pending.refusals += 1
            if pending.refusals < _TRIES:
                pending.again_at = clock.boottime() + _AGAIN * 2**pending.refusals
                return
        lease, kind = pending.outcome.lease, pending.outcome.report
        about = {"job_id": str(lease.job_id), "report": str(kind)}
        logger.error("the report of job %s was refused: %s", lease.job_id, error, extra=about)
        failure = Failure("report_refused", f"the report could not be stored: {error}")
        told = pending.outcome._replace(report=Report.FAIL, result=None, failure=failure, claimed=None)
        try:
            answers = settle([told], wait=False, using=self._using)
        except OUTAGE:
            raise
        except Exception:
            logger.exception("job %s cannot be reported", lease.job_id, extra=about)
            self._pending.remove(pending)
        else:
            self._settled([pending], answers)

    def _log_refusals(self, batch: Sequence[Pending], answers: Sequence[SettleResult]) -> None:
        for pending, answer in zip(batch, answers, strict=True):
            if answer.verdict in _REFUSED:
                logger.warning(
                    "report refused: %s of job %s: the lease is %s",
                    pending.outcome.report,
                    pending.outcome.lease.job_id,
                    answer.verdict,
                )

    def _drop_expired(self) -> None:
        """Past its deadline an outcome is nobody's any more, if the server has ended the attempt.

        After an outage it has not, but waits for reports (decision T9): it is asked.
        """
        now = clock.boottime()
        late = [pending for pending in self._pending if pending.until < now]
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
                logger.error(
                    "report abandoned: the database did not take that of job %s before the deadline",
                    pending.outcome.lease.job_id,
                )


def _tried(batch: Sequence[Pending], at: datetime | None) -> None:
    """These reports wait for somebody else's lock since ``at``, if not for longer: by that they are
    judged (decision T6b). ``None`` after an outage, which is no such wait.
    """
    for pending in batch:
        first = None if at is None else pending.outcome.tried_at or at
        pending.outcome = pending.outcome._replace(tried_at=first)


def _known(pending: Pending) -> Outcome:
    """The outcome; by the row, not by the record that was claimed, once that was held."""
    return pending.outcome._replace(claimed=None) if pending.again_at else pending.outcome


def _size(pending: Pending) -> int:
    """What its job will have written."""
    outcome = pending.outcome
    history = len(outcome.claimed.errors) if outcome.claimed is not None else 0
    return len(outcome.result or "") + history
