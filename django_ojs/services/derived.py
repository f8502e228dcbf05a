"""Routine events that are not stored, derived on demand from the jobs and their attempts.

``job.enqueued`` and ``job.scheduled`` stand where the id of the job stands, ``job.started`` and
``job.completed`` where the job has ended, both by an index that is there anyway. A long transaction may
commit behind a reader's place, and that reader misses its events: store events where none may be
missed.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import F, Q, QuerySet, TextField
from django.db.models.functions import Cast, Length

from django_ojs import clock, conf
from django_ojs.domain.durations import format_instant
from django_ojs.domain.events import Kind
from django_ojs.domain.ids import made_at, time_of, uuid7
from django_ojs.domain.states import State
from django_ojs.domain.timeouts import elapsed
from django_ojs.models import Attempt, Event, Job
from django_ojs.services import stream
from django_ojs.services.stream import Wanted
from django_ojs.store import selectors

DERIVABLE: frozenset[str] = frozenset({Kind.ENQUEUED, Kind.SCHEDULED, Kind.STARTED, Kind.COMPLETED})
SETTLING = timedelta(milliseconds=250)
"""Younger events may be overtaken by a pending commit; they are not returned yet."""
_OLDER = timedelta(milliseconds=250)
"""By how much at most an id may be older or newer than its job: two clocks are no more alike."""
WINDOW = 50_000
"""How many jobs, ends of jobs and stored events are looked through for a reader who wants some."""
_ENTRY_COLUMNS = ("type", "queue", "priority", "created_at", "scheduled_at", "retry_delay_ms")
_END_COLUMNS = ("type", "queue", "lease_seq", "finished_at")
_HISTORY_COLUMNS = (
    *_ENTRY_COLUMNS,
    *("state", "attempt", "enqueued_at", "lease_seq", "lease_id", "started_at", "worker_id"),
)
_ATTEMPT_COLUMNS = ("job_id", "lease_seq", "attempt", "worker_id", "outcome", "started_at", "ended_at")
"""Without what may be large: arguments, and the errors of a thousand attempts."""
_ENTRIES = frozenset({Kind.ENQUEUED, Kind.SCHEDULED})
_MOST_ATTEMPTS = 1000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TICK = timedelta(microseconds=1)
_FIRST = UUID(int=0)
_LAST = UUID(int=(1 << 128) - 1)
_ALL_BITS = (1 << 74) - 1
_SHORT = 1024
"""Characters of a result that an event repeats, as those that are stored."""


@dataclass(frozen=True, slots=True)
class Place:
    """Up to where a reader has read: a place in the stored events, a job by its id, the end of a job.

    ``half`` is 0 if the start of that last job was returned and its end was not.
    """

    stored: int = 0
    job_id: UUID = _FIRST
    ended_at: datetime = _EPOCH
    ended_id: UUID = _FIRST
    half: int = 1

    def packed(self) -> list[Any]:
        """The place as JSON values."""
        micros = (self.ended_at - _EPOCH) // _TICK
        return [self.stored, self.job_id.hex, micros, self.ended_id.hex, self.half]

    @classmethod
    def unpacked(cls, values: list[Any]) -> Place:
        """The place of :meth:`packed`."""
        stored, job, micros, ended, half = values
        return cls(stored, UUID(job), _EPOCH + micros * _TICK, UUID(ended), half)


Item = tuple[tuple[int, int], Event | None, dict[str, Any]]
"""An event, behind its order (millisecond, rank of its source), before what it changes of the place.

``None`` stands for the end of a window: what lies behind it has not been read.
"""


class Page(NamedTuple):
    """Events, the place behind them, and whether there are more: maybe on the next page but one."""

    events: list[Event]
    place: Place
    more: bool


def derived_kinds() -> frozenset[str]:
    """The kinds that these settings do not store and that can be derived."""
    return DERIVABLE - conf.current().stored_events


def read(wanted: Wanted, *, after: Place, limit: int, using: str | None = None) -> Page:
    """Up to ``limit`` events behind a place, stored and derived.

    For a reader who wants some of many, no more than ``WINDOW`` jobs and events of each source are
    looked through: a page may have none, and a place from which to go on.
    """
    using = using or conf.current().database
    derived = derived_kinds()
    asked = frozenset(kind for kind in derived if asks(wanted, kind))
    omitting = replace(wanted, omitted=derived)
    stream.settle(using=using)
    behind = Event.objects.using(using).filter(seq__gt=after.stored).order_by("seq")
    narrow = wanted.narrowed or wanted.kinds is not None
    last = _last_of_window(behind, "seq", "created_at") if narrow else None
    until = None if last is None else last[0]
    stored, cut = stream.read(
        omitting, after=after.stored, limit=limit, until=until, settled=True, using=using
    )
    items: list[Item] = [((_ms(row.created_at), 2), row, {"stored": row.seq}) for row in stored]
    if last is not None and not cut:
        items.append(((_ms(last[1]), 2), None, {"stored": until}))
    sources: list[Iterable[Item]] = [items]
    if asked & _ENTRIES:
        sources.append(_entries(wanted, asked, after, limit + 1, using))
    if asked - _ENTRIES:
        sources.append(_ends(wanted, asked, after, limit + 1, using))
    found: list[Event] = []
    place = after
    left = len(stored)
    for _, event, change in heapq.merge(*sources, key=lambda items: items[0]):
        # What stands behind stored events that were not read waits for those.
        if len(found) == limit or (cut and not left):
            return Page(found, place, True)
        place = replace(place, **change)
        if event is None:
            return Page(found, place, True)
        found.append(event)
        left -= "stored" in change
    return Page(found, place, cut)


def place_of(event_id: UUID, *, using: str | None = None) -> Place:
    """The place behind an event by its id; of one that is not known, by the time in the id."""
    using = using or conf.current().database
    ms = time_of(event_id)
    stored = stream.place_of(event_id, using=using)
    if stored is not None:
        return replace(_behind(ms), stored=stored)
    before = stream.place_before(uuid7(ms, 0), using=using)
    jobs = Job.objects.using(using)
    if not jobs.filter(pk=event_id).exists():
        number, half = _attempt_of(event_id)
        attempt = Attempt.objects.using(using).filter(pk=number).first()
        job = attempt and jobs.filter(pk=attempt.job_id, state=State.COMPLETED).first()
        if job and attempt and event_id == _attempt_event_id(attempt, half):
            assert job.finished_at is not None
            ended_ms = _ms(job.finished_at)
            return Place(
                stream.place_before(uuid7(ended_ms, 0), using=using),
                uuid7(ended_ms, _ALL_BITS),
                job.finished_at,
                job.pk,
                half,
            )
    return Place(before, event_id, made_at(event_id))


def place_at(moment: datetime, *, using: str | None = None) -> Place:
    """The place before everything from this moment on.

    An id has the time of the process that made it, which may be a little before the job's.
    """
    ms = _ms(moment)
    before = stream.place_before(uuid7(ms, 0), using=using or conf.current().database)
    return Place(before, uuid7(_ms(moment - _OLDER), 0), moment)


def history(job_id: UUID, *, using: str | None = None) -> list[Event]:
    """Everything that is known of one job, in order: each attempt, the running one too.

    Of more than a thousand attempts and as many stored events the newest. What is stored comes without
    its data: :func:`stream.filled` reads that.
    """
    using = using or conf.current().database
    job = Job.objects.using(using).filter(pk=job_id).only(*_HISTORY_COLUMNS).first()
    if job is None:
        return []
    derived = derived_kinds()
    rows = Event.objects.using(using).filter(job_id=job_id).exclude(kind__in=derived)
    stored = list(rows.order_by("-id").defer("data")[:_MOST_ATTEMPTS])
    attempts = Attempt.objects.using(using).filter(job_id=job_id).order_by("-lease_seq")
    newest = list(attempts.only(*_ATTEMPT_COLUMNS)[:_MOST_ATTEMPTS])
    result = _short_results([job_id], using).get(job_id)
    found = [event for event in _of_one(job, newest, result) if event.kind in derived]
    every = [*found, *stored]
    returns = {
        event.created_at
        for event in every
        if event.kind == Kind.ENQUEUED and event.created_at > job.created_at
    }

    def place(event: Event) -> int:
        """Which of what happens at one moment comes first: a new job, its start, what is stored, its
        end; where the job becomes available again, what led to that, then the start.
        """
        match event.kind:
            case Kind.ENQUEUED | Kind.SCHEDULED:
                return 3 if event.created_at in returns else 0
            case Kind.STARTED:
                return 4 if event.created_at in returns else 1
            case Kind.COMPLETED:
                return 5
        return 2

    return sorted(every, key=lambda event: (event.created_at, place(event), event.pk))


def _of_one(job: Job, attempts: list[Attempt], result: Any) -> Iterator[Event]:
    if job.enqueued_at is not None:
        # Else it is pending, or ended before it was activated.
        yield _entry(job)
    again = job.enqueued_at is not None and job.enqueued_at > job.created_at
    if again and job.state != State.SCHEDULED:
        assert job.enqueued_at is not None
        when, number = job.enqueued_at, job.lease_seq
        if job.state != State.AVAILABLE and job.started_at is not None:
            # Two sessions may read the clock of the database a little differently.
            when = min(when, job.started_at)
        data = {"attempt": job.attempt, "priority": job.priority, "state": State.AVAILABLE.value}
        yield _event(uuid7(_ms(when), job.pk.int + number), Kind.ENQUEUED, when, job, data)
    for attempt in attempts:
        yield _started(job, attempt)
        if attempt.outcome == "completed":
            yield _completed(job, attempt, result)
    if job.lease_id is not None and job.started_at is not None:
        data = {"attempt": job.attempt, "worker_id": job.worker_id, "state": State.ACTIVE.value}
        fresh = uuid7(_ms(job.started_at), job.lease_id.int)
        yield _event(fresh, Kind.STARTED, job.started_at, job, data)


def _entries(
    wanted: Wanted, asked: frozenset[str], after: Place, limit: int, using: str
) -> Iterator[Item]:
    """That jobs were enqueued or scheduled, by the primary key."""
    behind = Job.objects.using(using).filter(pk__gt=after.job_id).order_by("pk")
    rows = wanted.of_queues(behind).filter(enqueued_at__isnull=False)
    if asked & _ENTRIES != _ENTRIES:
        scheduled = Q(retry_delay_ms__isnull=True, scheduled_at__gt=F("created_at"))
        rows = rows.filter(scheduled if Kind.SCHEDULED in asked else ~scheduled)
    if wanted.since is not None:
        rows = rows.filter(created_at__gte=wanted.since)
    narrow = wanted.narrowed or asked & _ENTRIES != _ENTRIES
    last = _last_of_window(behind, "pk", "created_at") if narrow else None
    if last is not None:
        rows = rows.filter(pk__lte=last[0])
    found = list(rows.only(*_ENTRY_COLUMNS)[:limit])
    horizon = clock.now(using) - SETTLING
    for job in found:
        if not _is_settled(job.pk, job.created_at, horizon):
            return
        yield (time_of(job.pk), 0), _entry(job), {"job_id": job.pk}
    if last is not None and len(found) < limit and _is_settled(last[0], last[1], horizon):
        yield (time_of(last[0]), 0), None, {"job_id": last[0]}


def _is_settled(job_id: UUID, created_at: datetime, horizon: datetime) -> bool:
    """Whether no job is expected any more before this one: also by its id, which a client may have
    chosen, or a host whose clock is ahead.
    """
    return created_at <= horizon and time_of(job_id) <= _ms(horizon + _OLDER)


def _ends(
    wanted: Wanted, asked: frozenset[str], after: Place, limit: int, using: str
) -> Iterator[Item]:
    """The last attempts of completed jobs, by when those ended: begin and end stand there together."""
    completed = selectors.in_state(Job.objects.using(using), State.COMPLETED)
    by_end = selectors.by_index(completed, "ojs_job_finished", using=using).order_by("finished_at")
    later = by_end.filter(finished_at__gt=after.ended_at)
    behind = Q(finished_at__gt=after.ended_at) | Q(finished_at=after.ended_at, pk__gte=after.ended_id)
    # The first of the two is what an index can begin at.
    rows = wanted.of_queues(by_end).filter(Q(finished_at__gte=after.ended_at), behind)
    last = _last_of_window(later, "finished_at") if wanted.narrowed else None
    if last is not None:
        rows = rows.filter(finished_at__lte=last[0])
    found = list(rows.order_by("finished_at", "pk").only(*_END_COLUMNS)[: limit + 1])
    ids = [job.pk for job in found]
    seqs = {job.pk: job.lease_seq for job in found}
    attempts = {
        attempt.job_id: attempt
        for attempt in Attempt.objects.using(using).filter(job_id__in=ids).only(*_ATTEMPT_COLUMNS)
        if attempt.lease_seq == seqs[attempt.job_id]
    }
    results = _short_results(ids, using) if Kind.COMPLETED in asked else {}
    horizon = clock.now(using) - SETTLING
    for job in found:
        assert job.finished_at is not None
        if job.finished_at > horizon:
            return
        attempt = attempts.get(job.pk)
        if attempt is None:
            continue
        order = (_ms(job.finished_at), 1)
        items = (_started(job, attempt), _completed(job, attempt, results.get(job.pk)))
        for half, event in enumerate(items):
            known = (job.finished_at, job.pk, half) <= (after.ended_at, after.ended_id, after.half)
            if event.kind in asked and not known:
                yield order, event, {"ended_at": job.finished_at, "ended_id": job.pk, "half": half}
    if last is not None and len(found) <= limit and last[0] <= horizon:
        yield (_ms(last[0]), 1), None, {"ended_at": last[0], "ended_id": _LAST, "half": 1}


def _last_of_window(rows: QuerySet[Any], *names: str) -> tuple[Any, ...] | None:
    """These columns of the last of the first ``WINDOW`` rows; ``None`` if there are fewer."""
    found = list(rows.values_list(*names)[WINDOW - 1 : WINDOW])
    return found[0] if found else None


def _short_results(ids: list[UUID], using: str) -> dict[UUID, Any]:
    rows = Job.objects.using(using).filter(pk__in=ids, result__isnull=False)
    sized = rows.annotate(size=Length(Cast("result", TextField()))).filter(size__lt=_SHORT)
    return dict(sized.values_list("pk", "result"))


def _entry(job: Job) -> Event:
    shared: dict[str, Any] = {"attempt": 0}
    if (
        job.retry_delay_ms is None
        and job.scheduled_at is not None
        and job.scheduled_at > job.created_at
    ):
        when = {"scheduled_at": format_instant(job.scheduled_at), "state": State.SCHEDULED.value}
        return _event(job.pk, Kind.SCHEDULED, job.created_at, job, shared | when)
    data = {"priority": job.priority, "state": State.AVAILABLE.value}
    return _event(job.pk, Kind.ENQUEUED, job.created_at, job, shared | data)


def _started(job: Job, attempt: Attempt) -> Event:
    data: dict[str, Any] = {
        "attempt": attempt.attempt,
        "worker_id": attempt.worker_id,
        "state": State.ACTIVE.value,
    }
    return _event(_attempt_event_id(attempt, 0), Kind.STARTED, attempt.started_at, job, data)


def _completed(job: Job, attempt: Attempt, result: Any) -> Event:
    data = {
        "attempt": attempt.attempt,
        "duration_ms": elapsed(attempt.started_at, attempt.ended_at),
        "result": result if len(json.dumps(result)) < _SHORT else None,
        "state": State.COMPLETED.value,
    }
    return _event(_attempt_event_id(attempt, 1), Kind.COMPLETED, attempt.ended_at, job, data)


def _event(key: UUID, kind: Kind, when: datetime, job: Job, data: dict[str, Any]) -> Event:
    shared = {"job_id": str(job.pk), "job_type": job.type, "queue": job.queue}
    return Event(
        id=key,
        kind=kind.value,
        created_at=when,
        job_id=job.pk,
        job_type=job.type,
        queue=job.queue,
        data=shared | data,
    )


def _attempt_event_id(attempt: Attempt, half: int) -> UUID:
    """The time, and which attempt it is about: what :func:`place_of` needs to find it again."""
    when = attempt.ended_at if half else attempt.started_at
    return uuid7(_ms(when), attempt.pk * 2 + half)


def _attempt_of(event_id: UUID) -> tuple[int, int]:
    low = event_id.int & ((1 << 62) - 1)
    return low // 2, low % 2


def asks(wanted: Wanted, kind: str) -> bool:
    """Whether this kind of event is wanted."""
    patterns = ("*",) if wanted.kinds is None else wanted.kinds
    return any(
        kind.startswith(pattern[:-1]) if pattern.endswith("*") else kind == pattern
        for pattern in patterns
    )


def _behind(ms: int) -> Place:
    return Place(0, uuid7(ms, _ALL_BITS), made_at(uuid7(ms + 1, 0)))


def _ms(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(milliseconds=1)
