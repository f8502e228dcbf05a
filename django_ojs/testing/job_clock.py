"""The clock of the jobs, in the hands of a test."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from functools import partial

from django_ojs import clock
from django_ojs.domain.durations import parse_seconds_ms
from django_ojs.domain.suggestions import did_you_mean
from django_ojs.services.promote import promote
from django_ojs.services.rate_limits import admission
from django_ojs.services.reap import reap
from django_ojs.services.schedules import declared, fire
from django_ojs.store import due_times
from django_ojs.testing.committing import as_by_worker, as_committed, refuse_atomic
from django_ojs.testing.draining import drain, is_draining
from django_ojs.testing.in_process import beat_all
from django_ojs.testing.reach import databases_of


class _HostClock(clock.DatabaseClock):
    """The time of this host, for what has nothing to do with a database."""

    def now(self, using: str) -> datetime:
        """Return the time of the host."""
        return clock.host_time()

    stamp = now


@contextmanager
def without_database() -> Iterator[None]:
    """Ask no database for its time in the block. A clock that a test has frozen stays."""
    if isinstance(clock._current, clock.FrozenClock):
        yield
        return
    with clock.using_clock(_HostClock()):
        yield


def _declare(schedules: bool | Collection[str], databases: Sequence[str]) -> None:
    if isinstance(schedules, str):
        raise TypeError("schedules: must be True, or a list of names")
    only = None if schedules is True else list(schedules or ())
    known = {spec.name for spec, _ in declared.declared()}
    for name in only or ():
        if name not in known:
            raise ValueError(did_you_mean(name, sorted(known), "schedules"))
    for using in databases:
        as_committed(using, partial(declared.sync, only, using=using))


class JobClock:
    """The time by which jobs are scheduled, retried and timed out, in this process.

    It is that of every database with queues that the test may use, or of ``using`` alone. It stands
    still from the first call of :meth:`freeze` or :meth:`advance` until :meth:`close`, or the
    end of a ``with`` block. ``django.utils.timezone.now`` goes on: libraries that freeze that are no
    obstacle, ``freeze(timezone.now())`` takes their time over.
    """

    def __init__(self, *, using: str | None = None) -> None:
        self._using = using
        self._frozen: clock.FrozenClock | None = None
        self._stack = ExitStack()

    def __enter__(self) -> JobClock:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Let the clock go on, from the real time."""
        self._frozen = None
        self._stack.close()

    @property
    def now(self) -> datetime:
        """The time (aware, UTC)."""
        if self._frozen is not None:
            return self._frozen.time
        return clock.now(self._databases()[0])

    def _databases(self) -> Sequence[str]:
        return databases_of("JobClock", using=self._using)

    def freeze(self, at: datetime | None = None) -> datetime:
        """Stop the clock, at ``at`` or now; returns its time. Nothing falls due by that.

        Raises ``ValueError`` for a time without a time zone.
        """
        if at is not None and (not isinstance(at, datetime) or at.tzinfo is None):
            raise ValueError("freeze() needs a time with a time zone")
        at = at or self.now
        if self._frozen is None:
            self._frozen = clock.FrozenClock(at)
            self._stack.enter_context(clock.using_clock(self._frozen))
        self._frozen.time = at
        return at

    def advance(
        self,
        by: timedelta | int | str | None = None,
        *,
        work: bool = False,
        schedules: bool | Collection[str] = False,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
    ) -> datetime:
        """Move on by so much; returns the new time.

        ``by`` is seconds, ``timedelta`` or ``"90m"``. Stops at every moment at which something
        falls due on the way, and does there what a worker and a reaper do: jobs and retries become
        available, schedules enqueue, rate limits let jobs in, TTLs, timeouts, missed heartbeats and
        deadlines of workflows are enforced, jobs that run in this process send their signs of life.
        With ``work`` the jobs that
        are available are run, too, now and at each stop. Schedules that the code or the settings
        declare are left out, unless ``schedules`` names them, or is true.
        """
        databases = self._databases()
        refuse_atomic("advance()", databases)
        step = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        if by is not None:
            step += timedelta(milliseconds=parse_seconds_ms(by, "by", allow_zero=True))
        if step < timedelta(0):
            raise ValueError("advance() goes forward: freeze() sets any time")
        until = self.freeze() + step
        if schedules:
            _declare(schedules, databases)
        self._enforce(databases, work)
        while (moment := _next(databases)) is not None and self.now < moment < until:
            self.freeze(moment)
            self._enforce(databases, work)
        self.freeze(until)
        self._enforce(databases, work)
        return until

    def _enforce(self, databases: Sequence[str], work: bool) -> None:
        as_by_worker(beat_all)
        for using in databases:
            as_committed(using, partial(fire.fire_due, using=using))
            as_committed(using, partial(promote, using=using))
            as_committed(using, partial(admission.admit_due, at_once=True, using=using))
            as_committed(using, partial(reap, using=using))
        if work and not is_draining():
            drain(using=self._using)


def _next(databases: Sequence[str]) -> datetime | None:
    """The first moment at which something falls due."""
    known: list[datetime | None] = []
    for using in databases:
        known += [
            due_times.next_due(using=using),
            due_times.next_deadline(using=using),
            due_times.next_admission(using=using),
            due_times.next_tick(using=using),
            *(stall.due for stall in due_times.next_stall_deadlines(1, using=using)),
        ]
    return min((moment for moment in known if moment is not None), default=None)
