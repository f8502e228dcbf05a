"""A report is judged by the clock: what comes when the time of the attempt is up does not count."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from django_ojs.clock import FrozenClock
from django_ojs.domain.errors import Conflict
from django_ojs.domain.failures import Failure
from django_ojs.domain.job import JobRow
from django_ojs.domain.lease_claim import LeaseClaim
from django_ojs.models import Attempt
from django_ojs.services import leases, reaper
from django_ojs.services.leases import Progress
from django_ojs.services.settle import Outcome, Report, Verdict, report, settle
from tests.services.support import ack, fail, held, make, now_stored, release, take
from tests.support import not_none

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("ojs_db")]

TOTAL: dict[str, Any] = {"total_timeout": 10}
EXECUTION: dict[str, Any] = {"timeout": 6, "grace_period": 4}


def running(**options: Any) -> JobRow:
    """A job that has just started."""
    make(**options)
    return take()[0]


def attempt_of(job: JobRow) -> Attempt:
    """Its only attempt that has ended."""
    return Attempt.objects.get(job_id=job.id)


@pytest.mark.parametrize(
    ("limits", "state", "kind"),
    [(TOTAL, "discarded", "total_timeout"), (EXECUTION, "retryable", "timeout")],
)
class TestTimeIsUp:
    def ended(self, job: JobRow, state: str, kind: str, said: str) -> None:
        stored = now_stored(job)
        assert (stored.state, stored.json("error")["type"], stored.result) == (state, kind, None)
        attempt = attempt_of(job)
        assert attempt.outcome == kind
        assert not_none(attempt.late_report)["report"] == said

    def test_an_ack_is_refused_and_the_timeout_settled(
        self, frozen: FrozenClock, limits: dict[str, Any], state: str, kind: str
    ) -> None:
        job = running(**limits)
        frozen.advance(10)
        assert ack(job, result="1")[0].verdict is Verdict.LOST
        self.ended(job, state, kind, "ack")

    def test_an_ack_by_the_claimed_record_too(
        self, frozen: FrozenClock, limits: dict[str, Any], state: str, kind: str
    ) -> None:
        job = running(**limits)
        frozen.advance(10)
        (answer,) = settle([Outcome(held(job), Report.ACK, claimed=job)])
        assert answer.verdict is Verdict.LOST
        self.ended(job, state, kind, "ack")

    @pytest.mark.parametrize("said", [Report.ACK, Report.FAIL, Report.REQUEUE])
    def test_one_report_with_any_evidence_is_a_conflict(
        self, frozen: FrozenClock, limits: dict[str, Any], state: str, kind: str, said: Report
    ) -> None:
        job = running(**limits)
        frozen.advance(10)
        with pytest.raises(Conflict) as caught:
            report(job.id, LeaseClaim(), said, failure=Failure("X") if said is Report.FAIL else None)
        assert caught.value.details["reason"] == "not_active"
        assert caught.value.details["current_state"] == state
        self.ended(job, state, kind, str(said))

    def test_a_failure_is_refused_too(
        self, frozen: FrozenClock, limits: dict[str, Any], state: str, kind: str
    ) -> None:
        job = running(**limits)
        frozen.advance(10)
        assert fail(job)[0].verdict is Verdict.LOST
        self.ended(job, state, kind, "fail")

    def test_the_workers_own_report_of_it_counts(
        self, frozen: FrozenClock, limits: dict[str, Any], state: str, kind: str
    ) -> None:
        job = running(**limits)
        frozen.advance(10)
        (answer,) = fail(job, type="timeout")
        assert answer.verdict is Verdict.SETTLED
        assert (now_stored(job).state, attempt_of(job).outcome) == (state, kind)
        assert attempt_of(job).late_report is None

    def test_what_was_never_begun_is_given_back(
        self, frozen: FrozenClock, limits: dict[str, Any], state: str, kind: str
    ) -> None:
        job = running(**limits)
        frozen.advance(10)
        assert release(job)[0].verdict is Verdict.SETTLED
        assert now_stored(job).state == "available"

    def test_a_moment_before_it_counts(
        self, frozen: FrozenClock, limits: dict[str, Any], state: str, kind: str
    ) -> None:
        job = running(**limits)
        frozen.advance(9.999)
        assert ack(job)[0].verdict is Verdict.SETTLED

    def test_a_report_that_waited_for_a_row_is_judged_by_when_it_was_tried(
        self, frozen: FrozenClock, limits: dict[str, Any], state: str, kind: str
    ) -> None:
        job = running(**limits)
        tried_at = frozen.time + timedelta(seconds=9)
        frozen.advance(12)
        (answer,) = settle([Outcome(held(job), Report.ACK, tried_at=tried_at)])
        assert answer.verdict is Verdict.SETTLED
        assert now_stored(job).state == "completed"

    def test_so_is_progress(
        self, frozen: FrozenClock, limits: dict[str, Any], state: str, kind: str
    ) -> None:
        job = running(**limits)
        tried_at = frozen.time + timedelta(seconds=9)
        frozen.advance(12)
        assert leases.progress([Progress(held(job), 0.2)]) == []
        assert len(leases.progress([Progress(held(job), 0.5, tried_at=tried_at)])) == 1
        assert now_stored(job).progress == 0.5


def test_one_late_report_holds_up_no_other(frozen: FrozenClock) -> None:
    late = running(**TOTAL)
    frozen.advance(5)
    other = running()
    frozen.advance(5)
    assert [answer.verdict for answer in ack(late, other)] == [Verdict.LOST, Verdict.SETTLED]
    assert [now_stored(job).state for job in (late, other)] == ["discarded", "completed"]


def test_a_lapsed_heartbeat_or_visibility_lease_is_healed(frozen: FrozenClock) -> None:
    """Their time is over only when somebody judges it: the report shows that the worker lives."""
    silent = running(heartbeat_timeout=5)
    make()
    (leased,) = take(visibility_ms=3000)
    frozen.advance(6)
    assert [answer.verdict for answer in ack(silent, leased)] == [Verdict.SETTLED] * 2


def test_nothing_is_late_after_an_outage_but_for_the_total(frozen: FrozenClock) -> None:
    """Nobody has scanned for longer than scans are apart: the deadline is about to be moved."""
    execution, total = running(**EXECUTION), running(**TOTAL)
    reaper.scan(cadence=timedelta(seconds=1), ran_by="test")
    frozen.advance(60)
    assert [answer.verdict for answer in ack(execution, total)] == [Verdict.SETTLED, Verdict.LOST]
