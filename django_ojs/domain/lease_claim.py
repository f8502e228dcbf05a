"""Who may finish an attempt: what a reporter shows, and whether it is enough (decisions L1, L2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from django_ojs.domain.job import JobRow
from django_ojs.domain.states import State

STILL_ALIVE = timedelta(seconds=30)
"""How long after its last sign of life, and at most how long past its deadline, the worker of an
attempt that the server ended may still report it."""

SERVER_ENDED = frozenset({"timeout", "stalled", "visibility_timeout", "total_timeout", "cancelled"})
"""Outcomes set by the server, which the worker may not know yet."""


@dataclass(frozen=True, slots=True)
class LeaseClaim:
    """What a reporter shows of an attempt: the lease, or the worker and attempt, or nothing."""

    lease_id: UUID | None = None
    worker_id: str | None = None
    attempt: int | None = None
    principal: str | None = None


class EarlierAttempt(NamedTuple):
    """An earlier attempt that the server ended, and when its worker reported on it since."""

    lease_seq: int
    attempt: int
    worker_id: str | None
    principal: str | None
    ended_at: datetime
    deadline_at: datetime | None
    outcome: str
    reported_at: datetime | None


def senders(
    attempts: Iterable[EarlierAttempt], lease_claim: LeaseClaim, *, before: int, now: datetime
) -> list[EarlierAttempt]:
    """The earlier attempts that may have sent a report with this claim, if their worker is alive.

    ``before`` is the ``lease_seq`` of the current claim. An attempt of another credential is none of
    them: its report is rejected in any case. One whose worker reported the timeout itself,
    before the server did, is over. One whose worker was told that it came too late is so only a while
    later: clients repeat what was refused.
    """
    return [
        earlier
        for earlier in attempts
        if earlier.lease_seq < before
        and earlier.outcome in SERVER_ENDED
        and earlier.principal == lease_claim.principal
        and (earlier.reported_at is None or earlier.reported_at + STILL_ALIVE > now)
        and not (
            earlier.outcome == "timeout"
            and earlier.deadline_at is not None
            and earlier.ended_at < earlier.deadline_at
        )
        and (earlier.deadline_at or earlier.ended_at) + STILL_ALIVE > now
        and lease_claim.worker_id in (None, earlier.worker_id)
        and lease_claim.attempt in (None, earlier.attempt)
    ]


def living(
    earlier_attempts: Iterable[EarlierAttempt],
    *,
    holder: str | None,
    heard: Mapping[str, datetime],
    now: datetime,
) -> list[EarlierAttempt]:
    """Those whose worker has shown life since the server ended the attempt, within 30 s.

    ``holder`` is the worker of the current claim, ``heard`` when each worker was heard last. The
    holder itself lives: it fetched the job again. A worker that gave no name is not recognised when
    it comes again, so its attempt counts for 30 s after its end.
    """
    return [earlier for earlier in earlier_attempts if _lives(earlier, holder, heard, now)]


def _lives(
    earlier: EarlierAttempt, holder: str | None, heard: Mapping[str, datetime], now: datetime
) -> bool:
    if earlier.worker_id is None:
        return earlier.ended_at + STILL_ALIVE > now
    if earlier.worker_id == holder:
        return True
    signs = (heard.get(earlier.worker_id), earlier.reported_at)
    return any(
        sign is not None and sign >= earlier.ended_at and sign + STILL_ALIVE > now for sign in signs
    )


def rejection_reason(
    job: JobRow, lease_claim: LeaseClaim, others: Iterable[EarlierAttempt], *, policy: str
) -> str | None:
    """Why the claim does not prove the current lease of an active job; ``None`` if it does.

    ``policy`` is ``UNFENCED_ACK``: ``auto``, ``deny`` or ``allow``. The answers are ``lease_lost``
    and ``lease_required``.
    """
    assert job.state == State.ACTIVE
    if job.lease_principal != lease_claim.principal:
        return "lease_lost"
    if lease_claim.lease_id is not None:
        return None if lease_claim.lease_id == job.lease_id else "lease_lost"
    if lease_claim.worker_id not in (None, job.worker_id):
        return "lease_lost"
    if lease_claim.attempt not in (None, job.attempt):
        return "lease_lost"
    if policy == "deny" or (policy == "auto" and any(True for _ in others)):
        return "lease_required"
    return None
