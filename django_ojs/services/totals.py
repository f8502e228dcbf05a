"""Totals for monitoring: what was ever counted, by metric, queue and type.

They are added to by the roll-up, in the transaction that moves its watermark: each minute counts
once, whatever is deleted later. A table, and not counters in a process: a scrape meets another
process each time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from django.db.models import Count, QuerySet

from django_ojs.domain import histogram
from django_ojs.domain.events import Kind
from django_ojs.domain.ids import uuid7
from django_ojs.domain.job import JobRow
from django_ojs.domain.states import State
from django_ojs.models import Event, Job, Total
from django_ojs.store import selectors

MOST_PAIRS = 200
"""The pairs of queue and type with totals of their own; later ones count together."""
REST = "…"
"""The queue and the type of all later pairs."""
_BATCH = 500


class Metric(StrEnum):
    """What is counted. The first five are jobs, the rest attempts."""

    ENQUEUED = "enqueued"
    COMPLETED = "completed"
    DISCARDED = "discarded"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    RETRIED = "retried"
    TIMEOUT = "timeout"
    EXECUTION = "execution"
    WAIT = "wait"
    FIRST_WAIT = "first_wait"
    DEDUPLICATED = "deduplicated"


_ENDED = {State.DISCARDED: Metric.DISCARDED, State.CANCELLED: Metric.CANCELLED}


class Key(NamedTuple):
    """One total: ``label`` is the outcome of an attempt, or the kind of a timeout."""

    metric: Metric
    queue: str
    type: str
    label: str = ""


@dataclass(slots=True)
class Amount:
    """A count; of durations also their sum, and how many were in each bucket."""

    count: int = 0
    sum_ms: int = 0
    buckets: list[int] = field(default_factory=list)

    def add(self, count: int, sum_ms: int = 0, buckets: Iterable[int] = ()) -> None:
        """Count more."""
        self.count += count
        self.sum_ms += sum_ms
        if buckets := list(buckets):
            self.buckets = self.buckets or histogram.empty()
            for place, more in enumerate(buckets[: len(self.buckets)]):
                self.buckets[place] += more

    def add_to(self, place: int, count: int, sum_ms: int) -> None:
        """Count durations of one bucket."""
        self.buckets = self.buckets or histogram.empty()
        self.buckets[place] += count
        self.count += count
        self.sum_ms += sum_ms


class Increments(dict[Key, Amount]):
    """What is to be added to the totals."""

    def __missing__(self, key: Key) -> Amount:
        return self.setdefault(key, Amount())


class CompletedGroup(NamedTuple):
    """Completed jobs of a minute that are alike; a bucket of -1 is not known."""

    queue: str
    type: str
    is_first: bool
    ran_in: int
    waited_in: int
    number: int
    ran_ms: int
    waited_ms: int


def of_minute(
    at: datetime, until: datetime, completed: Iterable[CompletedGroup], *, using: str
) -> Increments:
    """What happened in a minute, given the jobs that completed in it."""
    increments = Increments()
    for group in completed:
        _count_completed(increments, group)
    jobs = Job.objects.using(using)
    for state, metric in _ENDED.items():
        rows = selectors.in_state(jobs, state).filter(finished_at__gte=at, finished_at__lt=until)
        for queue, job_type, count in _grouped(rows, "queue", "type"):
            increments[Key(metric, queue, job_type)].add(count)
    first, end = (uuid7(int(moment.timestamp() * 1000), 0) for moment in (at, until))
    made = jobs.filter(pk__gte=first, pk__lt=end)
    for queue, job_type, count in _grouped(made, "queue", "type"):
        increments[Key(Metric.ENQUEUED, queue, job_type)].add(count)
    events = Event.objects.using(using).filter(pk__gte=first, pk__lt=end, kind__in=_EVENTS)
    for kind, found_queue, found_type, data in events.values_list(
        "kind", "queue", "job_type", "data"
    ).iterator(chunk_size=1000):
        _count_event(increments, kind, found_queue or "", found_type or "", data)
    return increments


def of_deleted(jobs: Iterable[JobRow], since: datetime) -> Increments:
    """What a roll-up would count of these finished jobs from ``since`` on, but for their events."""
    increments, first = Increments(), uuid7(int(since.timestamp() * 1000), 0)
    for job in jobs:
        if job.id >= first:
            increments[Key(Metric.ENQUEUED, job.queue, job.type)].add(1)
        if job.finished_at is None or job.finished_at < since:
            continue
        if job.state != State.COMPLETED:
            increments[Key(_ENDED[State(job.state)], job.queue, job.type)].add(1)
            continue
        ran_ms = _elapsed_ms(job.started_at, job.finished_at)
        waited_ms = _elapsed_ms(job.enqueued_at, job.started_at)
        places = (-1 if ms is None else histogram.place(ms) for ms in (ran_ms, waited_ms))
        group = (job.queue, job.type, job.attempt == 1, *places, 1, ran_ms or 0, waited_ms or 0)
        _count_completed(increments, CompletedGroup._make(group))
    return increments


def _elapsed_ms(since: datetime | None, until: datetime | None) -> int | None:
    if since is None or until is None:
        return None
    return max(0, (until - since) // timedelta(milliseconds=1))


def _grouped(rows: QuerySet[Any], *names: str) -> Iterable[tuple[Any, ...]]:
    return list(rows.order_by().values_list(*names).annotate(n=Count("pk")))


def _count_completed(increments: Increments, group: CompletedGroup) -> None:
    queue, job_type, count = group.queue, group.type, group.number
    increments[Key(Metric.COMPLETED, queue, job_type)].add(count)
    if group.ran_in >= 0:
        key = Key(Metric.EXECUTION, queue, job_type, "completed")
        increments[key].add_to(group.ran_in, count, group.ran_ms)
    if group.waited_in >= 0:
        increments[Key(Metric.WAIT, queue, job_type)].add_to(group.waited_in, count, group.waited_ms)
        if group.is_first:
            key = Key(Metric.FIRST_WAIT, queue, "")
            increments[key].add_to(group.waited_in, count, group.waited_ms)


_TIMEOUTS = (Kind.TIMEOUT, Kind.STALLED, Kind.TOTAL_TIMEOUT, Kind.TTL_EXPIRED)
_EVENTS = tuple(map(str, (*_TIMEOUTS, Kind.FAILED, Kind.RETRYING, Kind.DISCARDED, Kind.DEDUPLICATED)))


def _count_event(
    increments: Increments, kind: str, queue: str, job_type: str, data: Mapping[str, Any]
) -> None:
    if kind in _TIMEOUTS:
        label = str(data.get("timeout_kind", ""))
        increments[Key(Metric.TIMEOUT, queue, job_type, label)].add(1)
    if kind == Kind.TTL_EXPIRED:
        increments[Key(Metric.EXPIRED, queue, job_type)].add(1)
    if kind == Kind.DEDUPLICATED:
        label = str(data.get("on_conflict", ""))
        increments[Key(Metric.DEDUPLICATED, queue, job_type, label)].add(1)
    if kind == Kind.RETRYING:
        increments[Key(Metric.RETRIED, queue, job_type)].add(1)
    ran_ms, waited_ms = data.get("duration_ms"), data.get("waited_ms")
    if "outcome" not in data or ran_ms is None:
        return
    key = Key(Metric.EXECUTION, queue, job_type, str(data["outcome"]))
    increments[key].add_to(histogram.place(ran_ms), 1, ran_ms)
    if waited_ms is not None:
        place = histogram.place(waited_ms)
        increments[Key(Metric.WAIT, queue, job_type)].add_to(place, 1, waited_ms)
        if data.get("attempt") == 1:
            increments[Key(Metric.FIRST_WAIT, queue, "")].add_to(place, 1, waited_ms)


def store(increments: Increments, *, using: str) -> None:
    """Add to the totals; to be called by who alone may count these minutes."""
    if not increments:
        return
    rows = Total.objects.using(using)
    pairs = {*rows.order_by().values_list("queue", "type").distinct()}
    folded = Increments()
    for key, amount in sorted(increments.items()):
        if (key.queue, key.type) not in pairs:
            if len(pairs) < MOST_PAIRS:
                pairs.add((key.queue, key.type))
            else:
                key = key._replace(queue=REST, type=REST if key.type else "")
        folded[key].add(amount.count, amount.sum_ms, amount.buckets)
    queues = {key.queue for key in folded}
    known = {
        Key(Metric(row.metric), row.queue, row.type, row.label): row
        for row in rows.filter(queue__in=queues)
    }
    new = [_row(key, amount) for key, amount in folded.items() if key not in known]
    rows.bulk_create(new, batch_size=_BATCH)
    changed = [_added(known[key], amount) for key, amount in folded.items() if key in known]
    if changed:
        rows.bulk_update(changed, ["count", "sum_ms", "buckets"], batch_size=_BATCH)


def _row(key: Key, amount: Amount) -> Total:
    return Total(
        metric=key.metric.value,
        queue=key.queue,
        type=key.type,
        label=key.label,
        count=amount.count,
        sum_ms=amount.sum_ms,
        buckets=amount.buckets or None,
    )


def _added(row: Total, amount: Amount) -> Total:
    whole = Amount(row.count, row.sum_ms, list(row.buckets or ()))
    whole.add(amount.count, amount.sum_ms, amount.buckets)
    row.count, row.sum_ms, row.buckets = whole.count, whole.sum_ms, whole.buckets or None
    return row


def read(*, using: str) -> list[Total]:
    """All totals, in order."""
    return list(Total.objects.using(using).order_by("metric", "queue", "type", "label"))
