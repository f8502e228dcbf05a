"""The row of a schedule: made, changed, and where it stands."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from django_ojs.domain import stored_envelope
from django_ojs.domain.cron import Interval, Tick, Timing, timing_of, zone_of
from django_ojs.domain.envelope import Envelope
from django_ojs.domain.errors import Conflict, InvalidRequest, NotFound
from django_ojs.domain.schedule import DECLARED, ScheduleSource, ScheduleSpec
from django_ojs.models import Schedule
from django_ojs.services.job_defaults import queue_of

MOMENT = timedelta(microseconds=1)
_TIMING = ("expression", "timezone", "enabled", "starts_at", "ends_at")
_SAME = (*_TIMING, "overlap", "catch_up", "catch_up_within_ms", "jitter_ms", "description")


def locked(name: str, *, using: str) -> Schedule:
    """Lock a schedule. Raises :class:`NotFound`."""
    row = Schedule.objects.using(using).select_for_update().filter(pk=name).first()
    if row is None:
        raise no_schedule(name)
    return row


def no_schedule(name: str) -> NotFound:
    """There is no schedule of this name."""
    return NotFound(
        f"no schedule is named {name[:255]!r}", resource_type="cron", resource_id=name[:255]
    )


def is_declared(row: Schedule, *, here: bool) -> bool:
    """Whether a schedule belongs to code or settings: those of this process (``here``), or others, as
    long as it is not given up and has ticks to come: without one nobody would ever give it up.
    """
    has_ticks = row.due_at is not None or row.paused_at is not None
    return row.source in DECLARED and (here or (row.fingerprint != "" and has_ticks))


def refuse_declared(row: Schedule, *, here: bool) -> None:
    """Raise :class:`Conflict` for a schedule that :func:`is_declared`."""
    if is_declared(row, here=here):
        raise Conflict(f"the schedule {row.name!r} is declared in {row.source}: change it there")


def put(
    spec: ScheduleSpec, source: ScheduleSource, *, here: bool, now: datetime, using: str
) -> tuple[Schedule, bool]:
    """Make or change a schedule, and whether it is new. To be called in a transaction.

    A change keeps what has run, and a pause; the next tick stays unless the times have changed. Only a
    declaration changes a schedule that :func:`is_declared`, of which ``here`` is known: anything else
    raises :class:`Conflict`.
    """
    values = {name: getattr(spec, name) for name in _SAME} | {
        "source": source,
        "fingerprint": spec.fingerprint(),
        "type": spec.envelope.type,
        "queue": queue_of(spec.envelope),
        "template": spec.template(),
        "updated_at": now,
    }
    schedules = Schedule.objects.using(using)
    fresh = Schedule(name=spec.name, created_at=now, **values)
    fresh.due_at = next_due(fresh, now)
    row = schedules.select_for_update().filter(pk=spec.name).first()
    if row is None:
        # Two may make it at once: the second finds the row of the first.
        schedules.bulk_create([fresh], ignore_conflicts=True)
        row = locked(spec.name, using=using)
        if row.created_at == now and row.fingerprint == fresh.fingerprint:
            return row, True
    if source not in DECLARED:
        refuse_declared(row, here=here)
    times_changed = any(getattr(row, name) != values[name] for name in _TIMING)
    for name, value in values.items():
        setattr(row, name, value)
    if times_changed or row.due_at is None:
        row.due_at = next_due(row, now)
    row.save(using=using)
    return row, False


def timing(row: Schedule) -> Timing:
    """When a schedule is due."""
    found = timing_of(row.expression, row.timezone)
    return replace(found, anchor=row.due_at) if isinstance(found, Interval) else found


def is_on(row: Schedule) -> bool:
    """Whether it has ticks: it is enabled, and not paused."""
    return row.enabled and row.paused_at is None


def next_tick(row: Schedule, after: datetime) -> Tick | None:
    """The first tick after a time, between the start and the end of the schedule."""
    if row.starts_at is not None and after < row.starts_at:
        after = row.starts_at - MOMENT
    tick = timing(row).after(after)
    if tick is None or (row.ends_at is not None and tick.at >= row.ends_at):
        return None
    return tick


def next_due(row: Schedule, after: datetime) -> datetime | None:
    """The time of :func:`next_tick`; ``None`` of a schedule that is off."""
    tick = next_tick(row, after) if is_on(row) else None
    return None if tick is None else tick.at


def tick_at(row: Schedule, due: datetime) -> Tick:
    """The tick that a schedule is due for."""
    tick = timing(row).after(due - MOMENT)
    return tick if tick is not None and tick.at == due else Tick(due)


def gap_at(row: Schedule, tick: datetime) -> tuple[str, str]:
    """The times on the clock between which there are none, just after a tick that is left out."""
    zone = zone_of(row.timezone)
    before = (tick.astimezone(zone) + MOMENT).replace(tzinfo=None)
    after = (tick + MOMENT).astimezone(zone).replace(tzinfo=None)
    return before.isoformat(), after.isoformat()


def next_run(row: Schedule) -> datetime | None:
    """When the next job is enqueued: the next tick that is not left out; ``None`` if there is none, and
    if this host does not know the zone.
    """
    if row.due_at is None:
        return None
    try:
        tick: Tick | None = tick_at(row, row.due_at)
        while tick is not None and tick.skipped:
            tick = next_tick(row, tick.at)
    except InvalidRequest:
        return None
    return None if tick is None else tick.at


def envelope_of(row: Schedule) -> Envelope:
    """The request for its jobs."""
    return stored_envelope.load(row.template).envelope
