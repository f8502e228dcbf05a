"""Enqueue the jobs of schedules that are due: each tick once, whoever looks.

Nobody leads. Who moves ``due_at`` on from a tick enqueues its job in the same transaction, so that a
process that dies in between leaves the tick to the next one. The row of a schedule is locked before
anything else.
"""

from __future__ import annotations

import json
import logging
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, NamedTuple
from uuid import UUID

from django.db import DatabaseError, transaction
from django.db.models import QuerySet

from django_ojs import clock
from django_ojs.domain.cron import firing_until, latest
from django_ojs.domain.durations import format_instant
from django_ojs.domain.envelope import Envelope
from django_ojs.domain.errors import Duplicate, NotFound, OJSError
from django_ojs.domain.events import Kind
from django_ojs.domain.job import Actor, JobEvent
from django_ojs.domain.schedule import CatchUp, Overlap
from django_ojs.domain.states import TERMINAL
from django_ojs.models import Job, Schedule, ScheduleRun
from django_ojs.services import operate
from django_ojs.services.commit import publish
from django_ojs.services.enqueue import DROPPED, enqueue
from django_ojs.services.schedules import declared, rows
from django_ojs.services.verbs import cancelling
from django_ojs.store.contention import in_transaction, is_contention

logger = logging.getLogger("django_ojs")

LATE = timedelta(seconds=60)
"""A tick that is older was missed: nobody was there to enqueue its job."""
LEFT_OUT = "dst_skip"
"""Why a tick was skipped that no clock showed (OJS cron 5.2)."""
_PAGE = 100
_COUNTED = 100_000
"""Up to how many missed ticks are counted."""
_FIRED = ScheduleRun.Outcomes.FIRED
_SKIPPED = ScheduleRun.Outcomes.SKIPPED
_REFUSED = ScheduleRun.Outcomes.REFUSED
_MISSED = ScheduleRun.Outcomes.MISSED


def fire_due(*, seconds: float | None = None, using: str) -> int:
    """Handle the ticks that are due, for about so long; returns how many schedules were moved on.

    One statement when nothing is due.
    """
    until = None if seconds is None else clock.boottime() + seconds
    done, left = 0, set[str]()
    while True:
        now = clock.now(using)
        due = Schedule.objects.using(using).filter(due_at__lte=now).exclude(name__in=left)
        found = list(due.order_by("due_at", "name")[:_PAGE])
        if not found:
            return done
        for row in found:
            try:
                moved = _turn(row, using=using)
            except OJSError as error:
                # Its zone is gone, say: the others are not to wait for it.
                logger.error("schedule %s is given up: %s", row.name, error)
                moved = _give_up(row, TickResult(_REFUSED, str(error)), using=using)
            except DatabaseError as error:
                if not is_contention(error):
                    raise
                logger.debug("the schedule %s is left for later: %s", row.name, error)
                moved = False
            done += moved
            if not moved:
                left.add(row.name)
            if until is not None and clock.boottime() >= until:
                return done


def _turn(row: Schedule, *, using: str) -> bool:
    """Handle the tick of a schedule; whether it was moved on, by anybody."""
    if declared.is_here(row, using):
        return _advance(row, using=using)
    # Another version of the code declares it, or none does any more.
    if clock.now(using) - (row.due_at or clock.now(using)) > LATE:
        logger.warning("schedule %s: no process declares it any more", row.name)
        return _give_up(row, TickResult(_MISSED, "undeclared"), using=using)
    return False


def _locked(seen: Schedule, using: str) -> Schedule | None:
    """Lock a schedule; ``None`` if it is not as it was seen: moved on, declared otherwise, deleted."""
    try:
        row = rows.locked(seen.name, using=using)
    except NotFound:
        return None
    return row if (row.due_at, row.fingerprint) == (seen.due_at, seen.fingerprint) else None


@in_transaction
def _advance(seen: Schedule, *, using: str = "") -> bool:
    row = _locked(seen, using)
    if row is None or row.due_at is None:
        return True
    now = clock.now(using)
    due = tick = row.due_at
    left_out = rows.tick_at(row, due).skipped
    if now - due > LATE and not left_out:
        found = _caught_up(row, due, now)
        _missed(row, due, until=found or now, now=now, using=using)
        if found is None:
            row.due_at = rows.next_due(row, now)
            row.save(using=using, update_fields=["due_at"])
            return True
        tick = found
    row.due_at = rows.next_due(row, tick)
    if left_out:
        record_run(row, tick, TickResult(_SKIPPED, LEFT_OUT), now=now, using=using)
    elif not _is_done(row, tick, using):
        record_run(row, tick, _run(row, tick, now=now, using=using), now=now, using=using)
    row.save(using=using, update_fields=_MOVED)
    return True


_MOVED = ["due_at", "last_run_at", "last_job_id", "run_count"]


def _caught_up(row: Schedule, due: datetime, now: datetime) -> datetime | None:
    """The last tick that was missed, if it is to be made up for."""
    if row.catch_up != CatchUp.ONE:
        return None
    oldest = max(due - rows.MOMENT, now - timedelta(milliseconds=row.catch_up_within_ms))
    found = latest(rows.timing(row), oldest, now)
    return None if found is None or (row.ends_at is not None and found >= row.ends_at) else found


def _missed(row: Schedule, due: datetime, *, until: datetime, now: datetime, using: str) -> None:
    """Record the ticks from one on, and before a time, as missed, but those that were filled in."""
    end = until if row.ends_at is None else min(until, row.ends_at)
    done = set(_done(row, using).filter(tick__gte=due, tick__lt=end).values_list("tick", flat=True))
    ticks = firing_until(rows.timing(row), due - rows.MOMENT, end)
    missed = islice((tick for tick in ticks if tick not in done), _COUNTED)
    first = next(missed, None)
    if first is not None:
        count = 1 + sum(1 for _ in missed)
        record_run(row, first, TickResult(_MISSED, "late", ticks=count), now=now, using=using)


def _is_done(row: Schedule, tick: datetime, using: str) -> bool:
    """Whether the tick has had its run."""
    return _done(row, using).filter(tick=tick).exists()


def _done(row: Schedule, using: str) -> QuerySet[ScheduleRun]:
    """The runs that a schedule has had, also of ticks ahead of it: the times were changed and changed
    back, or they were filled in.
    """
    return ScheduleRun.objects.using(using).filter(schedule=row.name).exclude(outcome=_MISSED)


class TickResult(NamedTuple):
    """What became of a tick. ``job_id`` is the job, or the one in whose favour it was skipped."""

    outcome: ScheduleRun.Outcomes
    reason: str = ""
    job_id: UUID | None = None
    ticks: int = 1
    by: str = ""


def _run(row: Schedule, tick: datetime, *, now: datetime, using: str) -> TickResult:
    """Enqueue the job of a tick, if the last one allows it."""
    if row.overlap in (Overlap.SKIP, Overlap.CANCEL_PREVIOUS) and (running := _running(row, using)):
        if row.overlap == Overlap.SKIP:
            return TickResult(_SKIPPED, "overlap_skip", running)
        decide = cancelling(actor=Actor("cron", row.name, reason="the next run is due"))
        # It may be gone by now: cancelled and purged by another.
        operate.change_each([running], decide, skip_gone=True, using=using)
    return enqueue_run(row, tick, now=now, using=using, later=_later(row))


def _later(row: Schedule) -> timedelta | None:
    """By how much the job of a tick starts after it."""
    if not row.jitter_ms:
        return None
    return timedelta(milliseconds=int(clock.jitter() * row.jitter_ms))


def _running(row: Schedule, using: str) -> UUID | None:
    """The last job, if it has not ended."""
    if row.last_job_id is None:
        return None
    jobs = Job.objects.using(using).filter(pk=row.last_job_id).exclude(state__in=TERMINAL)
    return row.last_job_id if jobs.exists() else None


def enqueue_run(
    row: Schedule, tick: datetime, *, now: datetime, using: str, later: timedelta | None = None
) -> TickResult:
    """Enqueue a job of a schedule for a tick, whatever else runs: to start at once, or ``later`` than
    the tick.
    """
    try:
        envelope = _envelope(row, tick)
        if later is not None:
            envelope = envelope._replace(scheduled_at=tick + later)
        with transaction.atomic(using=using):
            (job,) = enqueue([envelope], now=now, using=using)
    except Duplicate as error:
        return TickResult(_SKIPPED, "unique", getattr(error.existing, "id", None))
    except OJSError as error:
        logger.error("schedule %s: its job was refused: %s", row.name, error)
        return TickResult(_REFUSED, str(error))
    except DatabaseError:
        raise
    except Exception as error:
        # The enqueue middleware is anybody's code: the next tick is to come all the same.
        logger.exception("schedule %s: its job could not be enqueued", row.name)
        return TickResult(_REFUSED, f"{type(error).__name__}: {error}")
    if job.state == DROPPED:
        return TickResult(_SKIPPED, "dropped")
    if job.deduplicated:
        return TickResult(_SKIPPED, "unique", job.id)
    row.last_job_id, row.last_run_at = job.id, tick
    row.run_count += 1
    return TickResult(_FIRED, "", job.id)


def _envelope(row: Schedule, tick: datetime) -> Envelope:
    envelope = rows.envelope_of(row)
    meta = json.loads(envelope.meta_json)
    meta |= {"cron_name": row.name, "cron_triggered_at": format_instant(tick)}
    envelope = envelope._replace(meta_json=json.dumps(meta))
    if row.overlap == Overlap.ENQUEUE:
        limit = {"key": f"cron:{row.name}", "concurrency": 1}
        envelope = envelope._replace(extra={**(envelope.extra or {}), "rate_limit": limit})
    return envelope


_KINDS = {
    _FIRED: Kind.CRON_TRIGGERED,
    _SKIPPED: Kind.CRON_SKIPPED,
    _REFUSED: Kind.CRON_SKIPPED,
    _MISSED: Kind.CRON_MISSED,
}


def record_run(
    row: Schedule, tick: datetime, result: TickResult, *, now: datetime, using: str
) -> ScheduleRun:
    """Keep what became of a tick, and publish it (OJS cron 9)."""
    run, _ = ScheduleRun.objects.using(using).update_or_create(
        schedule=row.name,
        tick=tick,
        defaults={
            "outcome": result.outcome,
            "reason": result.reason,
            "job_id": result.job_id,
            "count": result.ticks,
            "by": result.by,
            "created_at": now,
        },
    )
    data: dict[str, Any] = {
        "cron_name": row.name,
        "cron_expr": row.expression,
        "cron_expression": row.expression,
        "timezone": row.timezone,
        "job_type": row.type,
        "queue": row.queue,
        "scheduled_at": format_instant(tick),
        "scheduled_time": format_instant(tick),
        "actual_time": format_instant(now),
        "run_count": row.run_count,
    }
    if result.outcome == _FIRED:
        data["job_id"] = str(result.job_id)
    else:
        data["reason"] = result.reason
        if result.job_id is not None:
            data |= {"existing_job_id": str(result.job_id), "active_job_id": str(result.job_id)}
        if result.outcome == _MISSED:
            data["count"] = result.ticks
            logger.warning(
                "schedule %s: %d ticks were missed: %s", row.name, result.ticks, result.reason
            )
        if result.reason == LEFT_OUT:
            data["gap"] = dict(zip(("from", "to"), rows.gap_at(row, tick), strict=True))
    publish([JobEvent(_KINDS[result.outcome], data)], now=now, using=using)
    return run


@in_transaction
def _give_up(seen: Schedule, result: TickResult, *, using: str = "") -> bool:
    """Leave a schedule without a next tick until it is declared, or changed, again.

    Without its fingerprint, to a process that declares the same it is as one that has changed.
    """
    row = _locked(seen, using)
    if row is None or row.due_at is None:
        return True
    now = clock.now(using)
    due = row.due_at
    row.due_at, row.fingerprint = None, ""
    if not _is_done(row, due, using):
        record_run(row, due, result, now=now, using=using)
    row.save(using=using, update_fields=["due_at", "fingerprint"])
    return True
