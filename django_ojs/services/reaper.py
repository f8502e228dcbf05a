"""Recorded scans of the reaper, and when a missed heartbeat counts (decision T9).

Each scan is recorded with its *cadence*: for a loop its longest sleep, for single runs the time
since the run before. A lease is judged only against time in which its holder could have been heard:
time in which this process, or the recorded scans, saw the database answer (``services.sightings``).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

from django.db import DatabaseError, IntegrityError, connections, transaction

from django_ojs import clock, conf
from django_ojs.domain.silence import Hearing, common
from django_ojs.engines import EngineFamily, family_of
from django_ojs.models import MaintenanceRun
from django_ojs.services import reap, sightings
from django_ojs.services.reap import ReapResult
from django_ojs.services.sightings import Witness, spans_of
from django_ojs.store import due_times
from django_ojs.store.contention import atomically

logger = logging.getLogger("django_ojs")
NAME = "reap"
STALE = timedelta(seconds=120)
"""How long ago the last scan may be before health reports a problem."""
_CALM = timedelta(seconds=6)
"""How long after a step of the clock no missed heartbeat is judged: longer than their interval."""
_AGES = timedelta(days=1000)
_LOOKS_EVERY = timedelta(milliseconds=200)
_BEATS_EVERY = timedelta(seconds=1)
"""How often a loop reads the running jobs: more often than any heartbeat timeout."""
_RECORD_EVERY = timedelta(seconds=5)
"""How often a loop records a scan even if nothing is due, while anything has a deadline."""
_RECORD_AT_REST = timedelta(seconds=10)
"""And while nothing has, at the latest: three times as long as usual would be an outage."""

_failed = threading.Event()


def note_outage() -> None:
    """Note that a statement failed: the next scan treats the time before as an outage."""
    _failed.set()


def scan(
    *,
    cadence: timedelta | None,
    ran_by: str,
    limit: int | None = None,
    witness: Witness | None = None,
    lag: timedelta = timedelta(0),
    calm: bool = False,
    using: str | None = None,
) -> ReapResult:
    """One recorded pass of the reaper.

    ``cadence`` is the longest pause between this scanner's scans, ``None`` for a single run, whose
    cadence is the time since the run before. ``witness`` is what this process saw, if it looks all
    the time; ``lag`` is by how much it looks at the past. While ``calm`` no
    silence is judged.
    """
    using = using or conf.current().database
    asked_at = clock.now(using) - lag
    suspect = _failed.is_set()

    def work() -> Hearing | _ClockSet:
        got_at = clock.now(using) - lag
        return _set_clock(witness, got_at, using) or _record(
            cadence, ran_by, witness, asked_at, got_at, suspect, using
        )

    hears = atomically(using, work)
    if isinstance(hears, _ClockSet):
        # No deadline is judged by the time before the step; the next scan uses the new clock.
        if hears.applied is not None:
            logger.warning(
                "the database clock was set by %+.1f s; running jobs were adjusted",
                hears.applied.total_seconds(),
            )
            clock.applied(using, hears.applied, hears.steps)
        return ReapResult()
    waited = witness is not None and not witness.committed(clock.now(using) - lag)
    if suspect:
        _failed.clear()
    if calm or waited:
        hears = hears._replace(until=hears.until - _AGES)
    now = asked_at if lag or waited else None
    return reap.reap(limit=limit, hearing=hears, now=now, using=using)


class _ClockSet(NamedTuple):
    """The server's clock was set: by how much, if this scan applied it, and the number of the step."""

    applied: timedelta | None
    steps: int


def _set_clock(witness: Witness | None, now: datetime, using: str) -> _ClockSet | None:
    """Apply a step of the server's clock, once, under the record of the scans: what runs moves with it.

    What began, and was heard, before the step did so as long ago as before it.
    """
    step, known = clock.step(using), clock.steps(using)
    if step is None:
        return None
    runs = MaintenanceRun.objects.using(using)
    run = runs.select_for_update().filter(name=NAME).first()
    if run is None:
        return None
    if known is not None and known != run.clock_steps:
        return _ClockSet(None, run.clock_steps)
    reap.set_clock(step, now=now + step, using=using)
    # Record what was seen by the old clock, then move all of it to the new one.
    if witness is not None:
        witness.saw(now)
    sightings.record(run, witness, now, suspect=False)
    run.last_run_at = now
    sightings.transition(run, step)
    run.clock_steps += 1
    run.save(using=using)
    return _ClockSet(step, run.clock_steps)


def _record(
    cadence: timedelta | None,
    ran_by: str,
    witness: Witness | None,
    asked_at: datetime,
    now: datetime,
    suspect: bool,
    using: str,
) -> Hearing:
    """Record this scan, and return what its missed heartbeats are judged by."""
    connection = connections[using]
    runs = MaintenanceRun.objects.using(using)
    skips = connection.features.has_select_for_update_skip_locked
    run = runs.select_for_update(skip_locked=skips).filter(name=NAME).first()
    if witness is not None and suspect:
        witness.doubt()
    if run is None and (held := runs.filter(name=NAME).first()) is not None:
        # Another scan holds the record; scan without recording.
        if witness is not None:
            witness.writes(asked_at, now, one_writer=False)
            _try_a_commit(now, using)
        return _until(sightings.hearing(held, witness, now, suspect=suspect), asked_at)
    if witness is not None:
        # SQLite has one lock for all writers: if this scan waited for it, heartbeats did too.
        witness.writes(asked_at, now, one_writer=family_of(connection) is EngineFamily.SQLITE)
    if run is None:
        run = MaintenanceRun(name=NAME, last_run_at=now, ran_by=ran_by, loops=cadence is not None)
        run.cadence_ms = _ms(cadence)
        with suppress(IntegrityError), transaction.atomic(using=using):
            run.save(using=using, force_insert=True)
        return Hearing(asked_at)
    since = now - run.last_run_at
    air = sightings.record(run, witness, now, suspect=suspect)
    if air:
        reap.recover(until=now + air, now=now, using=using)
    run.loops = cadence is not None
    run.cadence_ms = _ms(cadence if cadence is not None else since)
    run.last_run_at = now
    run.ran_by = ran_by
    run.save(using=using)
    made_of = spans_of(run)
    seen = made_of if witness is None else common(witness.blind(now), made_of)
    return Hearing(min(asked_at, now), seen, sightings.air(run))


def _try_a_commit(now: datetime, using: str) -> None:
    """Write a row that no other session sees, for its commit: only that shows whether heartbeats can be
    committed. The commit of the scan that holds the record may be waiting.
    """
    row = MaintenanceRun(name=f"{NAME} {clock.new_id().hex}", last_run_at=now)
    row.save(using=using, force_insert=True)
    row.delete(using=using)


def _ms(cadence: timedelta | None) -> int | None:
    return None if cadence is None else max(0, cadence // timedelta(milliseconds=1))


def _until(hears: Hearing, moment: datetime) -> Hearing:
    return hears._replace(until=min(hears.until, moment))


def hearing_of(*, now: datetime, using: str) -> Hearing:
    """What code outside a scan may judge missed heartbeats by: the recorded scans."""
    run = MaintenanceRun.objects.using(using).filter(name=NAME).first()
    return sightings.hearing(run, None, now, suspect=_failed.is_set())


def reaper_is_current(*, now: datetime, using: str) -> bool:
    """Whether code outside a scan may end a running attempt at its deadline: only while scans keep
    their cadence, so that there is no undiscovered outage.
    """
    if _failed.is_set() or clock.step(using) is not None:
        return False
    run = MaintenanceRun.objects.using(using).filter(name=NAME).first()
    if run is None:
        return True
    return now - run.last_run_at <= sightings.gap(run.cadence_ms)


class ReaperLoop:
    """The scans of one looping process: cheap probes, a recorded scan when something may be due."""

    def __init__(
        self,
        *,
        interval: float,
        ran_by: str,
        using: str,
        lag: float = 0.0,
        next_deadline: Callable[[], datetime | None] | None = None,
        last_scan: Callable[[], datetime | None] = lambda: None,
    ) -> None:
        self.lag = timedelta(seconds=lag)
        self.interval = timedelta(seconds=interval)
        self.ran_by = ran_by
        self.using = using
        self._next_deadline = next_deadline or partial(due_times.next_deadline, using=using)
        self._last_scan = last_scan
        self._witness = Witness(max(self.interval, _LOOKS_EVERY))
        self._steps = clock.steps(using)
        self._calm_until: datetime | None = None
        self._scanned_at: datetime | None = None
        self._beats_read_at: datetime | None = None
        self._beats_due: datetime | None = None

    def tick(self, *, limit: int | None = None) -> ReapResult:
        """Scan if a deadline has passed, a heartbeat may have, or the record grows old.

        With nothing due it costs one probe of the earliest fixed deadline, and once a second one of
        the running jobs.
        """
        self._follow_clock()
        now = clock.now(self.using) - self.lag
        if not self._must_scan(now):
            first = self._next_deadline()
            self.saw()
            # At rest as long as the tick after this one is in time.
            rest = max(_RECORD_EVERY, _RECORD_AT_REST - self.interval)
            recorded = _within(self._scanned_at, now, rest if first is None else _RECORD_EVERY)
            if first is None:
                # Every running job has a deadline: none runs that could be silent.
                self._beats_due = None
                if recorded:
                    return ReapResult()
            elif recorded and first > now and not self._is_silent(now):
                return ReapResult(next_due=self._next(first))
        try:
            reaped = scan(
                cadence=max(self.interval, _RECORD_EVERY),
                ran_by=self.ran_by,
                limit=limit,
                witness=self._witness,
                lag=self.lag,
                calm=self._calm_until is not None and now < self._calm_until,
                using=self.using,
            )
        except DatabaseError:
            self._witness.doubt()
            raise
        self.saw()
        self._scanned_at = self._beats_read_at = now
        self._beats_due = reaped.next_due
        return reaped

    def _follow_clock(self) -> None:
        """Reset what was remembered when the server's clock was set.

        Missed heartbeats are not judged for a while, until every worker has sent one by the new clock.
        """
        before, self._steps = self._steps, clock.steps(self.using)
        if before is not None and before != self._steps:
            self._witness = Witness(max(self.interval, _LOOKS_EVERY))
            self._scanned_at = self._beats_read_at = self._beats_due = None
            self._calm_until = clock.now(self.using) + _CALM

    def saw(self) -> None:
        """Record that the database has just answered; called by the ticking thread after each
        statement.
        """
        self._witness.saw(clock.now(self.using) - self.lag)

    def _must_scan(self, now: datetime) -> bool:
        if (
            _failed.is_set()
            or self._witness.suspect
            or clock.step(self.using) is not None
            or self._scanned_at is None
        ):
            return True
        return self._beats_due is not None and self._beats_due <= now

    def _is_silent(self, now: datetime) -> bool:
        """Whether a heartbeat is overdue that was not known to be; reads at most once a second.

        Of many processes few read: a scan of another one within that second has judged all of them.
        """
        if any(_within(at, now, _BEATS_EVERY) for at in (self._beats_read_at, self._last_scan())):
            return False
        silences = due_times.next_stall_deadlines(1, using=self.using)
        self.saw()
        self._beats_read_at = now
        self._beats_due = silences[0].due if silences else None
        return self._beats_due is not None and self._beats_due <= now

    def _next(self, first: datetime | None) -> datetime | None:
        known = [moment for moment in (first, self._beats_due) if moment is not None]
        return min(known, default=None)


def _within(last: datetime | None, now: datetime, limit: timedelta) -> bool:
    """Whether ``last`` is less than ``limit`` ago; false if the clock was set back."""
    return last is not None and timedelta(0) <= now - last < limit
