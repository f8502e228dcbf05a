"""The reaper's own clock: how it notices that it, or the database, was away (decision T9).

Each scan is recorded with its *cadence*: for a loop its longest sleep, for single runs the time
since the run before. Two scans further apart than three cadences (at least 15 s) mean that nobody
could have heard the living, so their stall clocks start again instead of all running out at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

from django.utils.translation import gettext as _

from django_ojs import clock, conf
from django_ojs.domain.durations import format_instant
from django_ojs.models import ChoreRun
from django_ojs.services import reap
from django_ojs.services.reap import Reaped
from django_ojs.store import upcoming
from django_ojs.store.contention import atomically

NAME = "reap"
STALE = timedelta(seconds=120)
"""How long the reaper may be silent before that is news."""
_LEAST_GAP = timedelta(seconds=15)
_BEATS_EVERY = timedelta(seconds=1)
"""How long active rows may go unread by a loop: shorter than any heartbeat timeout kept closely."""
_RECORD_EVERY = timedelta(seconds=5)
"""How long a loop may go unrecorded: three times that is the least gap."""

_failed = threading.Event()


def note_outage() -> None:
    """A scan, beat or report of this process failed because of the database."""
    _failed.set()


def forget_outage() -> None:
    """As if the database had always answered."""
    _failed.clear()


def scan(
    *,
    cadence: timedelta | None,
    ran_by: str,
    limit: int | None = None,
    now: datetime | None = None,
    using: str | None = None,
) -> Reaped:
    """One recorded pass of the reaper.

    ``cadence`` is the longest pause between this scanner's scans, ``None`` for a single run, whose
    cadence is the time since the run before.
    """
    using = using or conf.current().database
    moment = now or clock.now(using)
    suspect = _failed.is_set()
    atomically(using, partial(_record, cadence, ran_by, suspect, moment, using))
    if suspect:
        _failed.clear()
    return reap.reap(limit=limit, now=now, using=using)


def _record(cadence: timedelta | None, ran_by: str, suspect: bool, now: datetime, using: str) -> None:
    runs = ChoreRun.objects.using(using)
    run, first = runs.select_for_update().get_or_create(
        name=NAME, defaults={"last_run_at": now, "ran_by": ran_by}
    )
    since = now - run.last_run_at
    known = not first and run.cadence_ms is not None
    blind = suspect or (known and since > _gap(run.cadence_ms))
    if blind and _may_recover(run, now, using):
        reap.recover(now=now, using=using)
        run.resumed_at = now
    own = cadence if cadence is not None else (None if first else since)
    run.cadence_ms = None if own is None else own // timedelta(milliseconds=1)
    run.last_run_at = now
    run.ran_by = ran_by
    run.save(using=using)


def may_judge(*, now: datetime, using: str) -> bool:
    """Whether somebody else than a scan may end a running attempt: scans are as regular as they
    said, so that no outage is undiscovered.
    """
    if _failed.is_set():
        return False
    run = ChoreRun.objects.using(using).filter(name=NAME).first()
    if run is None:
        return True
    return now - run.last_run_at <= _gap(run.cadence_ms)


def _gap(cadence_ms: int | None) -> timedelta:
    """How far apart two scans may be."""
    return max(3 * timedelta(milliseconds=cadence_ms or 0), _LEAST_GAP)


def _may_recover(run: ChoreRun, now: datetime, using: str) -> bool:
    """Never twice within the larger of 15 s and the longest heartbeat timeout in use."""
    if run.resumed_at is None:
        return True
    longest = upcoming.longest_heartbeat_timeout_ms(using=using)
    # A clock that was set back has no past: what it will see again is no reason to wait for it.
    since = now - run.resumed_at
    return since < timedelta(0) or since > max(_LEAST_GAP, timedelta(milliseconds=longest))


class Loop:
    """The scans of one looping process: cheap probes, a recorded scan when something may be due."""

    def __init__(
        self,
        *,
        interval: float,
        ran_by: str,
        using: str,
        lag: float = 0.0,
        next_deadline: Callable[[], datetime | None] | None = None,
    ) -> None:
        self.lag = timedelta(seconds=lag)
        self.interval = timedelta(seconds=interval)
        self.ran_by = ran_by
        self.using = using
        self._next_deadline = next_deadline or partial(upcoming.next_deadline, using=using)
        self._scanned_at: datetime | None = None
        self._beats_read_at: datetime | None = None
        self._beats_due: datetime | None = None

    def tick(self, *, limit: int | None = None) -> Reaped:
        """Scan if a deadline has passed, a heartbeat may have, or the record grows old.

        With nothing due it costs one probe of the earliest fixed deadline, and once a second one of
        the running jobs.
        """
        now = clock.now(self.using) - self.lag
        if not self._must_scan(now):
            first = self._next_deadline()
            if (first is None or first > now) and not self._is_silent(now):
                return Reaped(next_due=self._next(first))
        reaped = scan(
            cadence=max(self.interval, _RECORD_EVERY),
            ran_by=self.ran_by,
            limit=limit,
            now=now if self.lag else None,
            using=self.using,
        )
        self._scanned_at = self._beats_read_at = now
        self._beats_due = reaped.next_due
        return reaped

    def _must_scan(self, now: datetime) -> bool:
        if _failed.is_set() or not _within(self._scanned_at, now, _RECORD_EVERY):
            return True
        return self._beats_due is not None and self._beats_due <= now

    def _is_silent(self, now: datetime) -> bool:
        """Whether beats are overdue that were not known to be; looked at now and then."""
        if _within(self._beats_read_at, now, _BEATS_EVERY):
            return False
        silences = upcoming.next_silences(1, using=self.using)
        self._beats_read_at = now
        self._beats_due = silences[0].due if silences else None
        return self._beats_due is not None and self._beats_due <= now

    def _next(self, first: datetime | None) -> datetime | None:
        known = [moment for moment in (first, self._beats_due) if moment is not None]
        return min(known, default=None)


def _within(last: datetime | None, now: datetime, limit: timedelta) -> bool:
    """Whether ``last`` is less than ``limit`` ago; a clock that was set back has no past."""
    return last is not None and timedelta(0) <= now - last < limit


def troubles(now: datetime, using: str) -> list[str]:
    """What is wrong with the enforcement of timeouts, if anything."""
    return trouble_of(ChoreRun.objects.using(using).filter(name=NAME).first(), now)


def trouble_of(run: ChoreRun | None, now: datetime) -> list[str]:
    """What is wrong if this is the reaper's last run."""
    if run is None:
        return [_("The reaper has never run: start a worker or `reap_timeouts --loop`.")]
    if now - run.last_run_at > max(STALE, 3 * timedelta(milliseconds=run.cadence_ms or 0)):
        return [_("The reaper last ran at %s.") % format_instant(run.last_run_at)]
    return []
