"""The thread that talks to the database for the runner, so that the runner never waits for it.

What the runner wants written or read goes over this desk in order; outcomes are kept until the
database has taken them, or their lease cannot be theirs any more.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any, Protocol

from django.db import DatabaseError, connections

from django_ojs import clock
from django_ojs.domain.failures import Failure
from django_ojs.domain.job import JobRecord
from django_ojs.services import heartbeat, reaper
from django_ojs.services.settle import Outcome, Report, SettleResult, Verdict, settle
from django_ojs.store.batches import OUTAGE, answers, in_batches
from django_ojs.store.contention import is_held
from django_ojs.worker.threads.base import DatabaseThread

logger = logging.getLogger("django_ojs.worker")
_BATCH = 500
_AGAIN = 0.25
_TRIES = 5
_REFUSED = (Verdict.LOST, Verdict.MISSING)
_Call = tuple[Callable[[], Any], Callable[[Any, Exception | None], None]]


class Inbox(Protocol):
    """Where the desk leaves what the runner is to do; called from the desk's thread."""

    def post(self, call: Callable[[], None]) -> None:
        """Have ``call`` run in the runner's thread, soon."""


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


class Desk(DatabaseThread):
    """Settles and calls, one after the other, on one connection."""

    def __init__(self, inbox: Inbox, using: str, name: str = "ojs-desk") -> None:
        super().__init__(name, using)
        self._inbox = inbox
        self._changed = threading.Condition()
        self._calls: deque[_Call] = deque()
        self._outcomes: deque[Pending] = deque()
        self._later: list[tuple[float, _Call]] = []
        self._closing = False
        self._failures = 0
        self.connected = threading.Event()

    # Called by the runner.

    def settle(self, outcomes: Sequence[Pending]) -> None:
        """Write outcomes; each is kept until it is written or its time has passed."""
        with self._changed:
            self._outcomes.extend(outcomes)
            self._changed.notify()

    def call(self, work: Callable[[], Any], then: Callable[[Any, Exception | None], None]) -> None:
        """Run ``work`` on the desk's connection; ``then(value, error)`` runs in the runner."""
        with self._changed:
            self._calls.append((work, then))
            self._changed.notify()

    @property
    def unwritten(self) -> int:
        """Outcomes that are not durable yet."""
        return len(self._outcomes)

    def held_up(self) -> list[JobRecord]:
        """The jobs whose outcome is not written yet: they are still this worker's.

        The first try too may wait, behind other work of this desk that waits for a lock.
        """
        with self._changed:
            known = (pending.outcome.claimed for pending in self._outcomes)
            return [claimed for claimed in known if claimed is not None]

    def close(self) -> None:
        """Write what there is and end."""
        with self._changed:
            self._closing = True
            self._changed.notify()

    # The thread.

    def work(self) -> None:
        """Until closed and everything is written."""
        running = True
        while running:
            try:
                running = self._turn()
            except OUTAGE as error:
                self._broken(error)
            except Exception:
                logger.exception("the thread that writes reports failed")
                clock.pause(1.0)

    def _turn(self) -> bool:
        with self._changed:
            pause = self._idle_for()
            if pause is None or pause > 0:
                self._changed.wait(pause)
            now = clock.boottime()
            calls = list(self._calls)
            self._calls.clear()
            again = [call for at, call in self._later if at <= now]
            self._later = [one for one in self._later if one[0] > now]
            ready = (pending for pending in self._outcomes if pending.again_at <= now)
            outcomes = list(islice(ready, _BATCH))
            if self._closing and not (calls or again or self._outcomes or self._later):
                return False
        self._make(calls)
        self._serve(outcomes)
        self._make(again)
        return True

    def _make(self, calls: Sequence[_Call]) -> None:
        """Make calls until one waits in vain for a lock: reports do not wait behind them all."""
        for index, call in enumerate(calls):
            if not self._answer(*call):
                at = clock.boottime() + _AGAIN
                with self._changed:
                    self._later += [(at, one) for one in (*calls[index + 1 :], call)]
                return

    def _idle_for(self) -> float | None:
        """Seconds until there is something to do, ``None`` for until somebody says so."""
        done = self._closing and not (self._outcomes or self._later)
        if self._calls or done or any(not pending.again_at for pending in self._outcomes):
            return 0.0
        moments = [pending.again_at for pending in self._outcomes] + [at for at, _ in self._later]
        waits = [at - clock.boottime() for at in moments]
        pause = None if self._closing else self._pause()
        return min(waits + ([] if pause is None else [pause]), default=None)

    def _pause(self) -> float | None:
        """Seconds after which there is something to do unasked; ``None`` for never."""
        return None

    def _serve(self, outcomes: Sequence[Pending]) -> None:
        """Do what is to be done in every turn, with the outcomes to be written."""
        if outcomes:
            self._settle(outcomes)

    def _answer(self, work: Callable[[], Any], then: Callable[[Any, Exception | None], None]) -> bool:
        """Whether there is an answer: whoever waits for one about a held row waits on."""
        value: Any = None
        error: Exception | None = None
        try:
            value = work()
        except Exception as trouble:
            error = trouble
        if error is not None and is_held(error):
            return False
        # First the answer, then the pause: the runner acts on what it knows without a database.
        self._inbox.post(lambda: then(value, error))
        if isinstance(error, OUTAGE):
            self._broken(error)
        return True

    def _settle(self, batch: Sequence[Pending]) -> None:
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
            self._broken(error)
            self._drop_expired()
        else:
            self._works()
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
                self._outcomes.remove(pending)
        if any(answer.verdict in _REFUSED for answer in answers):
            self._inbox.post(lambda: self._report(batch, answers))
        elif not self._outcomes:
            # A runner that is ending waits for nothing else.
            self._inbox.post(lambda: None)

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
            self._outcomes.remove(pending)
        else:
            self._settled([pending], answers)

    def _report(self, batch: Sequence[Pending], answers: Sequence[SettleResult]) -> None:
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
        late = [pending for pending in self._outcomes if pending.until < now]
        if not late:
            return
        try:
            kept = heartbeat.holds([pending.outcome.lease for pending in late], using=self._using)
        except (DatabaseError, *OUTAGE):
            return
        waited_for = {lease.lease_id for lease in kept}
        for pending in late:
            if pending.outcome.lease.lease_id not in waited_for:
                self._outcomes.remove(pending)
                logger.error(
                    "report abandoned: the database did not take that of job %s before the deadline",
                    pending.outcome.lease.job_id,
                )

    def _works(self) -> None:
        self._failures = 0
        self.connected.set()

    def _broken(self, error: Exception) -> None:
        """A statement failed: wait a little longer; if a new connection does not answer either, that
        is an outage.
        """
        self._failures += 1
        if self._failures == 1:
            logger.warning("database trouble: %s", error)
        if not is_held(error) and not answers(self._using):
            reaper.note_outage()
            self.connected.clear()
            connections[self._using].close()
        # Short of a quarter of any heartbeat timeout kept closely: several calls may fail in a turn,
        # and reports wait behind them while the server waits for those.
        pause = min(0.5, 0.05 * 2 ** min(self._failures, 6)) * (0.5 + clock.jitter())
        clock.pause(pause)


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
