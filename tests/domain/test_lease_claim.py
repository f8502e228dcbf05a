"""The ladder of lease_claim, rung by rung (decision L1)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from django_ojs.domain.lease_claim import (
    STILL_ALIVE,
    EarlierAttempt,
    LeaseClaim,
    living,
    rejection_reason,
    senders,
)
from tests.domain.records import NOW, running

LEASE = uuid4()
JOB = running(lease_id=LEASE, worker_id="w1", attempt=2, lease_seq=2, lease_principal="token:a")
ENDED = NOW - timedelta(seconds=5)
DEADLINE = NOW + timedelta(seconds=60)


def shown(**fields: Any) -> LeaseClaim:
    return LeaseClaim(**{"principal": "token:a", **fields})


def earlier(**changes: Any) -> EarlierAttempt:
    base = EarlierAttempt(1, 1, "w0", "token:a", ENDED, DEADLINE, "stalled", None)
    return base._replace(**changes)


@pytest.mark.parametrize(
    ("lease_claim", "others", "expected"),
    [
        (shown(lease_id=LEASE), [earlier()], None),
        (shown(lease_id=uuid4()), [], "lease_lost"),
        (shown(lease_id=LEASE, principal="token:b"), [], "lease_lost"),
        (shown(principal=None), [], "lease_lost"),
        (shown(worker_id="w1"), [], None),
        (shown(worker_id="w1", attempt=2), [], None),
        (shown(worker_id="w2"), [], "lease_lost"),
        (shown(worker_id="w1", attempt=1), [], "lease_lost"),
        (shown(attempt=1), [], "lease_lost"),
        (shown(attempt=2), [], None),
        (shown(), [], None),
        (shown(), [earlier()], "lease_required"),
        (shown(worker_id="w1"), [earlier(worker_id="w1")], "lease_required"),
    ],
)
def test_the_ladder(
    lease_claim: LeaseClaim, others: list[EarlierAttempt], expected: str | None
) -> None:
    assert rejection_reason(JOB, lease_claim, others, policy="auto") == expected


def test_the_policies_concern_reports_without_a_lease_only() -> None:
    assert rejection_reason(JOB, shown(), [], policy="deny") == "lease_required"
    assert rejection_reason(JOB, shown(lease_id=LEASE), [earlier()], policy="deny") is None
    assert rejection_reason(JOB, shown(), [earlier()], policy="allow") is None
    assert rejection_reason(JOB, shown(worker_id="w2"), [], policy="allow") == "lease_lost"
    assert rejection_reason(JOB, shown(principal="token:b"), [], policy="allow") == "lease_lost"


@pytest.mark.parametrize(
    ("changes", "lease_claim", "counts"),
    [
        ({}, shown(), True),
        ({"outcome": "completed"}, shown(), False),
        ({"outcome": "failed"}, shown(), False),
        ({"outcome": "cancelled"}, shown(), True),
        ({"outcome": "timeout", "ended_at": DEADLINE}, shown(), True),
        ({"outcome": "timeout", "ended_at": ENDED}, shown(), False),
        ({"reported_at": NOW - timedelta(seconds=1)}, shown(), True),
        ({"reported_at": NOW - STILL_ALIVE}, shown(), False),
        ({"lease_seq": 2}, shown(), False),
        ({"deadline_at": NOW - STILL_ALIVE + timedelta(milliseconds=1)}, shown(), True),
        ({"deadline_at": NOW - STILL_ALIVE}, shown(), False),
        ({"deadline_at": None, "ended_at": NOW - STILL_ALIVE}, shown(), False),
        ({}, shown(worker_id="w0"), True),
        ({}, shown(worker_id="w1"), False),
        ({}, shown(attempt=1), True),
        ({}, shown(attempt=2), False),
        ({"worker_id": None}, shown(worker_id="w1"), False),
        ({"principal": "token:b"}, shown(), False),
        ({"principal": None}, shown(), False),
        ({"principal": None}, shown(principal=None), True),
    ],
)
def test_who_may_have_sent_it(changes: dict[str, Any], lease_claim: LeaseClaim, counts: bool) -> None:
    found = senders([earlier(**changes)], lease_claim, before=2, now=NOW)
    assert bool(found) is counts


SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("changes", "heard", "lives"),
    [
        ({}, {}, False),
        ({}, {"w0": ENDED - SECOND}, False),
        ({}, {"w0": ENDED}, True),
        ({}, {"w2": NOW}, False),
        ({"ended_at": NOW - 60 * SECOND}, {"w0": NOW - 59 * SECOND}, False),
        ({"ended_at": NOW - 60 * SECOND}, {"w0": NOW - STILL_ALIVE + SECOND}, True),
        ({"worker_id": "w1", "ended_at": NOW - 60 * SECOND}, {}, True),
        ({"reported_at": NOW}, {}, True),
        ({"worker_id": None}, {}, True),
        ({"worker_id": None, "ended_at": NOW - STILL_ALIVE}, {}, False),
    ],
)
def test_who_lives(changes: dict[str, Any], heard: dict[str, Any], lives: bool) -> None:
    found = living([earlier(**changes)], holder="w1", heard=heard, now=NOW)
    assert bool(found) is lives
