"""New jobs that find room when they are enqueued: they are stored with their place, and never held.

The row of their key is locked until the end of the transaction. That is why only a transaction that
is ours does it, which ends with the enqueue; and nobody waits for the row.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.job import JobRow
from django_ojs.domain.states import State
from django_ojs.models import RateLimit
from django_ojs.services.rate_limits import policies
from django_ojs.services.rate_limits.admission import USED_EVERY, locked
from django_ojs.services.rate_limits.policies import LIMITED
from django_ojs.services.rate_limits.room import effective, room_of, standing
from django_ojs.store import rate_limit_keys
from django_ojs.store.contention import is_own_transaction
from django_ojs.store.dialect import dialect


class Decided(NamedTuple):
    """New jobs, those not ``held`` that have a place; ``settled`` if no admission has to follow."""

    records: list[JobRow]
    settled: bool


def decide(records: list[JobRow], *, now: datetime, using: str) -> Decided:
    """Let all of them in that a rate limit holds, or none: what is not obvious is for an admission.

    It is obvious where all have one key and no other, which nobody has changed, and where they all
    find room, or the key is full and others wait already.
    """
    undecided = Decided(records, False)
    if not is_own_transaction(using) or not dialect(using).lock_shows_latest:
        return undecided
    waiting = [one for one in records if one.hooks & LIMITED and one.state == State.AVAILABLE]
    asked = policies.asked(waiting)
    if len(asked) != 1:
        return undecided
    ((key, policy),) = asked.items()
    row = locked(key, using, skip=True)
    if row is None or _is_special(row, now) or (policy and policy.limits() != row.policy):
        return undecided
    try:
        limits = effective(row, now)
    except InvalidRequest:
        return undecided
    found = rate_limit_keys.read(key, using=using)
    if not {one.queue for one in waiting}.isdisjoint(found.paused):
        return undecided
    room = room_of(row, limits, standing(found), now, using)
    if found.waits:
        # Whoever frees a place, or the time when one opens, lets them in.
        return Decided(records, room.places == 0 and row.exceeded and limits.on_limit == "wait")
    if room.places is not None and room.places < len(waiting):
        return undecided
    let_in = {one.id for one in waiting}
    return Decided([one._replace(held=one.held and one.id not in let_in) for one in records], True)


def _is_special(row: RateLimit, now: datetime) -> bool:
    """Whether an admission has something to do, or to note, on the row."""
    return now - row.used_at > USED_EVERY or (row.due_at is not None and row.due_at <= now)
