"""Delete rows past their retention, in short transactions that read one index each."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from django.db.models import Q

from django_ojs import clock, conf
from django_ojs.domain.ids import uuid7
from django_ojs.domain.states import State
from django_ojs.models import AuditEntry, Event, MaintenanceRun, Worker
from django_ojs.models.maintenance import PRUNE
from django_ojs.services import attempt_logs, queues, rollup, shared_tasks
from django_ojs.services.rate_limits import upkeep as rate_limits
from django_ojs.services.schedules import upkeep as schedules
from django_ojs.services.workflows import upkeep
from django_ojs.store import deleting, leases, locking, unique_keys
from django_ojs.store.contention import alone, atomically, repeating_statements

BATCH = 200
MOST_COUNTED = 10_000
"""Up to how many rows of a kind a dry run counts; queues up to ``BATCH``."""
WINDOW = 2000
"""Among how many finished jobs of a state those are looked for that are not kept."""
_LOOKS = 10
"""How many batches of unique keys are looked at in one go."""
UNIQUE_KEYS = timedelta(days=1)
"""After so long without use it is looked at whether a job still holds a unique key."""

JOBS: Sequence[tuple[str, State, bool | None]] = (
    ("completed", State.COMPLETED, None),
    ("cancelled", State.CANCELLED, None),
    ("discarded", State.DISCARDED, False),
    ("dead_letter", State.DISCARDED, True),
)
"""The retention of finished jobs: its name, their state, whether they are in the dead letter."""
_WORKFLOWS, _QUEUES, _KEYS = "workflows", "queues", "unique_keys"
_AFTER_WORKFLOWS = frozenset(name for name, _, _ in JOBS)
"""Kinds that wait for the workflows that are due: the jobs of a workflow are kept as long as it is."""
_COUNTED = frozenset({*_AFTER_WORKFLOWS, _WORKFLOWS, "events"})
"""What the roll-up counts: it is not deleted before."""
_Delete = Callable[[datetime, int, bool, str], int]
"""Deletes up to so many rows from before a time, or with ``dry_run`` counts them."""


EVERY = 60.0
"""Seconds between the passes of a worker; between those of several, see ``services.shared_tasks``."""
WHOLE_EVERY = 60.0
"""Seconds after which a long pass looks at every kind again, from the front."""
KEPT_EVERY = 3600.0
"""Seconds after which the jobs that passes have kept are looked at again."""


@dataclass(slots=True)
class Front:
    """How far a pass over all kinds of rows has got: for a prune in slices.

    A pass takes the kinds in rounds, a batch of each, until it has found the end of each. So every
    slice, however short, gets it further, and a kind with many rows keeps the others waiting for a
    batch only. A kind whose end was found is not looked at again, unless there is more of another
    after a minute: then a round looks at all.

    Indexes keep the entries of deleted rows until the database has vacuumed them. A batch begins where
    the one before ended, because one that began at the front would read them all again. What lies
    before that, locked by others or committed late, is left to the next pass, or the next minute of a
    long one.

    Finished jobs may be kept for much longer than others of their state: while their workflow is, or in
    the dead letter. They are looked at window by window; of a full one no pass looks at what is left,
    until workflows of that time were deleted, or an hour is over.
    """

    places: dict[str, Any] = field(default_factory=dict)
    """Up to where finished jobs and events have been deleted, by kind."""
    windows: dict[str, datetime] = field(default_factory=dict)
    """Where the windows of finished jobs begin, by kind, but for first ones."""
    ends: dict[str, datetime] = field(default_factory=dict)
    """Where those end that others follow."""
    round: deque[str] = field(default_factory=deque)
    """The kinds that this round has yet to look at."""
    full: set[str] = field(default_factory=set)
    """The kinds of which there may be more: the last batch was a full one, or failed, or another window
    follows."""
    since: float = field(default_factory=clock.boottime)
    kept_since: float = field(default_factory=clock.boottime)

    def begin_round(self, kinds: Iterable[str]) -> None:
        """Take those of the kinds of which there is more; all of them, from the front, when there is
        no more of any, or those that had an end were looked at long ago.
        """
        now = clock.boottime()
        if not self.full or now - self.since > WHOLE_EVERY:
            self.places.clear()
            self.since = now
            if now - self.kept_since > KEPT_EVERY:
                self.windows.clear()
                self.kept_since = now
            self.round.extend(kinds)
        else:
            self.round.extend(name for name in kinds if name in self.full)

    def end_pass(self) -> None:
        """Begin the next pass with all kinds, wherever this one was."""
        self.round.clear()
        self.full.clear()

    def look_again(self, since: datetime) -> None:
        """Jobs that ended since then may be kept no more."""
        for name, begin in self.windows.items():
            if begin > since:
                self.windows[name] = since
                self.places.pop(name, None)


@dataclass(slots=True)
class Pruned:
    """How many rows of each kind were deleted; with ``more``, the time was up before the pass ended."""

    counts: Counter[str] = field(default_factory=Counter)
    more: bool = False
    capped: set[str] = field(default_factory=set)
    """The kinds of which a dry run has not counted all."""


def prune(
    *,
    limit: int | None = None,
    seconds: float | None = None,
    dry_run: bool = False,
    front: Front | None = None,
    ran_by: str = "",
    using: str | None = None,
) -> Pruned:
    """Delete finished jobs with their attempts, events, logs, gone workers and unused queues past
    ``OJS["RETENTION"]``.

    ``limit`` bounds each kind. Each batch of at most 200 rows is a transaction of its own; when
    ``seconds`` have passed, the one in hand is finished, and at least one is done. The next call goes
    on from there with the same ``front``; one that has found the end of everything begins anew.

    ``ran_by`` names a process that prunes again and again, of which one is enough: nothing is deleted
    while another of them does so (``services.shared_tasks``).
    """
    using = using or conf.current().database
    until = None if seconds is None else clock.boottime() + seconds
    now = clock.now(using)
    done = Pruned()
    with repeating_statements(using):
        front = Front() if front is None else front
        last = shared_tasks.last_run(PRUNE, using=using)
        if ran_by and shared_tasks.is_left_to_another(last, EVERY, ran_by=ran_by, now=now):
            return done
        _prune(done, now, limit, until, dry_run, front, using)
        if not dry_run:
            leases.forget_beats(using=using)
            # A kind that was not looked at yet may have more: as was found the last time.
            behind = True if front.full else None if done.more else False
            shared_tasks.record(PRUNE, last, behind=behind, ran_by=ran_by, using=using)
    return done


def _prune(
    done: Pruned,
    now: datetime,
    limit: int | None,
    until: float | None,
    dry_run: bool,
    front: Front,
    using: str,
) -> None:
    """Prune into ``done``, until the time is up."""
    kinds = _due(now, front, using)
    if dry_run:
        # Which of them no job needs, only the deletion finds out.
        kinds = {name: kind for name, kind in kinds.items() if name != _KEYS}
    done.counts.update(dict.fromkeys(kinds, 0))

    def cap(name: str) -> int:
        return MOST_COUNTED if dry_run and name != _QUEUES else BATCH

    def room(name: str) -> int:
        most = cap(name) if name in kinds else 0
        return most if limit is None else min(most, limit - done.counts[name])

    def has_more(name: str) -> bool:
        return name in front.full and room(name) > 0

    if not front.round:
        front.begin_round(kinds)
    while front.round:
        name = front.round.popleft()
        if name in _AFTER_WORKFLOWS and has_more(_WORKFLOWS):
            front.full.add(name)
        elif (most := room(name)) > 0:
            # Should it fail, it comes again after the others.
            front.full.add(name)
            before, delete = kinds[name]
            batch = delete(before, most, dry_run, using)
            done.counts[name] += batch
            if dry_run and batch >= cap(name) and limit != batch:
                done.capped.add(name)
            if (batch < most and name not in front.ends) or dry_run:
                front.full.discard(name)
                front.places.pop(name, None)
            if until is not None and clock.boottime() >= until:
                done.more = bool(front.round or front.full)
                return
        if not front.round and any(map(has_more, front.full)):
            front.begin_round(name for name in kinds if room(name) > 0)


def _due(now: datetime, front: Front, using: str) -> Mapping[str, tuple[datetime, _Delete]]:
    """Each kind with a retention: the cut-off, and the function that deletes it."""
    kinds: dict[str, _Delete] = {_WORKFLOWS: partial(_workflows, front)}
    kinds |= {name: partial(_jobs, name, front, state, dead) for name, state, dead in JOBS}
    kinds |= {
        "events": partial(_events, front),
        "logs": attempt_logs.forget,
        "audit": _audit,
        "stats": rollup.forget,
        "workers": _workers,
    }
    kinds[_QUEUES] = partial(_queues, now)
    kinds |= {"rate_limits": rate_limits.prune, "cron": schedules.prune}
    due: dict[str, tuple[datetime, _Delete]] = {_KEYS: (now - UNIQUE_KEYS, _unique_keys)}
    keep = conf.current().retention_ms
    counted = rollup.counted_until(using)
    for name, delete in kinds.items():
        if (age := keep[name]) is not None:
            before = now - timedelta(milliseconds=age)
            if counted is not None and name in _COUNTED:
                before = min(before, counted)
            due[name] = before, delete
    return due


def _workflows(front: Front, before: datetime, room: int, dry_run: bool, using: str) -> int:
    made = upkeep.prune(before, room, dry_run, using)
    if made and not dry_run:
        front.look_again(min(made))
    return len(made)


def _jobs(
    name: str,
    front: Front,
    state: State,
    dead: bool | None,
    before: datetime,
    room: int,
    dry_run: bool,
    using: str,
) -> int:
    look = partial(locking.finished_before, state, dead_letter=dead, using=using)
    if dry_run:
        return len(atomically(using, partial(look, before, room)))
    begin = front.windows.get(name)
    if name not in front.places:
        end = locking.end_of_window(state, before, WINDOW, since=begin, using=using)
        front.ends.pop(name, None)
        if end is not None:
            front.ends[name] = end
    until = front.ends.get(name, before)

    def work() -> list[tuple[UUID, datetime]]:
        found = look(until, room, since=front.places.get(name, begin))
        deleting.jobs([job_id for job_id, _ in found], using=using)
        return found

    gone = atomically(using, work)
    if len(gone) == room:
        front.places[name] = gone[-1][1]
    else:
        front.places.pop(name, None)
        if name in front.ends:
            front.windows[name] = until
    return len(gone)


def _events(front: Front, before: datetime, room: int, dry_run: bool, using: str) -> int:
    """Delete events; their ids are UUIDv7, so the primary key is in the order of their age."""
    oldest_kept = uuid7(int(before.timestamp() * 1000), 0)
    rows = Event.objects.using(using)
    since = front.places.get("events")
    due = rows.filter(pk__lt=oldest_kept, **({} if since is None else {"pk__gt": since}))
    old: list[UUID] = list(due.order_by("pk").values_list("pk", flat=True)[:room])
    if old and not dry_run:
        _mark(before, using)
        rows.filter(pk__in=old)._raw_delete(using)
        front.places["events"] = old[-1]
    return len(old)


def _mark(before: datetime, using: str) -> None:
    """Record since when the events are complete, before any is deleted."""
    runs = MaintenanceRun.objects.using(using)
    stale = runs.filter(Q(watermark_at=None) | Q(watermark_at__lt=before), name=PRUNE)
    if not stale.update(watermark_at=before) and not runs.filter(name=PRUNE).exists():
        run = MaintenanceRun(name=PRUNE, last_run_at=clock.now(using), watermark_at=before)
        alone(using, partial(runs.bulk_create, [run], ignore_conflicts=True))


def _audit(before: datetime, room: int, dry_run: bool, using: str) -> int:
    """Delete audit entries; the key grows with time, so only the oldest are read."""
    rows = AuditEntry.objects.using(using)
    oldest = rows.order_by("pk").values_list("pk", "created_at")[:room]
    old = [key for key, created_at in oldest if created_at < before]
    if old and not dry_run:
        rows.filter(pk__in=old)._raw_delete(using)
    return len(old)


def _workers(before: datetime, room: int, dry_run: bool, using: str) -> int:
    """Delete workers by primary key; there are few."""
    rows = Worker.objects.using(using).filter(heartbeat_at__lt=before)
    old = list(rows.values_list("pk", flat=True)[:room])
    if old and not dry_run:
        # Filtered again by age: a worker may have come back.
        rows.filter(pk__in=old)._raw_delete(using)
    return len(old)


def _unique_keys(before: datetime, room: int, dry_run: bool, using: str) -> int:
    """Forget keys that no job holds; those that were looked at and are needed count as used."""

    def work() -> tuple[int, int]:
        keys = unique_keys.unused_since(before, min(room, BATCH), using=using)
        if dry_run or not keys:
            return 0, 0
        return len(keys), unique_keys.forget(keys, clock.now(using), using=using)

    done = 0
    # A day of keys may all be needed: the rest of them is looked at by the next run.
    for _ in range(_LOOKS):
        looked, gone = atomically(using, work)
        done += gone
        if looked < BATCH or done >= room:
            break
    return done


def _queues(now: datetime, before: datetime, room: int, dry_run: bool, using: str) -> int:
    return queues.forget(before, min(room, BATCH), now=now, dry_run=dry_run, using=using)
