"""What became of the demo's jobs, read back from the queue's own tables, as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django_ojs.models import Attempt, Event, Job

HEADINGS = ("job", "state", "attempts", "duration", "error")
KINDS = {
    "execution": "job.timeout",
    "execution, hard": "job.timeout",
    "total": "job.total_timeout",
    "enqueue TTL": "job.ttl_expired",
    "heartbeat": "job.stalled",
}
"""The five timeouts, in the order of telling, and the event that each leaves."""


@dataclass(frozen=True, slots=True)
class Planned:
    """An enqueued job: what it is called, and how it is to end."""

    id: UUID
    label: str
    error: str | None = None
    timeout: str | None = None

    @property
    def state(self) -> str:
        """The state in which it is to end."""
        return "discarded" if self.error else "completed"


@dataclass(frozen=True, slots=True)
class Line:
    """A job as a row of the table; ``seconds`` is the time spent in all its attempts."""

    label: str
    state: str
    attempts: int
    seconds: float | None
    error: str


@dataclass(frozen=True, slots=True)
class Fired:
    """A timeout that was seen to fire."""

    timeout: str
    label: str
    limit: float
    elapsed: float

    def __str__(self) -> str:
        return (
            f"{self.timeout + ' timeout':<24} fired: limit {self.limit:g} s, "
            f"elapsed {self.elapsed:.2f} s ({self.label})"
        )


def lines(planned: Sequence[Planned]) -> list[Line]:
    """The planned jobs as they are now, in the same order."""
    ids = [plan.id for plan in planned]
    jobs = Job.objects.in_bulk(ids)
    spent: dict[UUID, float] = {}
    attempts = Attempt.objects.filter(job_id__in=ids).exclude(outcome="released")
    for job_id, began, ended in attempts.values_list("job_id", "started_at", "ended_at"):
        spent[job_id] = spent.get(job_id, 0.0) + (ended - began).total_seconds()
    return [
        Line(
            plan.label,
            jobs[plan.id].state,
            jobs[plan.id].attempt,
            spent.get(plan.id),
            (jobs[plan.id].error or {}).get("type", ""),
        )
        for plan in planned
        if plan.id in jobs
    ]


def table(rows: Sequence[Line]) -> str:
    """The rows under their headings, numbers to the right."""
    cells: list[tuple[str, ...]] = [HEADINGS]
    for row in rows:
        seconds = "-" if row.seconds is None else f"{row.seconds:.2f} s"
        cells.append((row.label, row.state, str(row.attempts), seconds, row.error or "-"))
    widths = [max(len(row[column]) for row in cells) for column in range(len(HEADINGS))]
    cells.insert(1, tuple("-" * width for width in widths))
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column in (2, 3) else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    )


def fired(planned: Sequence[Planned]) -> list[Fired]:
    """One entry for each of the five timeouts that its job shows to have fired."""
    found = []
    for name in KINDS:
        for plan in planned:
            if plan.timeout == name:
                seen = _fired(plan)
                if seen is not None:
                    found.append(seen)
    return found


def _fired(plan: Planned) -> Fired | None:
    assert plan.timeout is not None
    event = Event.objects.filter(job_id=plan.id, kind=KINDS[plan.timeout]).order_by("id").last()
    job = Job.objects.filter(id=plan.id).first()
    if event is None or job is None:
        return None
    limit, elapsed = _measure(plan, job, event)
    if elapsed is None or elapsed < limit:
        return None
    if plan.timeout == "execution" and elapsed >= limit + job.grace_period_ms / 1000:
        return None
    return Fired(plan.timeout, plan.label, limit, elapsed)


def _measure(plan: Planned, job: Any, event: Any) -> tuple[float, float | None]:
    """Limit and elapsed time in seconds, each from where its clock starts."""
    if plan.timeout == "enqueue TTL":
        return (job.enqueue_ttl_ms or 0) / 1000, _since(job.limits_from, event)
    if plan.timeout == "total":
        return (job.total_timeout_ms or 0) / 1000, _since(job.limits_from, event)
    last = Attempt.objects.filter(job_id=plan.id).order_by("lease_seq").last()
    began = None if last is None else last.started_at
    if plan.timeout == "heartbeat":
        # The job beats right after its start; the event alone knows the last beat, in whole seconds.
        return job.heartbeat_timeout_ms / 1000, _since(began, event)
    hard = job.grace_period_ms if plan.timeout == "execution, hard" else 0
    return (job.timeout_ms + hard) / 1000, _since(began, event)


def _since(began: Any, event: Any) -> float | None:
    return None if began is None else (event.created_at - began).total_seconds()


def wrong(planned: Sequence[Planned], rows: Sequence[Line]) -> list[str]:
    """What did not end as planned, a sentence each."""
    found = []
    if len(rows) != len(planned):
        found.append(f"{len(planned) - len(rows)} jobs are gone")
        return found
    for plan, row in zip(planned, rows, strict=True):
        if row.state != plan.state or row.error != (plan.error or ""):
            ended = f"{row.state} {row.error}".strip()
            meant = f"{plan.state} {plan.error or ''}".strip()
            found.append(f"{plan.label} is {ended}, not {meant}")
    seen = {item.timeout for item in fired(planned)}
    found += [f"the {name} timeout was not seen to fire" for name in KINDS if name not in seen]
    return found
