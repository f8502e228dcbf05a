"""What became of the jobs of bulk work: the audit has a row for each, after that of the order."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import Count, Max, OuterRef, Subquery, UUIDField, Value
from django.db.models.functions import Cast, Replace

from django_ojs.models import AuditEntry, Job

MOST = 40_000
"""How many rows of the audit are looked at after that of the order."""


@dataclass(frozen=True, slots=True)
class BulkOutcome:
    """The jobs that an order has changed, by the state that they are in now; ``deleted`` are gone.

    ``whole`` is whether these are all of them.
    """

    states: Counter[str]
    deleted: int
    whole: bool

    @property
    def jobs(self) -> int:
        """How many jobs were looked at."""
        return self.states.total() + self.deleted


def outcome(job_id: UUID, done: int, *, using: str) -> BulkOutcome | None:
    """What became of the ``done`` jobs of a bulk job, in three statements; ``None`` if the audit does
    not know.
    """
    audit = AuditEntry.objects.using(using)
    given = audit.filter(target_id=str(job_id), action="bulk.started").order_by("pk")
    begin = given.values_list("pk", flat=True).first()
    if begin is None:
        return None
    after = audit.filter(pk__gt=begin)
    last = after.order_by("pk").values("pk")[:MOST].aggregate(last=Max("pk"))["last"]
    if last is None:
        return None
    written = after.filter(pk__lte=last, target_type="job", data__bulk_job_id=str(job_id))
    # A look at each job by its key, which no planner takes for a reason to read the whole table.
    key = Cast(Replace("target_id", Value("-"), Value("")), UUIDField())
    state = Job.objects.using(using).filter(pk=OuterRef("key")).values("state")
    rows = written.annotate(key=key).annotate(now=Subquery(state)).order_by()
    states: Counter[Any] = Counter(dict(rows.values_list("now").annotate(n=Count("pk"))))
    deleted = states.pop(None, 0)
    if not states.total() + deleted:
        return None
    return BulkOutcome(states, deleted, states.total() + deleted >= done)
