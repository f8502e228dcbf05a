"""What waits in the queues, looked at once a minute, for charts of the backlog over time.

Kept in steps of several lengths, each as fine as a chart of its period needs: of a longer step the
moment at which most waited stays, so that a short flood can be seen in a month, too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import NamedTuple

from django.db import IntegrityError, transaction
from django.db.models import Q

from django_ojs import clock, conf
from django_ojs.domain import histogram
from django_ojs.domain.histogram import floor
from django_ojs.domain.states import State
from django_ojs.models import Job, QueueSample, Worker
from django_ojs.services.workers import STALE
from django_ojs.store import selectors, waiting
from django_ojs.store.contention import alone, in_transaction
from django_ojs.store.sessions import statement_timeout
from django_ojs.store.waiting import WaitingJobs

MINUTE = timedelta(minutes=1)
STEPS: Mapping[timedelta, timedelta | None] = {
    MINUTE: timedelta(hours=2),
    timedelta(minutes=15): timedelta(hours=26),
    timedelta(hours=2): timedelta(days=8),
    timedelta(hours=6): None,
}
"""The lengths of the steps, and how long those of each are kept; ``None``: ``OJS["RETENTION"]``."""
ALL = ""
"""The queue of the rows about all queues together."""
MOST_QUEUES = 12
"""Queues with rows of their own, those with the most jobs; the others are in the sum alone."""
COUNTED = 100_000
"""How many jobs are counted for one sample, shared among the queues that have so many."""
_LEAST, _MOST = 100, 1_000
"""How many jobs are counted of each queue at first."""
_RUNNING = 5_000
_LIMIT_MS = 2_000
_COLUMNS = ("queue", "waiting", "capped", "oldest_ms", "running", "ages", "workers", "slots")


class Sample(NamedTuple):
    """What a row says of one queue, or of all."""

    waiting: int
    capped: bool
    oldest_ms: int
    running: int
    ages: Sequence[int]
    workers: int
    slots: int


@dataclass(slots=True)
class _Look:
    """What was seen at one moment."""

    waiting: Mapping[str, WaitingJobs]
    running: Counter[str]
    workers: int
    slots: int


def sample(*, using: str | None = None) -> int:
    """Look, and store what was seen as the sample of this minute, unless it has one; returns the rows
    stored. Counts up to :data:`COUNTED` jobs, and about as many again where there are many queues.
    """
    using = using or conf.current().database
    now = clock.now(using)
    minute = floor(now, MINUTE)
    if QueueSample.objects.using(using).filter(step=60, at=minute, queue=ALL).exists():
        return 0
    return _store(alone(using, partial(_seen, now, using)), minute, using=using)


def _seen(now: datetime, using: str) -> list[QueueSample]:
    # By index even where the planner has no statistics yet, or thinks that nothing waits.
    with statement_timeout(_LIMIT_MS, using=using, by_index=True, in_order=True):
        return _rows(_look(now, using), now)


def _look(now: datetime, using: str) -> _Look:
    names = selectors.queues_with_work(using=using)
    least = min(_MOST, max(_LEAST, COUNTED // max(1, len(names))))
    found = waiting.waiting(dict.fromkeys(names, least), held=_RUNNING, now=now, using=using)
    large = sorted((name for name, jobs in found.items() if jobs.capped), key=_oldest(found))
    if large := large[:MOST_QUEUES]:
        caps = dict.fromkeys(large, max(least, COUNTED // len(large)))
        found |= waiting.waiting(caps, held=_RUNNING, now=now, using=using)
    active = selectors.in_state(Job.objects.using(using), State.ACTIVE).order_by("worker_id")
    live = Worker.objects.using(using).filter(heartbeat_at__gt=now - STALE)
    live = live.exclude(phase=Worker.Phase.STOPPED)
    slots = list(live.values_list("concurrency", flat=True))
    running = Counter(active.values_list("queue", flat=True)[:_RUNNING])
    return _Look(found, running, len(slots), sum(each or 0 for each in slots))


def _oldest(found: Mapping[str, WaitingJobs]) -> Callable[[str], tuple[datetime, str]]:
    return lambda name: (found[name].oldest or datetime.max.replace(tzinfo=UTC), name)


def _rows(look: _Look, now: datetime) -> list[QueueSample]:
    """The row of all queues, and those of the largest."""
    whole = QueueSample(queue=ALL, workers=look.workers, slots=look.slots)
    whole.ages = histogram.empty()
    rows = []
    for name in {*look.waiting, *look.running}:
        jobs = look.waiting.get(name, WaitingJobs())
        waited = timedelta(0) if jobs.oldest is None else max(now - jobs.oldest, timedelta(0))
        row = QueueSample(
            queue=name,
            waiting=jobs.count,
            capped=jobs.capped,
            running=look.running[name],
            oldest_ms=waited // timedelta(milliseconds=1),
        )
        rows.append(row)
        whole.waiting += row.waiting
        whole.capped = whole.capped or row.capped
        whole.running += row.running
        whole.oldest_ms = max(whole.oldest_ms, row.oldest_ms)
        whole.ages = histogram.added(whole.ages, jobs.ages)
    rows = [row for row in rows if row.waiting or row.running]
    rows.sort(key=lambda row: (-row.waiting, -row.running, row.queue))
    return [whole, *rows[:MOST_QUEUES]]


@in_transaction
def _store(rows: Sequence[QueueSample], minute: datetime, *, using: str = "") -> int:
    samples = QueueSample.objects.using(using)
    whole, *others = rows
    whole.at = minute
    try:
        # Another process may have sampled this minute: its rows belong together.
        with transaction.atomic(using=using):
            whole.save(using=using, force_insert=True)
    except IntegrityError:
        return 0
    longer = {step: floor(minute, step) for step in STEPS if step != MINUTE}
    there = Q(*(Q(step=_seconds(step), at=at) for step, at in longer.items()), _connector=Q.OR)
    known = {
        row.step: (row.waiting, row.running)
        for row in samples.filter(there, queue=ALL).only("step", "waiting", "running")
    }
    made = [_copy(row, MINUTE, minute) for row in others]
    for step, at in longer.items():
        before = known.get(_seconds(step))
        if before is None or (whole.waiting, whole.running) > before:
            samples.filter(step=_seconds(step), at=at)._raw_delete(using)
            made += [_copy(row, step, at) for row in rows]
    samples.bulk_create(made)
    for step, keep in STEPS.items():
        if keep is not None:
            samples.filter(step=_seconds(step), at__lt=minute - keep)._raw_delete(using)
    return len(made) + 1


def _copy(row: QueueSample, step: timedelta, at: datetime) -> QueueSample:
    values = {name: getattr(row, name) for name in _COLUMNS}
    return QueueSample(step=_seconds(step), at=at, **values)


def _seconds(step: timedelta) -> int:
    return int(step.total_seconds())


def forget(before: datetime, limit: int, dry_run: bool, using: str) -> int:
    """Delete up to ``limit`` rows from before a time, of the longest steps: the others go earlier."""
    rows = QueueSample.objects.using(using).filter(step=_seconds(max(STEPS)), at__lt=before)
    old = list(rows.values_list("pk", flat=True)[:limit])
    if old and not dry_run:
        QueueSample.objects.using(using).filter(pk__in=old)._raw_delete(using)
    return len(old)


def newest(*, using: str | None = None) -> Mapping[str, Sample]:
    """The sample of this minute or the last by queue, those of all queues too; empty without one."""
    now = clock.now(using or conf.current().database)
    return read(now, MINUTE, using=using).last


@dataclass(frozen=True, slots=True)
class Backlog:
    """The samples of a period: of all queues by step, and of each queue with rows of its own."""

    begin: datetime
    step: timedelta
    whole: Mapping[int, Sample] = field(default_factory=dict)
    queues: Mapping[str, Mapping[int, Sample]] = field(default_factory=dict)
    last: Mapping[str, Sample] = field(default_factory=dict)
    """The newest sample by queue, those of all queues too, if it is of this minute or the last."""
    last_at: datetime | None = None

    def largest(self, most: int) -> list[str]:
        """The names of the queues in which most waited or, where nothing did, most ran."""

        def weight(name: str) -> tuple[int, int]:
            rows = self.queues[name].values()
            return -sum(row.waiting for row in rows), -sum(row.running for row in rows)

        return sorted(self.queues, key=lambda name: (*weight(name), name))[:most]


def read(
    begin: datetime, step: timedelta, *, queue: str | None = None, using: str | None = None
) -> Backlog:
    """The samples since a time in steps of one of the lengths, and the newest, in one statement; with
    ``queue`` of this one alone.
    """
    using = using or conf.current().database
    newest = floor(clock.now(using), MINUTE) - MINUTE
    wanted = Q(step=_seconds(step), at__gte=begin) | Q(step=60, at__gte=newest)
    rows = QueueSample.objects.using(using).filter(wanted).order_by("at")
    if queue is not None:
        rows = rows.filter(queue=queue)
    whole: dict[int, Sample] = {}
    queues: defaultdict[str, dict[int, Sample]] = defaultdict(dict)
    last: dict[datetime, dict[str, Sample]] = {}
    for at, seconds, name, *said in rows.values_list("at", "step", *_COLUMNS):
        found = Sample(*said)
        if seconds == 60 and at >= newest:
            last.setdefault(at, {})[name] = found
        if seconds == _seconds(step) and at >= begin:
            samples = whole if name == ALL else queues[name]
            samples[(at - begin) // step] = found
    last_at = max(last, default=None)
    return Backlog(begin, step, whole, queues, last[last_at] if last_at else {}, last_at)
