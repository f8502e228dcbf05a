"""The five clocks: when each is due, and which one counts when several are (T2, T4-T6, T8)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_ojs.domain import timeouts
from django_ojs.domain.job import JobRow
from django_ojs.domain.states import State
from django_ojs.domain.timeouts import Fired, TimeoutKind, fired
from tests.domain.records import NOW, at, in_state, record, running


def test_after_ends_with_time_and_never_overflows() -> None:
    assert timeouts.after(NOW, 1500) == at(1.5)
    end = timeouts.after(datetime(9999, 12, 31, tzinfo=UTC), 10**12)
    assert end == datetime.max.replace(tzinfo=UTC)


def test_elapsed_is_whole_milliseconds_and_never_negative() -> None:
    assert timeouts.elapsed(NOW, NOW + timedelta(microseconds=1999)) == 1
    assert timeouts.elapsed(at(5), NOW) == 0


def test_total_counts_from_limits_from() -> None:
    job = record(created_at=at(-100), limits_from=at(10), total_timeout_ms=60_000)
    assert timeouts.total_deadline(job) == at(70)
    assert timeouts.total_deadline(record()) is None


@pytest.mark.parametrize(
    ("changes", "due"),
    [
        ({}, None),
        ({"enqueue_ttl_ms": 5000}, at(5)),
        ({"expires_at": at(3)}, at(3)),
        ({"enqueue_ttl_ms": 5000, "expires_at": at(3)}, at(3)),
        ({"enqueue_ttl_ms": 2000, "expires_at": at(3)}, at(2)),
        ({"enqueue_ttl_ms": 5000, "limits_from": at(10)}, at(15)),
        ({"enqueue_ttl_ms": 5000, "expires_at": at(3), "attempt": 1}, None),
        ({"attempt_ttl_ms": 5000, "enqueued_at": at(10), "attempt": 1}, at(15)),
        ({"attempt_ttl_ms": 5000, "enqueued_at": at(10)}, at(15)),
        ({"attempt_ttl_ms": 5000, "enqueue_ttl_ms": 2000}, at(2)),
        ({"attempt_ttl_ms": 2000, "enqueue_ttl_ms": 5000}, at(2)),
        *(
            ({"attempt_ttl_ms": 5000, "state": state}, None)
            for state in ("scheduled", "pending", "retryable")
        ),
    ],
)
def test_start_deadline(changes: dict[str, Any], due: datetime | None) -> None:
    assert timeouts.start_deadline(record(**changes)) == due
    assert timeouts.waiting_deadline(record(**changes)) == due


def test_waiting_deadline_is_the_earlier_one() -> None:
    assert timeouts.waiting_deadline(record(enqueue_ttl_ms=5000, total_timeout_ms=3000)) == at(3)
    assert timeouts.waiting_deadline(record(enqueue_ttl_ms=2000, total_timeout_ms=3000)) == at(2)
    assert timeouts.waiting_deadline(record(total_timeout_ms=3000, attempt=2)) == at(3)


def test_active_and_soft_deadline() -> None:
    job = running(timeout_ms=10_000, grace_period_ms=3000, extended_ms=500)
    assert timeouts.soft_deadline(job) == at(10.5)
    assert timeouts.active_deadline(job) == at(13.5)
    assert timeouts.active_deadline(job._replace(total_timeout_ms=11_000)) == at(11)
    assert timeouts.active_deadline(job._replace(total_timeout_ms=60_000)) == at(13.5)
    assert timeouts.soft_deadline(record()) is None


def test_the_soft_deadline_is_never_later_than_the_total() -> None:
    """A day of timeout, ten seconds in all."""
    job = running(timeout_ms=86_400_000, total_timeout_ms=10_000)
    assert timeouts.soft_deadline(job) == at(10)
    assert timeouts.soft_deadline(job._replace(extended_ms=1)) == at(10)


@pytest.mark.parametrize(
    ("armed", "explicit", "lease", "due"),
    [
        (False, False, None, None),
        (True, False, None, at(60)),
        (True, True, None, at(60)),
        (True, False, at(30), None),
        (True, True, at(30), at(60)),
        (False, True, None, None),
    ],
)
def test_heartbeat_deadline(
    armed: bool, explicit: bool, lease: datetime | None, due: datetime | None
) -> None:
    job = running(heartbeat_armed=armed, heartbeat_explicit=explicit, lease_expires_at=lease)
    assert timeouts.heartbeat_deadline(job) == due


def test_no_heartbeat_deadline_before_the_first_beat_is_known() -> None:
    assert timeouts.heartbeat_deadline(running(heartbeat_at=None)) is None


def everything_due() -> JobRow:
    return running(
        timeout_ms=10_000,
        grace_period_ms=0,
        total_timeout_ms=9000,
        heartbeat_timeout_ms=5000,
        heartbeat_explicit=True,
        lease_visibility_ms=4000,
        lease_expires_at=at(4),
    )


def test_first_match_wins_for_a_running_job() -> None:
    job = everything_due()
    late = at(100)
    assert fired(job, late) == Fired(TimeoutKind.TOTAL, 9000, 100_000)
    job = job._replace(total_timeout_ms=None, deadline_at=at(10))
    assert fired(job, late) == Fired(TimeoutKind.EXECUTION, 10_000, 100_000)
    job = job._replace(deadline_at=at(200))
    assert fired(job, late) == Fired(TimeoutKind.VISIBILITY, 4000, 100_000)
    job = job._replace(lease_expires_at=None)
    assert fired(job, late) == Fired(TimeoutKind.STALLED, 5000, 100_000)
    job = job._replace(heartbeat_armed=False)
    assert fired(job, late) is None


@pytest.mark.parametrize("state", ["available", "scheduled", "pending"])
def test_first_match_wins_for_a_waiting_job(state: str) -> None:
    job = record(state=state, total_timeout_ms=9000, enqueue_ttl_ms=4000)
    assert fired(job, at(100)) == Fired(TimeoutKind.TOTAL, 9000, 100_000)
    assert fired(job, at(5)) == Fired(TimeoutKind.ENQUEUE_TTL, 4000, 5000)
    assert fired(job, at(3.999)) is None


def test_ttl_is_over_with_the_first_start() -> None:
    late = at(10**6)
    for state in ("available", "scheduled", "pending", "retryable", "active"):
        job = in_state(state, attempt=1, enqueue_ttl_ms=1000, expires_at=at(1))
        due = fired(job._replace(deadline_at=None, heartbeat_armed=False), late)
        assert due is None, state
    for state in ("available", "scheduled", "pending"):
        due = fired(in_state(state, attempt=0, enqueue_ttl_ms=1000), late)
        assert due is not None and due.clock is TimeoutKind.ENQUEUE_TTL


def test_an_attempt_that_does_not_start_in_time() -> None:
    job = record(attempt=2, attempt_ttl_ms=4000, limits_from=at(-100), enqueued_at=at(1))
    assert fired(job, at(4.999)) is None
    assert fired(job, at(6)) == Fired(TimeoutKind.ENQUEUE_TTL, 4000, 5000)
    first = job._replace(attempt=0, enqueue_ttl_ms=103_000)
    assert fired(first, at(6)) == Fired(TimeoutKind.ENQUEUE_TTL, 103_000, 106_000)


def test_expires_at_is_told_as_a_limit_from_the_beginning() -> None:
    assert fired(record(expires_at=at(7)), at(8)) == Fired(TimeoutKind.ENQUEUE_TTL, 7000, 8000)


@pytest.mark.parametrize("state", [state.value for state in State])
def test_total_holds_in_every_live_state(state: str) -> None:
    job = in_state(state, total_timeout_ms=5000, deadline_at=None)
    due = fired(job, at(5))
    if state in ("completed", "cancelled", "discarded"):
        assert due is None
    else:
        assert due == Fired(TimeoutKind.TOTAL, 5000, 5000)
    assert fired(job, at(4.999)) is None


@pytest.mark.parametrize(
    ("changes", "moment", "clock"),
    [
        ({"timeout_ms": 10_000, "grace_period_ms": 2000}, 12, TimeoutKind.EXECUTION),
        ({"timeout_ms": 10_000, "grace_period_ms": 0}, 10, TimeoutKind.EXECUTION),
        ({"timeout_ms": 10_000, "grace_period_ms": 0, "extended_ms": 5000}, 15, TimeoutKind.EXECUTION),
        ({"heartbeat_timeout_ms": 2000}, 2, TimeoutKind.STALLED),
        ({"lease_expires_at": at(2), "lease_visibility_ms": 2000}, 2, TimeoutKind.VISIBILITY),
        ({"total_timeout_ms": 3000}, 3, TimeoutKind.TOTAL),
    ],
)
def test_due_at_the_moment_itself_and_not_before(
    changes: dict[str, Any], moment: float, clock: TimeoutKind
) -> None:
    job = running(**changes)
    assert fired(job, at(moment) - timedelta(microseconds=1)) is None
    due = fired(job, at(moment))
    assert due is not None and due.clock is clock
    assert due.elapsed_ms == moment * 1000


def test_an_extension_is_part_of_the_limit() -> None:
    due = fired(running(timeout_ms=10_000, grace_period_ms=0, extended_ms=5000), at(16))
    assert due == Fired(TimeoutKind.EXECUTION, 15_000, 16_000)


def test_beats_move_heartbeat_and_never_execution() -> None:
    job = running(timeout_ms=100_000, grace_period_ms=0, heartbeat_timeout_ms=2000)
    beaten = job._replace(heartbeat_at=at(99))
    assert fired(beaten, at(100)) == Fired(TimeoutKind.EXECUTION, 100_000, 100_000)
    assert fired(beaten, at(99.5)) is None


def test_the_grace_of_an_outage_is_fifteen_seconds() -> None:
    assert timedelta(seconds=15) == timeouts.OUTAGE_GRACE


moments = st.none() | st.integers(-100, 100).map(at)
spans = st.none() | st.integers(1, 100_000)


@pytest.mark.slow
@given(
    state=st.sampled_from([state.value for state in State]),
    attempt=st.integers(0, 3),
    total=spans,
    ttl=spans,
    attempt_ttl=spans,
    expires=moments,
    lease=moments,
    deadline=moments,
    beat=moments,
    flags=st.tuples(st.booleans(), st.booleans()),
    seconds=st.integers(-200, 10**9),
)
def test_total_function_in_every_state(
    state: str,
    attempt: int,
    total: int | None,
    ttl: int | None,
    attempt_ttl: int | None,
    expires: datetime | None,
    lease: datetime | None,
    deadline: datetime | None,
    beat: datetime | None,
    flags: tuple[bool, bool],
    seconds: int,
) -> None:
    job = in_state(
        state,
        attempt=attempt,
        total_timeout_ms=total,
        enqueue_ttl_ms=ttl,
        attempt_ttl_ms=attempt_ttl,
        expires_at=expires,
        lease_expires_at=lease,
        deadline_at=deadline,
        heartbeat_at=beat,
        heartbeat_armed=flags[0],
        heartbeat_explicit=flags[1],
    )
    due = fired(job, at(seconds))
    if due is None:
        return
    assert state not in ("completed", "cancelled", "discarded")
    assert due.elapsed_ms >= 0 and due.limit_ms >= 0
    if state == "active":
        assert due.clock is not TimeoutKind.ENQUEUE_TTL
    else:
        assert due.clock in (TimeoutKind.TOTAL, TimeoutKind.ENQUEUE_TTL)
    assert (due.clock is TimeoutKind.TOTAL) == (total is not None and at(total / 1000) <= at(seconds))


def test_the_pairs_of_states_and_clocks_are_covered() -> None:
    seen = set()
    for state, clock in product(State, range(4)):
        job = in_state(state.value, attempt=0 if state != "active" else 1, deadline_at=None)
        job = job._replace(
            total_timeout_ms=1 if clock == 0 else None,
            enqueue_ttl_ms=1 if clock == 1 else None,
            attempt_ttl_ms=1 if clock == 1 else None,
            lease_expires_at=NOW if clock == 2 else None,
            heartbeat_timeout_ms=1,
            heartbeat_armed=clock == 3,
        )
        due = fired(job, at(1))
        if due is not None:
            seen.add((state.value, str(due.clock)))
    waiting = ("available", "scheduled", "pending")
    expected = {(state, "total") for state in (*waiting, "retryable", "active")}
    expected |= {(state, "enqueue_ttl") for state in waiting}
    expected |= {("active", "visibility"), ("active", "stalled")}
    assert seen == expected
