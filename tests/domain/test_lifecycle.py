"""What becomes of a job: claim, reports, clocks, and the order of decision R4."""

from __future__ import annotations

import json
from datetime import datetime
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_ojs.domain import lifecycle, timeouts
from django_ojs.domain.durations import format_instant
from django_ojs.domain.errors import InvalidTransition
from django_ojs.domain.failures import Directive, Failure
from django_ojs.domain.job import NO_LEASE, JobRow, Transition, changed, changed_alike
from django_ojs.domain.states import State, Trigger
from tests.domain.records import (
    ID,
    LEASE,
    NOW,
    at,
    fact_of,
    in_state,
    kinds,
    policy,
    record,
    running,
)

STATES = [state.value for state in State]
BOOM = Failure("SmtpError", "no route to host")


def claimed(job: JobRow, **changes: Any) -> Transition:
    given: dict[str, Any] = {"worker_id": "w1", "beats": True, "visibility_ms": None, "now": NOW}
    return lifecycle.claim(job, lease_id=LEASE, **{**given, **changes})


def failed(job: JobRow, failure: Failure = BOOM, seconds: float = 5, **more: Any) -> Transition:
    return lifecycle.fail(job, failure, now=at(seconds), jitter=0.5, **more)


def error_of(job: JobRow) -> dict[str, Any]:
    error: dict[str, Any] = job.json("error")
    return error


def test_what_changes_alike_changes_as_one_by_one() -> None:
    jobs = [record(args=f"[{number}]", priority=number) for number in range(3)]
    changes, leases = {"worker_id": "w1", "started_at": NOW, "progress": None}, [7, 8, 9]
    assert changed_alike(jobs, State.ACTIVE, changes, {"lease_id": leases}) == [
        changed(job, State.ACTIVE, {**changes, "lease_id": lease})
        for job, lease in zip(jobs, leases, strict=True)
    ]
    with pytest.raises(ValueError, match="shorter"):
        changed_alike(jobs, State.ACTIVE, changes, {"lease_id": leases[:2]})


class TestClaim:
    def test_starts_an_attempt_under_a_fresh_lease(self) -> None:
        move = claimed(record(attempt=1, lease_seq=4, extended_ms=0))
        job = move.written
        assert (job.state, job.attempt, job.lease_seq) == ("active", 2, 5)
        assert (job.lease_id, job.worker_id) == (LEASE, "w1")
        assert (job.started_at, job.heartbeat_at) == (NOW, NOW)
        assert job.deadline_at == at(1830)
        assert job.lease_expires_at is None
        assert move.attempt is None
        assert kinds(move) == ["job.started"]
        assert move.job_events[0].data["attempt"] == 2
        assert move.job_events[0].data["worker_id"] == "w1"

    def test_an_old_extension_is_forgotten(self) -> None:
        job = claimed(record(extended_ms=99_000)).written
        assert (job.extended_ms, job.deadline_at) == (0, at(1830))

    def test_the_total_deadline_bounds_the_execution(self) -> None:
        job = record(total_timeout_ms=60_000, limits_from=at(-50))
        assert claimed(job).written.deadline_at == at(10)

    @pytest.mark.parametrize(
        ("explicit", "beats", "armed"),
        [(False, False, False), (False, True, True), (True, False, True), (True, True, True)],
    )
    def test_the_default_heartbeat_is_armed_by_a_beating_worker(
        self, explicit: bool, beats: bool, armed: bool
    ) -> None:
        job = record(heartbeat_explicit=explicit)
        assert claimed(job, beats=beats).written.heartbeat_armed is armed

    @pytest.mark.parametrize(
        ("own", "asked", "visibility", "until"),
        [
            (None, None, None, None),
            (None, 20_000, 20_000, at(20)),
            (5000, 20_000, 5000, at(5)),
            (5000, None, 5000, at(5)),
            (None, 10**8, 10**8, at(1830)),
        ],
    )
    def test_a_visibility_lease_never_outlives_the_execution(
        self, own: int | None, asked: int | None, visibility: int | None, until: datetime | None
    ) -> None:
        job = claimed(record(visibility_timeout_ms=own), visibility_ms=asked).written
        assert (job.lease_visibility_ms, job.lease_expires_at) == (visibility, until)

    def test_an_anonymous_worker(self) -> None:
        assert claimed(record(), worker_id=None).written.worker_id is None


class TestAck:
    def test_completes_and_clears(self) -> None:
        job = running(error='{"type": "old"}', errors='[{"type": "old"}]', progress=0.4)
        move = lifecycle.ack(job, result='{"n": 1}', now=at(2.5))
        done = move.written
        assert (done.state, done.result, done.error) == ("completed", '{"n": 1}', None)
        assert done.errors == '[{"type": "old"}]'
        assert (done.progress, done.finished_at, done.started_at) == (1.0, at(2.5), NOW)
        assert (done.lease_id, done.worker_id, done.deadline_at) == (None, None, None)
        assert done.attempt == 1
        assert move.attempt is not None and move.attempt.outcome == "completed"
        data = fact_of(move, "job.completed").data
        assert (data["duration_ms"], data["result"], data["attempt"]) == (2500, {"n": 1}, 1)

    def test_no_progress_stays_none(self) -> None:
        done = lifecycle.ack(running(), result=None, now=at(1)).written
        assert (done.progress, done.result) == (None, None)

    def test_a_long_result_is_not_in_the_event(self) -> None:
        text = json.dumps("x" * 2000)
        move = lifecycle.ack(running(), result=text, now=at(1))
        assert fact_of(move, "job.completed").data["result"] is None
        assert move.written.result == text

    def test_dead_and_late_clocks_do_not_matter(self) -> None:
        job = running(timeout_ms=1000, grace_period_ms=0)
        assert lifecycle.ack(job, result=None, now=at(100)).target is State.COMPLETED


class TestFail:
    """Each rule of decision R4, in its order."""

    def test_retries_with_backoff(self) -> None:
        move = failed(running(attempt=2))
        job = move.written
        assert (job.state, job.retry_delay_ms, job.scheduled_at) == ("retryable", 2000, at(7))
        assert {name: getattr(job, name) for name in NO_LEASE} == dict(NO_LEASE)
        assert (job.attempt, job.finished_at, job.dead_letter) == (2, None, False)
        assert job.started_at == NOW
        assert kinds(move) == ["job.failed", "job.retrying"]
        data = fact_of(move, "job.retrying").data
        assert (data["retry_delay_ms"], data["max_attempts"]) == (2000, 3)
        assert data["next_retry_at"] == format_instant(at(7))
        assert data["error"]["type"] == "SmtpError"
        assert move.attempt is not None and move.attempt.outcome == "failed"
        assert json.loads(move.attempt.error or "") == error_of(job)

    def test_retry_after_replaces_the_backoff(self) -> None:
        job = failed(running(), Failure("X", retry_after_ms=123_456)).written
        assert (job.retry_delay_ms, job.scheduled_at) == (123_456, at(128.456))
        assert failed(running(), Failure("X", retry_after_ms=0)).written.retry_delay_ms == 0

    @pytest.mark.parametrize("most", [0, 1, 2, 3])
    @pytest.mark.parametrize("attempt", [1, 2, 3])
    def test_attempts_count_executions(self, most: int, attempt: int) -> None:
        job = failed(running(max_attempts=most, attempt=attempt)).written
        expected = "retryable" if attempt < max(1, most) else "discarded"
        assert job.state == expected

    # Columns: directive, retryable, matches, attempts left -> state, in the dead letter when
    # on_exhaustion is dead_letter.
    @pytest.mark.parametrize(
        ("directive", "retryable", "matching", "left"),
        list(
            product(
                [None, "RETRY", "DISCARD", "DEAD_LETTER", "FAIL"],
                [True, False],
                [True, False],
                [True, False],
            )
        ),
    )
    @pytest.mark.parametrize("exhaustion", ["discard", "dead_letter"])
    def test_precedence(
        self, directive: str | None, retryable: bool, matching: bool, left: bool, exhaustion: str
    ) -> None:
        job = running(
            attempt=1 if left else 3,
            retry=policy(on_exhaustion=exhaustion, non_retryable_errors=["Bad.*"] if matching else []),
        )
        failure = Failure(
            "Bad.Input",
            retryable=retryable,
            directive=None if directive is None else Directive(directive),
        )
        written = failed(job, failure).written
        if directive in ("DISCARD", "FAIL"):
            expected = ("discarded", False)
        elif directive == "DEAD_LETTER":
            expected = ("discarded", True)
        elif not left or (directive != "RETRY" and (not retryable or matching)):
            expected = ("discarded", exhaustion == "dead_letter")
        else:
            expected = ("retryable", False)
        assert (written.state, written.dead_letter) == expected

    @pytest.mark.parametrize(
        "failure",
        [
            Failure("auth.expired"),
            Failure("handler_error", code="auth.expired"),
            Failure("handler_error", details={"error_class": "auth.expired"}),
            Failure("handler_error", details={"type": "auth.expired"}),
        ],
    )
    def test_what_is_matched(self, failure: Failure) -> None:
        listed = running(retry=policy(non_retryable_errors=["auth.*"]))
        assert failed(listed, failure).target is State.DISCARDED
        assert failed(running(), failure).target is State.RETRYABLE

    def test_discarded_is_closed_for_good(self) -> None:
        move = failed(running(attempt=3, retry=policy(on_exhaustion="dead_letter")))
        job = move.written
        assert (job.finished_at, job.deadline_at, job.dead_letter) == (at(5), None, True)
        assert job.lease_id is None and job.attempt == 3
        assert kinds(move) == ["job.failed", "job.discarded", "dead_letter.added"]
        data = fact_of(move, "job.discarded").data
        assert (data["total_attempts"], data["dead_letter"]) == (3, True)
        assert data["last_error"]["type"] == "SmtpError"

    def test_no_dead_letter_no_event(self) -> None:
        assert kinds(failed(running(attempt=3))) == ["job.failed", "job.discarded"]

    def test_the_retryable_job_waits_under_its_total_alone(self) -> None:
        job = running(total_timeout_ms=600_000, enqueue_ttl_ms=1000, expires_at=at(1))
        assert failed(job).written.deadline_at == at(600)
        assert failed(running(enqueue_ttl_ms=1000)).written.deadline_at is None

    @pytest.mark.parametrize(
        ("kind", "outcome"),
        [
            ("shutdown", "shutdown"),
            ("worker_crash", "worker_crash"),
            ("ValueError", "failed"),
            ("handler_not_found", "failed"),
        ],
    )
    def test_outcome_of_the_attempt(self, kind: str, outcome: str) -> None:
        move = failed(running(), Failure(kind))
        assert move.attempt is not None and move.attempt.outcome == outcome


class TestRetryable:
    """The stored error says ``retryable`` only of what is retried."""

    @pytest.mark.parametrize(
        "failure",
        [
            Failure("X", directive=Directive.DISCARD),
            Failure("X", directive=Directive.DEAD_LETTER),
            Failure("listed"),
            Failure("X", retryable=False),
        ],
    )
    def test_not_of_what_is_given_up(self, failure: Failure) -> None:
        move = failed(running(retry=policy(non_retryable_errors=["listed"])), failure)
        assert error_of(move.written)["retryable"] is False
        assert move.attempt is not None
        assert json.loads(move.attempt.error or "")["retryable"] is False

    def test_not_of_the_last_attempt(self) -> None:
        assert error_of(failed(running(attempt=3)).written)["retryable"] is False

    def test_of_what_is_tried_again(self) -> None:
        assert error_of(failed(running()).written)["retryable"] is True
        overruled = failed(running(), Failure("X", retryable=False, directive=Directive.RETRY))
        assert error_of(overruled.written)["retryable"] is True


def test_a_claim_forgets_the_progress_of_the_attempt_before_but_its_data() -> None:
    job = record(progress=0.7, progress_message="most of it", progress_data="[1]", attempt=1)
    again = lifecycle.claim(
        job, lease_id=LEASE, worker_id="w1", beats=True, visibility_ms=None, now=NOW
    )
    written = again.written
    assert (written.progress, written.progress_message, written.progress_data) == (None, "", "[1]")


class TestLookAhead:
    """Decision T6: a retry that cannot end in time is not begun."""

    def test_only_the_delay_counts_without_an_explicit_timeout(self) -> None:
        job = running(total_timeout_ms=6000)
        assert failed(job, seconds=5).target is State.RETRYABLE
        assert failed(job, seconds=5.001).target is State.DISCARDED

    def test_an_explicit_timeout_counts(self) -> None:
        job = running(total_timeout_ms=16_000, timeout_ms=10_000, timeout_explicit=True)
        assert failed(job, seconds=5).target is State.RETRYABLE
        assert failed(job, seconds=5.001).target is State.DISCARDED
        assert failed(job._replace(timeout_explicit=False), seconds=6).target is State.RETRYABLE

    @pytest.mark.parametrize("exhaustion", ["discard", "dead_letter"])
    @pytest.mark.parametrize("directive", [None, Directive.RETRY])
    def test_the_real_error_is_kept(self, exhaustion: str, directive: Directive | None) -> None:
        job = running(total_timeout_ms=5500, retry=policy(on_exhaustion=exhaustion))
        move = failed(job, Failure("SmtpError", "no route", directive=directive))
        written = move.written
        assert (written.state, written.dead_letter) == ("discarded", exhaustion == "dead_letter")
        assert error_of(written)["type"] == "total_timeout"
        assert error_of(written)["timeout_kind"] == "total"
        assert [error["type"] for error in written.json("errors")] == ["SmtpError", "total_timeout"]
        assert move.attempt is not None and move.attempt.outcome == "failed"
        assert json.loads(move.attempt.error or "")["type"] == "SmtpError"
        assert kinds(move)[:3] == ["job.failed", "job.total_timeout", "job.discarded"]

    def test_it_says_why_and_what_is_true(self) -> None:
        """Five seconds in, of twenty: the attempt failed, and the next may take a minute."""
        job = running(
            total_timeout_ms=25_000,
            timeout_ms=60_000,
            timeout_explicit=True,
            retry=policy(initial_interval="PT4S"),
        )
        move = failed(job, Failure("SmtpError", "no route", details={"host": "a"}))
        error = error_of(move.written)
        assert (error["type"], error["code"]) == ("total_timeout", "total_timeout")
        assert error["message"] == (
            "the next attempt could not finish: it would start in 4 s and may take 60 s,"
            " the total timeout is in 20 s"
        )
        assert error["retryable"] is False
        assert error["details"]["cause"]["type"] == "SmtpError"
        assert error["details"]["cause"]["message"] == "no route"
        assert (error["limit_seconds"], error["elapsed_seconds"]) == (25, 5)
        assert (error["limit_ms"], error["elapsed_ms"]) == (25_000, 5000)
        data = fact_of(move, "job.total_timeout").data
        seven = {"job_id", "job_type", "queue", "attempt", "timeout_kind"}
        assert set(data) == seven | {"limit_seconds", "elapsed_seconds", "lookahead"}
        assert data["lookahead"] is True

    def test_without_an_explicit_timeout_only_the_start_is_known(self) -> None:
        error = error_of(failed(running(total_timeout_ms=5500)).written)
        assert error["message"] == (
            "the next attempt could not start: it would start in 1 s, the total timeout is in 0.5 s"
        )

    def test_a_total_that_has_passed_is_no_look_ahead(self) -> None:
        move = lifecycle.overdue(running(total_timeout_ms=5000), now=at(5), jitter=0.5)
        assert move is not None
        assert "lookahead" not in fact_of(move, "job.total_timeout").data
        assert error_of(move.written)["message"] == "Job exceeded its total timeout of 5 seconds"

    def test_it_comes_last(self) -> None:
        job = running(total_timeout_ms=5500)
        exhausted = failed(job._replace(attempt=3)).written
        assert error_of(exhausted)["type"] == "SmtpError"
        dead = failed(job, Failure("X", directive=Directive.DEAD_LETTER)).written
        assert (error_of(dead)["type"], dead.dead_letter) == ("X", True)

    def test_retry_after_is_looked_at_too(self) -> None:
        job = running(total_timeout_ms=60_000)
        assert failed(job, Failure("X", retry_after_ms=54_000)).target is State.RETRYABLE
        assert failed(job, Failure("X", retry_after_ms=56_000)).target is State.DISCARDED


class TestReportedTimeout:
    """A worker that stopped its own handler reports type or code ``timeout``."""

    @pytest.mark.parametrize("failure", [Failure("timeout"), Failure("E", code="timeout")])
    def test_gets_the_fields_of_an_execution_timeout(self, failure: Failure) -> None:
        job = running(timeout_ms=4000, grace_period_ms=10_000)
        move = failed(job, failure)
        error = error_of(move.written)
        assert move.target is State.RETRYABLE
        assert (error["timeout_kind"], error["limit_seconds"]) == ("execution", 4)
        assert error["elapsed_seconds"] == 5
        assert kinds(move) == ["job.timeout", "job.failed", "job.retrying"]
        assert move.attempt is not None and move.attempt.outcome == failure.type

    def test_the_text_is_the_standard_one_unless_the_worker_has_its_own(self) -> None:
        job = running(timeout_ms=4000)
        assert error_of(failed(job, Failure("timeout")).written)["message"] == (
            "Job execution exceeded timeout of 4 seconds"
        )
        own = failed(job, Failure("timeout", "gave up")).written
        assert error_of(own)["message"] == "gave up"

    @pytest.mark.parametrize(
        ("directive", "state", "dead"),
        [
            (Directive.DISCARD, "discarded", False),
            (Directive.FAIL, "discarded", False),
            (Directive.DEAD_LETTER, "discarded", True),
            (Directive.RETRY, "retryable", False),
        ],
    )
    def test_a_directive_decides_what_happens_next(
        self, directive: Directive, state: str, dead: bool
    ) -> None:
        job = running(timeout_ms=4000, retry=policy(non_retryable_errors=["timeout"]))
        move = failed(job, Failure("timeout", directive=directive, retry_after_ms=45_000))
        written = move.written
        assert (written.state, written.dead_letter) == (state, dead)
        assert error_of(written)["type"] == "timeout"
        assert written.retry_delay_ms == (45_000 if state == "retryable" else None)
        assert move.attempt is not None and move.attempt.outcome == "timeout"

    def test_a_total_that_is_due_comes_first(self) -> None:
        move = failed(running(total_timeout_ms=5000), Failure("timeout"))
        assert move.trigger is Trigger.TOTAL_TIMEOUT
        assert error_of(move.written)["timeout_kind"] == "total"

    def test_listed_timeouts_are_not_retried(self) -> None:
        job = running(retry=policy(non_retryable_errors=["timeout"]))
        assert failed(job, Failure("timeout")).target is State.DISCARDED


class TestOverdue:
    def reap(self, job: JobRow, seconds: float) -> Transition:
        move = lifecycle.overdue(job, now=at(seconds), jitter=0.5)
        assert move is not None
        return move

    # The outcome table of OJS timeouts 8.
    @pytest.mark.parametrize(
        ("job", "trigger", "state", "kind", "type_"),
        [
            (running(timeout_ms=1000), "timeout", "retryable", "execution", "timeout"),
            (running(timeout_ms=1000, attempt=3), "timeout", "discarded", "execution", "timeout"),
            (
                running(total_timeout_ms=1000),
                "total_timeout",
                "discarded",
                "total",
                "total_timeout",
            ),
            (
                record(enqueue_ttl_ms=1000),
                "expire",
                "discarded",
                "enqueue_ttl",
                "enqueue_ttl_expired",
            ),
            (running(heartbeat_timeout_ms=1000), "stall", "retryable", "stalled", "stalled"),
            (
                running(heartbeat_timeout_ms=1000, attempt=3),
                "stall",
                "discarded",
                "stalled",
                "stalled",
            ),
        ],
    )
    def test_outcomes(self, job: JobRow, trigger: str, state: str, kind: str, type_: str) -> None:
        move = self.reap(job, 31.5)
        error = error_of(move.written)
        assert (move.trigger, move.written.state) == (trigger, state)
        assert (error["type"], error["code"]) == (type_, type_)
        assert (error["timeout_kind"], error["limit_seconds"]) == (kind, 1)
        assert error["elapsed_seconds"] == 31
        assert error["message"]
        assert {"retryable", "attempt", "occurred_at", "message"} <= error.keys()

    @pytest.mark.parametrize(
        ("job", "events"),
        [
            (running(timeout_ms=1000), ["job.timeout"]),
            (running(heartbeat_timeout_ms=1000), ["job.stalled"]),
            (record(enqueue_ttl_ms=1000), ["job.ttl_expired", "job.expired"]),
            (running(total_timeout_ms=1000), ["job.total_timeout"]),
            (record(state="scheduled", total_timeout_ms=1000), ["job.total_timeout"]),
            (running(lease_visibility_ms=1000, lease_expires_at=at(1)), ["job.stalled"]),
        ],
    )
    def test_events_have_the_seven_fields(self, job: JobRow, events: list[str]) -> None:
        move = self.reap(job, 40)
        assert kinds(move)[: len(events)] == events
        data = move.job_events[0].data
        assert set(data) == {
            "job_id",
            "job_type",
            "queue",
            "attempt",
            "timeout_kind",
            "limit_seconds",
            "elapsed_seconds",
        }
        assert data["job_id"] == str(ID)
        assert (data["job_type"], data["queue"]) == ("video.transcode", "media")
        assert (data["attempt"], data["limit_seconds"], data["elapsed_seconds"]) == (
            job.attempt,
            1,
            40,
        )

    def test_expired_tells_the_ttl(self) -> None:
        data = fact_of(self.reap(record(enqueue_ttl_ms=1500), 2), "job.expired").data
        assert data["ttl_ms"] == 1500
        assert data["expired_at"] == format_instant(at(2))
        assert data["created_at"] == format_instant(NOW)

    @pytest.mark.parametrize("exhaustion", ["discard", "dead_letter"])
    def test_dead_letter(self, exhaustion: str) -> None:
        retry = policy(on_exhaustion=exhaustion)
        wanted = exhaustion == "dead_letter"
        ttl = self.reap(record(enqueue_ttl_ms=1000, retry=retry), 9).written
        assert ttl.dead_letter is False
        for job in (
            record(total_timeout_ms=1000, retry=retry),
            running(total_timeout_ms=1000, retry=retry),
            running(timeout_ms=1000, attempt=3, retry=retry),
            running(heartbeat_timeout_ms=1000, attempt=3, retry=retry),
        ):
            assert self.reap(job, 40).written.dead_letter is wanted

    def test_only_a_running_job_ends_an_attempt(self) -> None:
        assert self.reap(record(total_timeout_ms=1000), 2).attempt is None
        assert self.reap(record(enqueue_ttl_ms=1000), 2).attempt is None
        end = self.reap(running(total_timeout_ms=1000), 2).attempt
        assert end is not None and end.outcome == "total_timeout"
        end = self.reap(running(heartbeat_timeout_ms=1000), 2).attempt
        assert end is not None and end.outcome == "stalled"

    def test_total_beats_attempts_left_and_ends_the_lease(self) -> None:
        job = self.reap(running(total_timeout_ms=1000, max_attempts=99), 2).written
        assert (job.state, job.lease_id, job.deadline_at) == ("discarded", None, None)
        assert job.finished_at == at(2)

    def test_first_match_wins(self) -> None:
        job = running(
            timeout_ms=1000,
            grace_period_ms=0,
            total_timeout_ms=1000,
            heartbeat_timeout_ms=1000,
            heartbeat_explicit=True,
            lease_visibility_ms=1000,
            lease_expires_at=at(1),
        )
        triggers = []
        for change in (
            {},
            {"total_timeout_ms": None},
            {"deadline_at": at(99)},
            {"lease_expires_at": None},
        ):
            job = job._replace(**change)
            triggers.append(self.reap(job, 5).trigger)
        assert triggers == ["total_timeout", "timeout", "lapse", "stall"]

    @pytest.mark.parametrize("state", STATES)
    def test_nothing_is_due(self, state: str) -> None:
        assert lifecycle.overdue(in_state(state), now=NOW, jitter=0.5) is None

    @pytest.mark.parametrize("state", ["completed", "cancelled", "discarded"])
    def test_what_is_over_is_never_overdue(self, state: str) -> None:
        job = in_state(state, total_timeout_ms=1, enqueue_ttl_ms=1, attempt=0, expires_at=NOW)
        assert lifecycle.overdue(job, now=at(10**6), jitter=0.5) is None

    @pytest.mark.slow
    @given(
        state=st.sampled_from(STATES),
        attempt=st.integers(1, 5),
        limits=st.tuples(*[st.none() | st.integers(1, 10_000)] * 3),
        exhaustion=st.sampled_from(["discard", "dead_letter"]),
        seconds=st.integers(0, 2_000_000),
        jitter=st.floats(0, 1, exclude_max=True),
    )
    def test_total_in_every_state(
        self,
        state: str,
        attempt: int,
        limits: tuple[int | None, int | None, int | None],
        exhaustion: str,
        seconds: int,
        jitter: float,
    ) -> None:
        total, ttl, lease = limits
        job = in_state(
            state,
            attempt=attempt if state in ("active", "retryable") else 0,
            total_timeout_ms=total,
            enqueue_ttl_ms=ttl,
            lease_expires_at=None if lease is None else at(lease / 1000),
            retry=policy(on_exhaustion=exhaustion),
        )
        move = lifecycle.overdue(job, now=at(seconds), jitter=jitter)
        if move is None:
            return
        written = move.written
        assert written.state in ("retryable", "available", "discarded")
        assert written.lease_id is None and written.heartbeat_at is None
        assert (move.attempt is not None) == (state == "active")
        assert len(written.json("errors")) in (1, 2)
        assert error_of(written)["timeout_kind"] in ("execution", "total", "enqueue_ttl", "stalled")
        assert lifecycle.overdue(written, now=at(seconds), jitter=jitter) is None


class TestLapse:
    """Decision T10: the end of a visibility lease is a delivery again, without backoff."""

    job = running(lease_visibility_ms=2000, lease_expires_at=at(2))

    def lapse(self, job: JobRow) -> Transition:
        move = lifecycle.overdue(job, now=at(3), jitter=0.5)
        assert move is not None and move.trigger is Trigger.LAPSE
        return move

    def test_goes_straight_to_available(self) -> None:
        move = self.lapse(self.job)
        job = move.written
        assert (job.state, job.attempt, job.enqueued_at) == ("available", 1, at(3))
        assert (job.started_at, job.lease_id, job.lease_expires_at) == (None, None, None)
        assert error_of(job)["type"] == "visibility_timeout"
        assert error_of(job)["timeout_kind"] == "stalled"
        assert kinds(move) == ["job.stalled", "job.failed", "job.enqueued"]
        assert move.attempt is not None and move.attempt.outcome == "visibility_timeout"

    def test_obeys_max_attempts(self) -> None:
        assert self.lapse(self.job._replace(attempt=3)).target is State.DISCARDED

    def test_obeys_matching(self) -> None:
        job = self.job._replace(retry=policy(non_retryable_errors=["visibility_timeout"]))
        assert self.lapse(job).target is State.DISCARDED

    def test_a_long_backoff_does_not_trip_the_look_ahead(self) -> None:
        job = self.job._replace(
            total_timeout_ms=10_000, retry=policy(initial_interval="PT1H", max_interval="PT1H")
        )
        move = self.lapse(job)
        assert (move.target, move.written.deadline_at) == (State.AVAILABLE, at(10))


class TestGivingBack:
    def test_requeue_keeps_the_attempt(self) -> None:
        move = lifecycle.requeue(running(attempt=2, lease_seq=2, enqueue_ttl_ms=1000), now=at(9))
        job = move.written
        assert (job.state, job.attempt, job.lease_seq) == ("available", 2, 2)
        assert (job.enqueued_at, job.started_at, job.deadline_at) == (at(9), None, None)
        assert {name: getattr(job, name) for name in NO_LEASE} == dict(NO_LEASE)
        assert move.attempt is not None and move.attempt.outcome == "requeued"
        assert kinds(move) == ["job.enqueued"]
        total = lifecycle.requeue(running(total_timeout_ms=60_000), now=at(9)).written
        assert total.deadline_at == at(60)

    def test_requeue_of_the_only_attempt_takes_it_back_and_clears_the_ttl(self) -> None:
        job = running(max_attempts=1, enqueue_ttl_ms=1000, expires_at=at(1), attempt_ttl_ms=5000)
        waits = lifecycle.requeue(job, now=at(9)).written
        assert (waits.attempt, waits.enqueue_ttl_ms, waits.expires_at) == (0, None, None)
        assert waits.deadline_at == at(14) == timeouts.waiting_deadline(waits)
        kept = lifecycle.requeue(job._replace(max_attempts=2), now=at(9)).written
        assert (kept.attempt, kept.enqueue_ttl_ms, kept.expires_at) == (1, 1000, at(1))

    def test_release_gives_the_attempt_and_the_place_back(self) -> None:
        move = lifecycle.release(running(attempt=2, lease_seq=5, enqueued_at=at(-9)), now=at(1))
        job = move.written
        assert (job.state, job.attempt, job.lease_seq) == ("available", 1, 5)
        assert (job.enqueued_at, job.started_at) == (at(-9), None)
        assert {name: getattr(job, name) for name in NO_LEASE} == dict(NO_LEASE)
        assert move.attempt is not None and move.attempt.outcome == "released"
        assert kinds(move) == ["job.released"]

    def test_release_of_a_first_attempt_restores_the_ttl(self) -> None:
        waits = lifecycle.release(running(enqueue_ttl_ms=60_000), now=at(1)).written
        assert (waits.attempt, waits.deadline_at) == (0, at(60))
        second = lifecycle.release(running(attempt=2, enqueue_ttl_ms=60_000), now=at(1)).written
        assert (second.attempt, second.deadline_at) == (1, None)

    def test_claim_then_release_changes_nothing_but_the_lease_number(self) -> None:
        job = record(enqueue_ttl_ms=9000, total_timeout_ms=99_000, deadline_at=at(9))
        back = lifecycle.release(claimed(job).written, now=at(1)).written
        assert back._replace(lease_seq=0, heartbeat_armed=False) == job

    def test_promote(self) -> None:
        for state in ("scheduled", "retryable"):
            move = lifecycle.promote(in_state(state, total_timeout_ms=50_000), now=at(8))
            job = move.written
            assert (job.state, job.enqueued_at, job.deadline_at) == ("available", at(8), at(50))
            assert kinds(move) == ["job.enqueued"]


class TestRecover:
    """Decision T9: what an outage adds."""

    def recovered(self, job: JobRow, seconds: float = 100) -> JobRow:
        move = lifecycle.recover(job, execution_until=at(seconds + 15), now=at(seconds))
        assert (move.trigger, move.job_events, move.attempt) == (Trigger.RECOVER, (), None)
        return move.written

    def test_a_deadline_that_passed_gets_fifteen_seconds(self) -> None:
        quiet = running(timeout_ms=1000, grace_period_ms=0, heartbeat_armed=False)
        job = self.recovered(quiet)
        assert (job.heartbeat_at, job.deadline_at, job.state) == (at(0), at(115), "active")
        assert lifecycle.overdue(job, now=at(114), jitter=0.5) is None
        move = lifecycle.overdue(job, now=at(115), jitter=0.5)
        assert move is not None and move.trigger is Trigger.TIMEOUT

    def test_a_later_deadline_stays(self) -> None:
        assert self.recovered(running()).deadline_at == at(1830)

    def test_the_total_timeout_gets_none(self) -> None:
        assert self.recovered(running(total_timeout_ms=105_000)).deadline_at == at(105)
        past = self.recovered(running(total_timeout_ms=50_000))
        move = lifecycle.overdue(past, now=at(100), jitter=0.5)
        assert move is not None and move.trigger is Trigger.TOTAL_TIMEOUT

    @pytest.mark.parametrize("expires", [None, 2, 300])
    def test_no_silence_begins_again(self, expires: float | None) -> None:
        """It is judged by what was seen, not by another beginning on the row."""
        job = running(timeout_ms=1000, grace_period_ms=0, heartbeat_timeout_ms=20_000)
        if expires is not None:
            job = job._replace(lease_visibility_ms=2000, lease_expires_at=at(expires))
        assert self.recovered(job) == job._replace(deadline_at=at(115))

    @pytest.mark.parametrize(
        ("seconds", "total", "expires"), [(300, None, 115), (103, None, 103), (300, 105, 105)]
    )
    def test_a_visibility_lease_that_the_deadline_cut_short_gets_the_air_too(
        self, seconds: int, total: int | None, expires: int
    ) -> None:
        job = running(
            timeout_ms=1000,
            grace_period_ms=0,
            total_timeout_ms=total and total * 1000,
            lease_visibility_ms=seconds * 1000,
            lease_expires_at=at(1),
        )
        assert self.recovered(job).lease_expires_at == at(expires)


class TestHistory:
    def test_the_last_fifty_errors_are_kept(self) -> None:
        job = running(max_attempts=1000)
        for attempt in range(1, 61):
            again = running(attempt=attempt, max_attempts=1000, errors=job.errors)
            job = failed(again, Failure("E", str(attempt))).written
        history = job.json("errors")
        assert [error["attempt"] for error in history] == list(range(11, 61))
        assert history[-1]["message"] == "60"

    def test_the_cap_holds_for_the_two_errors_of_a_look_ahead(self) -> None:
        old = json.dumps([{"type": "old"}] * 50)
        job = failed(running(total_timeout_ms=5500, errors=old)).written
        history = job.json("errors")
        assert len(history) == 50
        assert [error["type"] for error in history[-3:]] == ["old", "SmtpError", "total_timeout"]

    def test_backtraces_stay_with_the_attempt(self) -> None:
        move = failed(running(), Failure("E", backtrace=["line 1", "line 2"]))
        assert "backtrace" not in move.written.json("errors")[0]
        assert error_of(move.written)["backtrace"] == ["line 1", "line 2"]
        assert move.attempt is not None
        assert json.loads(move.attempt.error or "")["backtrace"] == ["line 1", "line 2"]
        assert "backtrace" not in fact_of(move, "job.failed").data["error"]


DECISIONS: dict[str, Any] = {
    "claim": lambda job: claimed(job),
    "ack": lambda job: lifecycle.ack(job, result=None, now=at(1)),
    "fail": lambda job: failed(job),
    "fail timeout": lambda job: failed(job, Failure("timeout")),
    "promote": lambda job: lifecycle.promote(job, now=at(1)),
    "requeue": lambda job: lifecycle.requeue(job, now=at(1)),
    "release": lambda job: lifecycle.release(job, now=at(1)),
    "recover": lambda job: lifecycle.recover(job, execution_until=at(15), now=at(1)),
}
FROM = {"claim": {"available"}, "promote": {"scheduled", "retryable"}}


@pytest.mark.parametrize("total", [None, 1000])
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("name", list(DECISIONS))
def test_every_decision_in_every_state(name: str, state: str, total: int | None) -> None:
    job = in_state(state, total_timeout_ms=total)
    if state in FROM.get(name, {"active"}):
        assert DECISIONS[name](job).source == state
    else:
        with pytest.raises(InvalidTransition) as caught:
            DECISIONS[name](job._replace(lease_id=LEASE))
        assert caught.value.details["current_state"] == state


@pytest.mark.parametrize("name", ["ack", "fail", "requeue", "release"])
def test_reports_without_a_lease_are_refused(name: str) -> None:
    with pytest.raises(InvalidTransition, match="needs a lease"):
        DECISIONS[name](running(lease_id=None))
