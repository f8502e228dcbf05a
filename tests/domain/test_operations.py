"""What clients and operators ask for: cancel, retry, extend, reschedule, edit, activate, discard."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_ojs.domain import lifecycle, operations
from django_ojs.domain.durations import format_instant
from django_ojs.domain.errors import Conflict, InvalidTransition
from django_ojs.domain.job import NO_LEASE, Actor, JobRow
from django_ojs.domain.states import State
from django_ojs.domain.timeouts import soft_deadline
from tests.domain.records import LEASE, NOW, at, fact_of, in_state, kinds, record, running

WHO = Actor("admin", "ada", "too slow")
STATES = [state.value for state in State]
LIVE = ["scheduled", "pending", "available", "retryable", "active"]
DISCARDED = in_state(
    "discarded",
    attempt=3,
    lease_seq=3,
    error='{"type": "boom"}',
    errors='[{"type": "boom"}]',
    retry_delay_ms=4000,
    scheduled_at=at(-5),
)


def named(data: Any) -> tuple[str, str, str]:
    return data["source"], data["actor"], data["reason"]


class TestCancel:
    @pytest.mark.parametrize("state", LIVE)
    def test_ends_a_live_job_at_once(self, state: str) -> None:
        job = in_state(state, total_timeout_ms=9000, deadline_at=at(9))
        move = operations.cancel(job, actor=WHO, now=at(1))
        written = move.written
        assert (written.state, written.finished_at, written.deadline_at) == (
            "cancelled",
            at(1),
            None,
        )
        assert {name: getattr(written, name) for name in NO_LEASE} == dict(NO_LEASE)
        assert (written.started_at, written.attempt) == (job.started_at, job.attempt)
        assert (move.attempt is not None) == (state == "active")
        assert kinds(move) == ["job.cancelled"]
        assert move.job_events[0].data["previous_state"] == state
        assert named(move.job_events[0].data) == ("admin", "ada", "too slow")

    def test_the_attempt_ends_as_cancelled(self) -> None:
        end = operations.cancel(running(), actor=Actor(), now=at(1)).attempt
        assert end is not None and end.outcome == "cancelled"

    def test_an_actor_without_name_leaves_no_empty_fields(self) -> None:
        data = operations.cancel(record(), actor=Actor(), now=at(1)).job_events[0].data
        assert data["source"] == "api"
        assert "actor" not in data and "reason" not in data


class TestRetryDead:
    def retried(self, job: JobRow, expires_at: datetime | bool | None = False) -> JobRow:
        return operations.retry_dead(job, actor=WHO, expires_at=expires_at, now=at(100)).written

    def test_begins_a_new_life_under_the_same_id(self) -> None:
        job = self.retried(DISCARDED)
        assert (job.state, job.attempt, job.error, job.id) == ("available", 0, None, DISCARDED.id)
        assert (job.limits_from, job.enqueued_at) == (at(100), at(100))
        assert (job.scheduled_at, job.started_at, job.finished_at) == (None, None, None)
        assert (job.retry_delay_ms, job.dead_letter, job.deadline_at) == (None, False, None)

    def test_keeps_history_lease_numbers_and_creation(self) -> None:
        job = self.retried(DISCARDED)
        assert (job.errors, job.lease_seq, job.created_at) == (DISCARDED.errors, 3, NOW)

    def test_clocks_count_from_now_on(self) -> None:
        job = self.retried(DISCARDED._replace(total_timeout_ms=60_000, enqueue_ttl_ms=5000))
        assert job.deadline_at == at(105)
        assert lifecycle.overdue(job, now=at(104), jitter=0.5) is None
        expired = lifecycle.overdue(job, now=at(105), jitter=0.5)
        assert expired is not None and expired.trigger == "expire"

    def test_events(self) -> None:
        move = operations.retry_dead(DISCARDED, actor=WHO, expires_at=False, now=at(100))
        assert kinds(move) == ["job.retried", "job.enqueued"]
        assert named(move.job_events[0].data) == ("admin", "ada", "too slow")
        assert move.job_events[0].data["attempt"] == 0
        dead = DISCARDED._replace(dead_letter=True)
        move = operations.retry_dead(dead, actor=WHO, expires_at=False, now=at(100))
        assert kinds(move) == ["job.retried", "dead_letter.retried", "job.enqueued"]

    def test_an_expiry_that_has_passed_is_a_conflict(self) -> None:
        for past in (at(100), at(50)):
            with pytest.raises(Conflict) as caught:
                self.retried(DISCARDED._replace(expires_at=past))
            assert not isinstance(caught.value, InvalidTransition)
            assert caught.value.details["field"] == "expires_at"
            assert "expires_at" in caught.value.message
            assert caught.value.details["current_state"] == "discarded"

    def test_an_expiry_is_kept_replaced_or_cleared(self) -> None:
        assert self.retried(DISCARDED._replace(expires_at=at(101))).expires_at == at(101)
        gone = DISCARDED._replace(expires_at=at(50))
        cleared = self.retried(gone, None)
        assert (cleared.expires_at, cleared.deadline_at) == (None, None)
        replaced = self.retried(gone, at(500))
        assert (replaced.expires_at, replaced.deadline_at) == (at(500), at(500))

    def test_a_new_expiry_in_the_past_is_a_conflict_too(self) -> None:
        with pytest.raises(Conflict):
            self.retried(DISCARDED, at(99))


class TestExtend:
    def extended(self, job: JobRow, by_ms: int, seconds: float = 1) -> JobRow:
        return operations.extend(job, by_ms=by_ms, actor=WHO, now=at(seconds)).written

    def test_adds_and_adds_again(self) -> None:
        job = running(timeout_ms=10_000, grace_period_ms=2000)
        once = self.extended(job, 5000)
        assert (once.extended_ms, once.deadline_at, once.state) == (5000, at(17), "active")
        twice = self.extended(once, 5000)
        assert (twice.extended_ms, twice.deadline_at) == (10_000, at(22))
        assert (twice.lease_id, twice.attempt) == (job.lease_id, job.attempt)

    @pytest.mark.parametrize(
        ("visible_ms", "by_ms", "ends"), [(60_000, 5000, 17), (60_000, 90_000, 60), (8000, 5000, 8)]
    )
    def test_a_visibility_lease_that_the_deadline_cut_short_goes_on(
        self, visible_ms: int, by_ms: int, ends: int
    ) -> None:
        job = running(
            timeout_ms=10_000,
            grace_period_ms=2000,
            heartbeat_at=at(0),
            lease_visibility_ms=visible_ms,
            lease_expires_at=min(at(visible_ms / 1000), at(12)),
        )
        assert self.extended(job, by_ms).lease_expires_at == at(ends)

    def test_is_audited(self) -> None:
        move = operations.extend(
            running(timeout_ms=10_000, grace_period_ms=0), by_ms=5000, actor=WHO, now=at(1)
        )
        data = fact_of(move, "job.timeout_extended").data
        assert (data["extended_by_ms"], data["deadline_at"]) == (5000, format_instant(at(15)))
        assert named(data) == ("admin", "ada", "too slow")
        assert move.attempt is None

    def test_the_total_deadline_bounds_it(self) -> None:
        job = running(timeout_ms=10_000, grace_period_ms=0, total_timeout_ms=12_000)
        job = self.extended(job, 60_000)
        assert job.deadline_at == at(12)
        with pytest.raises(Conflict, match="total timeout"):
            self.extended(job, 1)

    def test_what_the_total_leaves_is_granted(self) -> None:
        """The grace period reaches beyond the total timeout already; before it there is room."""
        job = running(timeout_ms=60_000, grace_period_ms=30_000, total_timeout_ms=80_000)
        once = self.extended(job, 10_000)
        assert (once.extended_ms, once.deadline_at, soft_deadline(once)) == (10_000, at(80), at(70))
        twice = self.extended(once, 30_000)
        assert (twice.extended_ms, twice.deadline_at, soft_deadline(twice)) == (20_000, at(80), at(80))
        with pytest.raises(Conflict, match="total timeout"):
            self.extended(twice, 1)

    def test_only_what_was_granted_is_recorded(self) -> None:
        job = running(timeout_ms=60_000, grace_period_ms=0, total_timeout_ms=80_000)
        move = operations.extend(job, by_ms=60_000, actor=WHO, now=at(1))
        data = fact_of(move, "job.timeout_extended").data
        assert (data["extended_by_ms"], data["deadline_at"]) == (20_000, format_instant(at(80)))

    def test_after_an_outage_the_longer_deadline_stays(self) -> None:
        job = running(timeout_ms=10_000, grace_period_ms=0)
        job = lifecycle.recover(job, execution_until=at(35), now=at(20)).written
        job = self.extended(job, 5000, 21)
        assert (job.extended_ms, job.deadline_at) == (5000, at(35))
        assert self.extended(job, 60_000, 21).deadline_at == at(75)

    @pytest.mark.slow
    @given(st.lists(st.integers(1, 10**6), min_size=1, max_size=8), st.none() | st.integers(20, 10**6))
    def test_never_shortens_and_never_passes_the_total(
        self, steps: list[int], total: int | None
    ) -> None:
        job = running(
            timeout_ms=10_000,
            grace_period_ms=0,
            total_timeout_ms=None if total is None else total * 1000,
        )
        for step in steps:
            before = job.deadline_at
            try:
                job = self.extended(job, step)
            except Conflict:
                assert total is not None and before == at(total)
                return
            assert before is not None and job.deadline_at is not None
            assert before < job.deadline_at
            assert total is None or job.deadline_at <= at(total)


class TestReschedule:
    @pytest.mark.parametrize("state", ["scheduled", "retryable"])
    def test_to_a_later_time(self, state: str) -> None:
        job = in_state(state, deadline_at=at(9999))
        move = operations.reschedule(job, when=at(50), actor=WHO, now=at(1))
        written = move.written
        assert (written.state, written.scheduled_at) == (state, at(50))
        assert (written.enqueued_at, written.deadline_at) == (NOW, at(9999))
        assert kinds(move) == ["job.rescheduled"]
        assert move.job_events[0].data["scheduled_at"] == format_instant(at(50))
        assert named(move.job_events[0].data) == ("admin", "ada", "too slow")

    @pytest.mark.parametrize("state", ["scheduled", "retryable"])
    @pytest.mark.parametrize("seconds", [1, 0, -999])
    def test_a_time_not_ahead_means_now(self, state: str, seconds: float) -> None:
        move = operations.reschedule(in_state(state), when=at(seconds), actor=WHO, now=at(1))
        written = move.written
        assert (written.state, written.scheduled_at, written.enqueued_at) == (
            "available",
            at(1),
            at(1),
        )
        assert kinds(move) == ["job.rescheduled", "job.enqueued"]


class TestEdit:
    @pytest.mark.parametrize("state", ["scheduled", "pending", "available", "retryable"])
    def test_keeps_the_state_and_tells_what_changed(self, state: str) -> None:
        move = operations.edit(in_state(state), {"queue": "slow", "priority": 5}, actor=WHO)
        written = move.written
        assert (written.state, written.queue, written.priority) == (state, "slow", 5)
        assert kinds(move) == ["job.edited"]
        assert move.job_events[0].data["changed"] == ["priority", "queue"]

    def test_the_deadline_follows(self) -> None:
        job = record(enqueue_ttl_ms=5000, deadline_at=at(5))
        longer = operations.edit(job, {"enqueue_ttl_ms": 9000}, actor=WHO).written
        assert longer.deadline_at == at(9)
        none = operations.edit(job, {"enqueue_ttl_ms": None}, actor=WHO).written
        assert none.deadline_at is None
        total = operations.edit(job, {"total_timeout_ms": 3000}, actor=WHO).written
        assert total.deadline_at == at(3)


class TestActivate:
    def test_now(self) -> None:
        move = operations.activate(in_state("pending", total_timeout_ms=70_000), now=at(1))
        written = move.written
        assert (written.state, written.enqueued_at, written.deadline_at) == (
            "available",
            at(1),
            at(70),
        )
        assert kinds(move) == ["job.enqueued"]

    def test_for_a_time_ahead(self) -> None:
        move = operations.activate(in_state("pending", scheduled_at=at(50)), now=at(1))
        assert (move.written.state, move.written.scheduled_at) == ("scheduled", at(50))
        assert kinds(move) == ["job.scheduled"]
        assert move.job_events[0].data["scheduled_at"] == format_instant(at(50))

    @pytest.mark.parametrize("seconds", [1, 0])
    def test_for_a_time_that_has_come(self, seconds: float) -> None:
        job = in_state("pending", scheduled_at=at(seconds))
        assert operations.activate(job, now=at(1)).target is State.AVAILABLE


class TestDiscard:
    @pytest.mark.parametrize("state", ["scheduled", "pending", "available", "retryable"])
    def test_gives_up_a_waiting_job(self, state: str) -> None:
        move = operations.discard(in_state(state, deadline_at=at(9)), actor=WHO, now=at(1))
        written = move.written
        assert (written.state, written.finished_at, written.deadline_at) == (
            "discarded",
            at(1),
            None,
        )
        assert written.dead_letter is False
        assert kinds(move) == ["job.discarded"]
        assert named(move.job_events[0].data) == ("admin", "ada", "too slow")


VERBS: dict[str, Any] = {
    "cancel": (LIVE, lambda job: operations.cancel(job, actor=WHO, now=at(1))),
    "discard": (LIVE[:4], lambda job: operations.discard(job, actor=WHO, now=at(1))),
    "activate": (["pending"], lambda job: operations.activate(job, now=at(1))),
    "edit": (LIVE[:4], lambda job: operations.edit(job, {"priority": 1}, actor=WHO)),
    "extend": (["active"], lambda job: operations.extend(job, by_ms=1, actor=WHO, now=at(1))),
    "retry": (
        ["discarded"],
        lambda job: operations.retry_dead(job, actor=WHO, expires_at=False, now=at(1)),
    ),
    "reschedule": (
        ["scheduled", "retryable"],
        lambda job: operations.reschedule(job, when=at(9), actor=WHO, now=at(1)),
    ),
    "reschedule to now": (
        ["scheduled", "retryable"],
        lambda job: operations.reschedule(job, when=at(0), actor=WHO, now=at(1)),
    ),
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("verb", list(VERBS))
def test_every_verb_in_every_state(verb: str, state: str) -> None:
    allowed, decide = VERBS[verb]
    job = in_state(state, lease_id=LEASE if state == "active" else None)
    if state in allowed:
        assert decide(job).source == state
    else:
        with pytest.raises(InvalidTransition) as caught:
            decide(job)
        assert caught.value.details["current_state"] == state


@pytest.mark.parametrize("state", ["completed", "cancelled", "available"])
def test_a_retry_in_another_state_is_told_so_even_when_expired(state: str) -> None:
    with pytest.raises(InvalidTransition):
        operations.retry_dead(in_state(state, expires_at=NOW), actor=WHO, expires_at=False, now=at(1))
