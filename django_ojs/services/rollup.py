"""The minute roll-up: counts of ended and failed jobs, durations and samples of what waits, for all
screens.

A minute is counted when it is 90 seconds old, so that late commits are in it; ``watermark_at`` of
the maintenance run ``rollup`` is how far that has got. One process counts (``services.shared_tasks``).
Counting happens before the transaction that stores it: should two do so, the compare-and-set on the
watermark lets one store the counts.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

from django.db import DatabaseError
from django.db.models import (
    BigIntegerField,
    Case,
    Count,
    Func,
    IntegerField,
    QuerySet,
    Sum,
    Value,
    When,
)

from django_ojs import clock, conf
from django_ojs.domain.events import Kind
from django_ojs.domain.histogram import BUCKETS, COUNTS, Counters, floor
from django_ojs.domain.ids import made_at, uuid7
from django_ojs.domain.job import JobRow
from django_ojs.domain.states import State
from django_ojs.hooks import SLICE, MaintenanceResult, MaintenanceTask
from django_ojs.models import Event, FailureStat, Job, MaintenanceRun, MinuteStat
from django_ojs.services import (
    deploys,
    incidents,
    queue_samples,
    shared_tasks,
    totals,
    type_stats,
)
from django_ojs.services.incidents import FailureCounts
from django_ojs.store import selectors
from django_ojs.store.contention import alone, in_transaction, is_contention

NAME = "rollup"
ALL = ""
"""The queue of the rows that count all queues together."""

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(hours=24)
KEPT = timedelta(hours=26)
"""How long minutes are kept as such: the last hour is compared with that of the day before."""
LATE = timedelta(seconds=90)
MOST_MINUTES = 120
MOST_QUEUES = 500
_TURN = "statistics"
"""The record of the process that counts; that of ``NAME`` is how far it has got."""
_EVERY = 30.0
"""Twice a minute, so that each minute has its sample."""
_PAUSE = 15.0
"""Seconds between runs in one process: ``reap_timeouts --loop`` calls five times a second."""

_TIMED_OUT = frozenset({Kind.TIMEOUT, Kind.STALLED, Kind.TOTAL_TIMEOUT, Kind.TTL_EXPIRED})
_next: dict[str, float] = {}


def task(using: str) -> MaintenanceResult:
    """The roll-up as periodic work: not more often than it has anything to do."""
    if clock.boottime() < _next.get(using, 0.0):
        return MaintenanceResult()
    began = clock.boottime()
    _next[using] = began + _PAUSE
    try:
        if not shared_tasks.take(_TURN, _EVERY, ran_by=shared_tasks.this_process(), using=using):
            return MaintenanceResult()
        counts = Counter(rollup(seconds=SLICE, using=using))
        more = bool(counts) and clock.boottime() - began >= SLICE
        # Afterwards: what cannot be sampled is counted all the same.
        counts["samples"] += queue_samples.sample(using=using)
    except DatabaseError as error:
        if not is_contention(error):
            raise
        return MaintenanceResult()
    if more:
        del _next[using]
    return MaintenanceResult(+counts, more=more)


TASK = MaintenanceTask(NAME, _EVERY, task, enforces=True)


def rollup(
    *, most: int = MOST_MINUTES, seconds: float = math.inf, using: str | None = None
) -> Mapping[str, int]:
    """Count the minutes that are due, oldest first, and merge old ones into hours.

    Ends after ``most`` minutes or ``seconds``, and goes on from there the next time, after a gap of any
    length: no job is pruned before it was counted. The first time it begins 24 hours ago.
    """
    using = using or conf.current().database
    now = clock.now(using)
    until = clock.boottime() + seconds
    last = floor(now - LATE, MINUTE)
    begin = {"last_run_at": now, "watermark_at": last - DAY}
    runs = MaintenanceRun.objects.using(using)
    run, _new = alone(using, partial(runs.get_or_create, defaults=begin, name=NAME))
    watermark, ran_at, at = run.watermark_at, run.last_run_at, run.watermark_at or last - DAY
    counts: Counter[str] = Counter()
    while at < last and counts["minutes"] < most and (not counts or clock.boottime() < until):
        # Skip empty minutes.
        at = min(last, _busy_from(at, using))
        if at >= last:
            break
        minute = _minute(at, using)
        at += MINUTE
        counts["minutes"] += 1
        if minute.counters or minute.increments:
            if not _store(watermark, ran_at, at, now, minute, using=using):
                return counts
            watermark, ran_at = at, now
    if watermark is None or watermark < at:
        _store(watermark, ran_at, at, now, _Minute(), using=using)
    while clock.boottime() < until and _merge_hours(at, now, using=using):
        counts["hours"] += 1
    return counts


def counted_until(using: str) -> datetime | None:
    """The time up to which everything is counted; ``None`` before the first run."""
    runs = MaintenanceRun.objects.using(using).filter(name=NAME)
    return runs.values_list("watermark_at", flat=True).first()


def count_deleted(jobs: Sequence[JobRow], *, using: str) -> None:
    """Add finished jobs to the totals that are deleted before a roll-up has counted them, in the
    transaction that deletes them.
    """
    if not jobs:
        return
    latest = max(job.finished_at for job in jobs if job.finished_at is not None)
    mark = counted_until(using)
    if mark is None or latest < mark:
        return
    runs = MaintenanceRun.objects.using(using).filter(name=NAME)
    run = runs.select_for_update().get()
    assert run.watermark_at is not None
    # A roll-up that has read their minute, and has not stored it, begins it again.
    runs.update(last_run_at=max(clock.now(using), run.last_run_at + timedelta(microseconds=1)))
    totals.store(totals.of_deleted(jobs, run.watermark_at), using=using)


def _busy_from(at: datetime, using: str) -> datetime:
    """The first minute from ``at`` on in which anything was enqueued, ended or failed; five index
    probes.
    """
    found: list[datetime] = []
    for state in (State.COMPLETED, State.DISCARDED, State.CANCELLED):
        rows = selectors.in_state(Job.objects.using(using), state).filter(finished_at__gte=at)
        first = rows.order_by("finished_at").values_list("finished_at", flat=True).first()
        if first is not None:
            found.append(first)
    since = uuid7(int(at.timestamp() * 1000), 0)
    for model in (Event, Job):
        made: QuerySet[Any] = model._default_manager.using(using).filter(pk__gte=since)
        oldest = made.order_by("pk").values_list("pk", flat=True).first()
        if oldest is not None:
            found.append(made_at(oldest))
    return floor(min(found), MINUTE) if found else datetime.max.replace(tzinfo=UTC)


def forget(before: datetime, limit: int, dry_run: bool, using: str) -> int:
    """Delete up to ``limit`` counts from before a time."""
    done = 0
    for model in (MinuteStat, FailureStat):
        rows: QuerySet[Any] = model._default_manager.using(using)
        old = list(
            rows.filter(step__in=(60, 3600), at__lt=before).values_list("pk", flat=True)[: limit - done]
        )
        done += len(old)
        if not dry_run:
            rows.filter(pk__in=old)._raw_delete(using)
    done += incidents.forget(before, limit - done, dry_run, using)
    for others in (queue_samples, type_stats, deploys):
        done += others.forget(before, limit - done, dry_run, using)
    return done


class _Minute(NamedTuple):
    """A minute: the counters of each queue and of all, the failures, what is added to totals."""

    counters: Mapping[str, Counters] = {}
    failures: FailureCounts = FailureCounts()
    increments: totals.Increments = totals.Increments()


def _minute(at: datetime, using: str) -> _Minute:
    """Count a minute."""
    found: defaultdict[str, Counters] = defaultdict(Counters)
    completed = _completed(at, using)
    for group in completed:
        counters = found[group.queue]
        counters.completed += group.number
        if group.ran_in >= 0:
            counters.durations[group.ran_in] += group.number
    increments = totals.of_minute(at, at + MINUTE, completed, using=using)
    for key, amount in increments.items():
        if key.metric is totals.Metric.DISCARDED:
            found[key.queue].discarded += amount.count
        if key.metric is totals.Metric.WAIT:
            waits = found[key.queue or ALL].waits
            for place, count in enumerate(amount.buckets):
                waits[place] += count
    events = _events(at, using)
    only = Count("pk", filter=incidents.FAILURES)
    groups = events.values_list("kind", "queue").annotate(n=Count("pk"), failed=only)
    for kind, name, count, failed in groups.order_by():
        counters = found[name or ALL]
        counters.failed += failed
        counters.timed_out += count if kind in _TIMED_OUT else 0
    failures = FailureCounts()
    if any(counters.failed for counters in found.values()):
        failures = incidents.count(events)
    whole = Counters()
    for counters in found.values():
        whole.add(counters)
    if not whole.events:
        return _Minute(increments=increments)
    busiest = sorted(found, key=lambda name: -found[name].events)[:MOST_QUEUES]
    return _Minute({**{name: found[name] for name in busiest}, ALL: whole}, failures, increments)


def _finished(state: State, at: datetime, using: str) -> QuerySet[Job]:
    """The jobs of one minute: a range of the index ``ojs_job_finished``."""
    rows = selectors.in_state(Job.objects.using(using), state)
    return rows.filter(finished_at__gte=at, finished_at__lt=at + MINUTE)


def _completed(at: datetime, using: str) -> list[totals.CompletedGroup]:
    """The completed jobs of a minute, those that are alike together."""
    ran, waited = Elapsed("started_at", "finished_at"), Elapsed("enqueued_at", "started_at")
    rows = _finished(State.COMPLETED, at, using).alias(ran=ran, waited=waited)
    placed = rows.annotate(
        is_first=Case(When(attempt=1, then=Value(1)), default=Value(0), output_field=IntegerField()),
        ran_in=_bucket("ran"),
        waited_in=_bucket("waited"),
    )
    groups = placed.values_list("queue", "type", "is_first", "ran_in", "waited_in").order_by()
    found = groups.annotate(n=Count("pk"), ran_ms=Sum("ran"), waited_ms=Sum("waited"))
    return [
        totals.CompletedGroup(
            queue, kind, bool(first), ran_in, waited_in, n, int(ran_ms or 0), int(waited_ms or 0)
        )
        for queue, kind, first, ran_in, waited_in, n, ran_ms, waited_ms in found
    ]


class Elapsed(Func):
    """The whole milliseconds from one column to another; 0 if the clock was set back in between."""

    output_field = BigIntegerField()
    arity = 2

    def as_sql(  # type: ignore[override]
        self, compiler: Any, connection: Any, **_: Any
    ) -> Any:
        """For PostgreSQL."""
        template = "CAST(FLOOR(EXTRACT(EPOCH FROM ((%(last)s) - (%(first)s))) * 1000) AS bigint)"
        return self._filled(template, compiler)

    def as_mysql(self, compiler: Any, connection: Any, **_: Any) -> Any:
        """For MariaDB and MySQL."""
        return self._filled("(TIMESTAMPDIFF(MICROSECOND, %(first)s, %(last)s) DIV 1000)", compiler)

    def as_sqlite(self, compiler: Any, connection: Any, **_: Any) -> Any:
        """For SQLite, by a function of Django's backend, which gives microseconds."""
        return self._filled("(django_timestamp_diff(%(last)s, %(first)s) / 1000)", compiler)

    def _filled(self, template: str, compiler: Any) -> Any:
        # Columns only: there are no parameters whose order could matter.
        first, last = (compiler.compile(one)[0] for one in self.get_source_expressions())
        # GREATEST of a value and NULL is no NULL on some databases.
        template = f"CASE WHEN %(last)s < %(first)s THEN 0 ELSE {template} END"
        return template % {"first": first, "last": last}, []


def _bucket(name: str) -> Case:
    cases = [When(**{f"{name}__lte": bound}, then=Value(place)) for place, bound in enumerate(BUCKETS)]
    unknown = When(**{f"{name}__isnull": True}, then=Value(-1))
    return Case(unknown, *cases, default=Value(len(BUCKETS)), output_field=IntegerField())


def _events(at: datetime, using: str) -> QuerySet[Event]:
    """The problems of a minute, by the time in their ids: a range of the primary key."""
    first, end = (uuid7(int(t.timestamp() * 1000), 0) for t in (at, at + MINUTE))
    kinds = sorted({*incidents.FAILED, *map(str, _TIMED_OUT)})
    return Event.objects.using(using).filter(pk__gte=first, pk__lt=end, kind__in=kinds)


@in_transaction
def _store(
    watermark: datetime | None,
    ran_at: datetime,
    at: datetime,
    now: datetime,
    minute: _Minute,
    *,
    using: str = "",
) -> bool:
    """Move the watermark to ``at`` and store; do nothing if another process has moved it, or has
    deleted, since ``ran_at``, what may have been counted here (:func:`count_deleted`).
    """
    mark = MaintenanceRun.objects.using(using).filter(name=NAME, last_run_at=ran_at)
    known: dict[str, Any] = {"watermark_at": watermark}
    if watermark is None:
        known = {"watermark_at__isnull": True}
    if not mark.filter(**known).update(watermark_at=at, last_run_at=now):
        return False
    counted = MinuteStat.objects.using(using).filter(step=60, at=at - MINUTE, queue=ALL)
    if not counted.exists():
        figures = type_stats.of_minute(minute.increments)
        type_stats.store(at - MINUTE, figures, using=using)
        # Their hour may be merged.
        incidents.insert(at - MINUTE, 60, minute.failures.numbers, using=using)
    _insert(at - MINUTE, 60, minute.counters, using)
    incidents.store(minute.failures.incidents.values(), using=using)
    totals.store(minute.increments, using=using)
    return True


def _insert(at: datetime, step: int, counters: Mapping[str, Counters], using: str) -> None:
    """Insert the counts; existing rows stay, in case the watermark was lost."""
    MinuteStat.objects.using(using).bulk_create(
        [
            MinuteStat(
                at=at,
                step=step,
                queue=queue,
                durations=counters.durations,
                waits=counters.waits,
                **{name: getattr(counters, name) for name in COUNTS},
            )
            for queue, counters in counters.items()
        ],
        ignore_conflicts=True,
    )


@in_transaction
def _merge_hours(counted: datetime, now: datetime, *, using: str = "") -> bool:
    """Merge the oldest minutes into an hour if they are older than they are kept, and the oldest
    failures; returns whether there were any. An hour is merged as a whole, and thus when all of it is
    ``counted``.
    """
    minutes = MinuteStat.objects.using(using).filter(step=60)
    failures = FailureStat.objects.using(using).filter(step=60)
    hour, failed = _hour_of(minutes, counted - KEPT), _hour_of(failures, counted - incidents.KEPT)
    if hour is None and failed is None:
        return False
    # Locks out concurrent merges.
    MaintenanceRun.objects.using(using).filter(name=NAME).update(last_run_at=now)
    if hour is not None:
        within = minutes.filter(at__gte=hour, at__lt=hour + HOUR)
        counters: defaultdict[str, Counters] = defaultdict(Counters)
        for row in within.iterator():
            counters[row.queue].add(row)
        _insert(hour, 3600, counters, using)
        within._raw_delete(using)
    if failed is not None:
        incidents.merge(failed, failures.filter(at__gte=failed, at__lt=failed + HOUR), using=using)
    return True


def _hour_of(minutes: QuerySet[Any], before: datetime) -> datetime | None:
    """The hour of the oldest of these, if it ended ``before``."""
    oldest: datetime | None = minutes.order_by("at").values_list("at", flat=True).first()
    if oldest is None or (hour := floor(oldest, HOUR)) + HOUR > before:
        return None
    return hour
