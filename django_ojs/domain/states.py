"""The eight states and every arrow between them (OJS core 6, OJS timeouts 8).

``ARROWS`` is the only list of what may happen to a job. A transition that is not in it cannot be
constructed; the exhaustive test and the diagram of the documentation are generated from it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class State(StrEnum):
    """Where a job is in its life (OJS core 6.1)."""

    __hash__ = str.__hash__  # that of Enum is Python; these are looked up for every job

    SCHEDULED = "scheduled"
    PENDING = "pending"
    AVAILABLE = "available"
    ACTIVE = "active"
    RETRYABLE = "retryable"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    DISCARDED = "discarded"


WAITING = frozenset({State.SCHEDULED, State.PENDING, State.AVAILABLE, State.RETRYABLE})
TERMINAL = frozenset({State.COMPLETED, State.CANCELLED, State.DISCARDED})
LIVE = WAITING | {State.ACTIVE}


class Trigger(StrEnum):
    """What causes a transition."""

    __hash__ = str.__hash__

    ENQUEUE = "enqueue"
    ACTIVATE = "activate"
    PROMOTE = "promote"
    CLAIM = "claim"
    ACK = "ack"
    FAIL = "fail"
    REQUEUE = "requeue"
    RELEASE = "release"
    TIMEOUT = "timeout"
    STALL = "stall"
    LAPSE = "lapse"
    EXPIRE = "expire"
    TOTAL_TIMEOUT = "total_timeout"
    CANCEL = "cancel"
    RETRY = "retry"
    RESUME = "resume"
    RESCHEDULE = "reschedule"
    DISCARD = "discard"
    EXTEND = "extend"
    EDIT = "edit"
    RECOVER = "recover"
    RATE_LIMIT = "rate_limit"
    PURGE = "purge"


class Arrow(NamedTuple):
    """One row of the transition table; ``None`` is the world outside the table of jobs."""

    trigger: Trigger
    source: State | None
    target: State | None


def _arrows() -> frozenset[Arrow]:
    s, t = State, Trigger
    rows: list[tuple[Trigger, State | None, tuple[State | None, ...]]] = [
        (t.ENQUEUE, None, (s.AVAILABLE, s.SCHEDULED, s.PENDING)),
        (t.ACTIVATE, s.PENDING, (s.AVAILABLE, s.SCHEDULED)),
        (t.PROMOTE, s.SCHEDULED, (s.AVAILABLE,)),
        (t.PROMOTE, s.RETRYABLE, (s.AVAILABLE,)),
        (t.CLAIM, s.AVAILABLE, (s.ACTIVE,)),
        (t.ACK, s.ACTIVE, (s.COMPLETED,)),
        (t.FAIL, s.ACTIVE, (s.RETRYABLE, s.DISCARDED)),
        (t.REQUEUE, s.ACTIVE, (s.AVAILABLE,)),
        (t.RELEASE, s.ACTIVE, (s.AVAILABLE,)),
        (t.TIMEOUT, s.ACTIVE, (s.RETRYABLE, s.DISCARDED)),
        (t.STALL, s.ACTIVE, (s.RETRYABLE, s.DISCARDED)),
        (t.LAPSE, s.ACTIVE, (s.AVAILABLE, s.DISCARDED)),
        (t.EXTEND, s.ACTIVE, (s.ACTIVE,)),
        (t.RECOVER, s.ACTIVE, (s.ACTIVE,)),
        (t.RATE_LIMIT, s.AVAILABLE, (s.SCHEDULED, s.DISCARDED)),
        (t.RETRY, s.DISCARDED, (s.AVAILABLE,)),
        (t.RESUME, s.DISCARDED, (s.AVAILABLE,)),
        (t.RESUME, s.CANCELLED, (s.AVAILABLE,)),
        (t.RESCHEDULE, s.SCHEDULED, (s.SCHEDULED, s.AVAILABLE)),
        (t.RESCHEDULE, s.RETRYABLE, (s.RETRYABLE, s.AVAILABLE)),
    ]
    rows += [(t.EXPIRE, source, (s.DISCARDED,)) for source in (s.SCHEDULED, s.AVAILABLE, s.PENDING)]
    rows += [(t.TOTAL_TIMEOUT, source, (s.DISCARDED,)) for source in LIVE]
    rows += [(t.CANCEL, source, (s.CANCELLED,)) for source in LIVE]
    rows += [(t.DISCARD, source, (s.DISCARDED,)) for source in WAITING]
    rows += [(t.EDIT, source, (source,)) for source in WAITING]
    rows += [(t.PURGE, source, (None,)) for source in TERMINAL]
    return frozenset(
        Arrow(trigger, source, target) for trigger, source, targets in rows for target in targets
    )


ARROWS: frozenset[Arrow] = _arrows()

FENCED = frozenset({Trigger.ACK, Trigger.FAIL, Trigger.REQUEUE, Trigger.RELEASE})
"""Triggers that are reports of a worker: they need the current lease (OJS worker protocol 5.6)."""


def sources_of(trigger: Trigger) -> frozenset[State | None]:
    """The states from which ``trigger`` may start."""
    return frozenset(arrow.source for arrow in ARROWS if arrow.trigger == trigger)
