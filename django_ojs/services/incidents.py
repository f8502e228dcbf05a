"""Failures by incident: counted minute by minute by the roll-up, read by screens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db import connections
from django.db.models import Count, Max, Min, Q, QuerySet, Sum
from django.db.models.fields.json import KT
from django.db.models.functions import Left

from django_ojs.domain.events import Kind
from django_ojs.domain.incidents import MOST_ERROR, MOST_MESSAGE, identify, normalised
from django_ojs.models import Event, FailureStat, Incident

NOWHERE = ""
"""The queue of failures that have none."""
OTHER = "…"
"""The type and the error of failures beyond the most frequent ones of their minute."""
MOST = 200
"""How many kinds of failure are kept apart in a minute, or an hour."""
KEPT = timedelta(hours=3)
"""How long their minutes are kept as such: as long as the longest window that does not begin at a whole
hour. A day of minutes would be sixty times what a screen has to read.
"""
FAILED = {
    # Without a failed attempt this is the only event with the error.
    str(Kind.TOTAL_TIMEOUT): "total_timeout",
    str(Kind.TTL_EXPIRED): "enqueue_ttl_expired",
    str(Kind.FAILED): "unknown",
}
"""The kinds of event that are failures, and the error where the event has none."""
FAILURES = Q(kind__in=FAILED) & (~Q(kind=str(Kind.TOTAL_TIMEOUT)) | Q(data__lookahead__isnull=True))
"""The events that are counted: a job that is given up because no attempt fits into its total timeout
has had a failed one.
"""


class FailureKey(NamedTuple):
    """What failures are counted by."""

    queue: str
    type: str
    error: str
    incident: str


REST = FailureKey(NOWHERE, OTHER, OTHER, "")
Failures = Mapping[FailureKey, int]


@dataclass(slots=True)
class FailureCounts:
    """The failures of a minute, and the incidents that they belong to."""

    numbers: Failures = field(default_factory=dict)
    incidents: Mapping[str, Incident] = field(default_factory=dict)


def count(events: QuerySet[Event]) -> FailureCounts:
    """The failures among these events: the most frequent ones, and the rest in one."""
    rows = events.filter(FAILURES).annotate(
        said=KT("data__error__type"), message=Left(KT("data__error__message"), MOST_MESSAGE)
    )
    grouped = rows.values_list("queue", "job_type", "said", "message", "kind").annotate(
        n=Count("pk"), first=Min("created_at"), last=Max("created_at")
    )
    numbers: Counter[FailureKey] = Counter()
    incidents: dict[str, Incident] = {}
    for queue, job_type, said, message, kind, n, first, last in grouped.order_by().iterator():
        error = (said if kind == Kind.FAILED and said else FAILED[kind])[:MOST_ERROR]
        made = Incident(
            id=identify(job_type or OTHER, error, message or ""),
            type=job_type or OTHER,
            error=error,
            message=normalised(message or ""),
            sample=message or "",
            first_seen=first,
            last_seen=last,
        )
        numbers[FailureKey(queue or NOWHERE, made.type, error, made.id)] += n
        incidents[made.id] = _joined(incidents.get(made.id), made)
    kept = most(numbers)
    ids = {key.incident for key in kept}
    return FailureCounts(kept, {key: one for key, one in incidents.items() if key in ids})


def _joined(one: Incident | None, other: Incident) -> Incident:
    if one is None:
        return other
    latest = max(one, other, key=lambda incident: incident.last_seen)
    latest.first_seen = min(one.first_seen, other.first_seen)
    return latest


def most(found: Counter[FailureKey]) -> Failures:
    """The most frequent ones, and the sum of the rest under one key."""
    kept = Counter(dict(found.most_common(MOST)))
    kept[REST] += sum(n for key, n in found.items() if key not in kept)
    return +kept


def store(incidents: Iterable[Incident], *, using: str) -> None:
    """Insert the incidents; of those that are known, only what was seen last changes."""
    target: dict[str, Any] = {}
    if connections[using].features.supports_update_conflicts_with_target:
        target["unique_fields"] = ["id"]
    # In one order, so that concurrent roll-ups do not wait for each other crosswise.
    rows = sorted(incidents, key=lambda incident: incident.id)
    Incident.objects.using(using).bulk_create(
        rows, update_conflicts=True, update_fields=["sample", "last_seen"], **target
    )


def forget(before: datetime, limit: int, dry_run: bool, using: str) -> int:
    """Delete up to ``limit`` incidents that were last seen before a time."""
    rows = Incident.objects.using(using)
    old = list(rows.filter(last_seen__lt=before).values_list("pk", flat=True)[:limit])
    if not dry_run:
        rows.filter(pk__in=old)._raw_delete(using)
    return len(old)


def insert(at: datetime, step: int, numbers: Failures, *, using: str) -> None:
    """Insert the counts of a minute or hour; existing rows stay, in case the watermark was lost."""
    FailureStat.objects.using(using).bulk_create(
        [FailureStat(at=at, step=step, count=n, **key._asdict()) for key, n in numbers.items()],
        ignore_conflicts=True,
    )


def merge(hour: datetime, minutes: QuerySet[FailureStat], *, using: str) -> None:
    """Put one hour in the place of its minutes; to be called by who alone may do so."""
    summed = minutes.values_list(*FailureKey._fields).annotate(n=Sum("count")).order_by()
    found = Counter({FailureKey(*key): int(n) for *key, n in summed})
    insert(hour, 3600, most(found), using=using)
    minutes._raw_delete(using)
