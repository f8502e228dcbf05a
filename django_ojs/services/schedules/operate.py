"""What operators and clients do to schedules: make, change, delete, pause, resume, run now, fill in."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django_ojs import clock
from django_ojs.domain.cron import firing_until
from django_ojs.domain.durations import format_instant
from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.job import Actor
from django_ojs.domain.schedule import DECLARED, ScheduleSource, ScheduleSpec
from django_ojs.models import Schedule, ScheduleRun
from django_ojs.services import audit, databases
from django_ojs.services.job_defaults import queue_of
from django_ojs.services.schedules import declared, rows
from django_ojs.services.schedules.fire import TickResult, enqueue_run, record_run
from django_ojs.store.contention import in_transaction

API = Actor()
MOST_FILLED_IN = 1000


@in_transaction
def put(
    spec: ScheduleSpec, *, source: ScheduleSource, actor: Actor = API, using: str = ""
) -> tuple[Schedule, bool]:
    """Make a schedule, or change the one of that name; and whether it is new.

    Raises :class:`Conflict` for one that is declared in code or settings, unless it was given up or
    has no ticks any more, and this process does not declare it; :class:`InvalidRequest` for jobs whose
    queue is in another database.
    """
    databases.refuse_elsewhere(queue_of(spec.envelope), using, "the schedule")
    databases.refuse_shared_keys(spec.envelope, using)
    here = declared.declares(spec.name, using)
    row, is_new = rows.put(spec, source, here=here, now=clock.now(using), using=using)
    _audit("made" if is_new else "changed", row, actor, using, expression=row.expression)
    return row, is_new


@in_transaction
def delete(name: str, *, actor: Actor = API, using: str = "") -> Schedule:
    """Delete a schedule; its jobs and the record of its runs stay. Raises as :func:`put`."""
    row = rows.locked(name, using=using)
    rows.refuse_declared(row, here=declared.declares(name, using))
    Schedule.objects.using(using).filter(pk=name).delete()
    _audit("deleted", row, actor, using)
    return row


@in_transaction
def pause(name: str, *, actor: Actor = API, using: str = "") -> tuple[Schedule, bool]:
    """Let a schedule have no ticks until it is resumed, also across deployments; and whether it was
    not paused before.
    """
    row = rows.locked(name, using=using)
    changed = row.paused_at is None
    if changed:
        row.paused_at, row.paused_by = clock.now(using), actor.name[:255]
        row.pause_reason, row.due_at = actor.reason, None
        row.save(using=using)
        _audit("paused", row, actor, using)
    return row, changed


@in_transaction
def resume(name: str, *, actor: Actor = API, using: str = "") -> tuple[Schedule, bool]:
    """End a pause; ticks during it are not made up for. One that is not enabled is, unless declared
    so. The second value is whether anything changed.
    """
    row = rows.locked(name, using=using)
    changed = row.paused_at is not None
    if not row.enabled and row.source not in DECLARED:
        row.enabled = changed = True
    if changed:
        row.paused_at, row.paused_by, row.pause_reason = None, "", ""
        row.due_at = rows.next_due(row, clock.now(using))
        row.save(using=using)
        _audit("resumed", row, actor, using)
    return row, changed


@in_transaction
def run_now(name: str, *, actor: Actor = API, using: str = "") -> tuple[Schedule, ScheduleRun]:
    """Enqueue a job of a schedule now, whatever its times and its last job; and what became of it."""
    row = rows.locked(name, using=using)
    now = clock.now(using)
    run = _run(row, now, now=now, actor=actor, using=using)
    _audit("triggered", row, actor, using, **_made(run))
    return row, run


def _run(row: Schedule, tick: datetime, *, now: datetime, actor: Actor, using: str) -> ScheduleRun:
    result: TickResult = enqueue_run(row, tick, now=now, using=using)
    by = actor.name or actor.source
    run = record_run(row, tick, result._replace(by=by[:255]), now=now, using=using)
    row.save(using=using, update_fields=["last_run_at", "last_job_id", "run_count"])
    return run


def _made(run: ScheduleRun) -> dict[str, str]:
    """What the audit says of a run: its job, or why there is none."""
    if run.job_id is not None:
        return {"job_id": str(run.job_id)}
    return {"outcome": run.outcome, "why": run.reason}


def missing_ticks(name: str, since: datetime, until: datetime, *, using: str) -> Sequence[datetime]:
    """The ticks from one time on and before another without a job, in their order: as far as the
    schedule goes, from its start to its end.

    Raises :class:`InvalidRequest` for more than 1,000, or where ``until`` is not after ``since``.
    """
    row = Schedule.objects.using(using).filter(pk=name).first()
    if row is None:
        raise rows.no_schedule(name)
    if until <= since:
        raise InvalidRequest("to", "must be after from")
    since = max(since, row.starts_at or since)
    until = min(until, row.ends_at or until, clock.now(using))
    done = set(
        ScheduleRun.objects.using(using)
        .filter(schedule=name, outcome=ScheduleRun.Outcomes.FIRED, tick__gte=since, tick__lt=until)
        .values_list("tick", flat=True)
    )
    ticks = firing_until(rows.timing(row), since - rows.MOMENT, until)
    found: list[datetime] = []
    for tick in ticks:
        if tick not in done:
            found.append(tick)
        if len(found) > MOST_FILLED_IN:
            raise InvalidRequest(
                "to", f"there are more than {MOST_FILLED_IN} runs: take a shorter time"
            )
    return found


def backfill(
    name: str, since: datetime, until: datetime, *, actor: Actor = API, using: str
) -> list[ScheduleRun]:
    """Enqueue the jobs of :func:`missing_ticks`, each in a transaction of its own."""
    ticks = missing_ticks(name, since, until, using=using)
    return [run for tick in ticks if (run := _fill_in(name, tick, actor=actor, using=using))]


@in_transaction
def _fill_in(name: str, tick: datetime, *, actor: Actor, using: str = "") -> ScheduleRun | None:
    row = rows.locked(name, using=using)
    known = ScheduleRun.objects.using(using).filter(schedule=name, tick=tick).first()
    if known is not None and known.outcome == ScheduleRun.Outcomes.FIRED:
        return None
    last = row.last_job_id, row.last_run_at
    run = _run(row, tick, now=clock.now(using), actor=actor, using=using)
    # What was made up for does not hold up the next tick.
    row.last_job_id, row.last_run_at = last
    row.save(using=using, update_fields=["last_run_at", "last_job_id"])
    _audit("backfilled", row, actor, using, tick=format_instant(tick), **_made(run))
    return run


def _audit(verb: str, row: Schedule, actor: Actor, using: str, **data: Any) -> None:
    audit.note(f"schedule.{verb}", actor, target=("schedule", row.name), using=using, **data)
