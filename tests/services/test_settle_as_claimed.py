"""An ACK whose reporter still has the record it claimed is written without reading the job again."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_ojs.api import cancel, extend_timeout
from django_ojs.domain.job import JobRow
from django_ojs.models import Attempt
from django_ojs.services import leases
from django_ojs.services.settle import Outcome, Report, SettleResult, Verdict, settle
from tests.support import not_none

from .support import held, make, now_stored, take

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("ojs_db")]


def ack(*jobs: JobRow, result: str | None = "1") -> list[SettleResult]:
    """Report success and bring the record along."""
    return settle([Outcome(held(job), Report.ACK, result, claimed=job) for job in jobs])


def test_many_are_one_statement_for_each_table() -> None:
    make(5)
    claimed = take(5)
    with CaptureQueriesContext(connection) as queries:
        answers = ack(*reversed(claimed))
    assert [answer.verdict for answer in answers] == [Verdict.SETTLED] * 5
    words = [query["sql"].split()[0] for query in queries]
    asked = [word for word in words if word in ("SELECT", "UPDATE", "INSERT")]
    assert asked == ["UPDATE", "INSERT", "INSERT"], "jobs, attempts, stored events; nothing is read"
    for job in claimed:
        stored = now_stored(job)
        assert (stored.state, stored.json("result"), stored.lease_id) == ("completed", 1, None)
        row = Attempt.objects.get(job_id=job.id)
        assert (row.outcome, row.lease_id, row.deadline_at) == (
            "completed",
            job.lease_id,
            job.deadline_at,
        )


def test_an_extension_made_meanwhile_is_in_the_attempt() -> None:
    make(2)
    one, other = take(2)
    extended = extend_timeout(one, 60)
    assert [answer.verdict for answer in ack(one, other)] == [Verdict.SETTLED] * 2
    assert Attempt.objects.get(job_id=one.id).deadline_at == extended.deadline_at
    assert Attempt.objects.get(job_id=other.id).deadline_at == other.deadline_at


def test_progress_made_meanwhile_ends_at_one() -> None:
    make()
    (job,) = take()
    leases.progress([leases.Progress(held(job), 0.5)])
    assert ack(job)[0].verdict is Verdict.SETTLED
    assert now_stored(job).progress == 1.0


def test_one_that_was_lost_does_not_take_the_others_with_it() -> None:
    make(3)
    jobs = take(3)
    cancel(jobs[1])
    answers = ack(*jobs)
    assert [answer.verdict for answer in answers] == [Verdict.SETTLED, Verdict.LOST, Verdict.SETTLED]
    assert [now_stored(job).state for job in jobs] == ["completed", "cancelled", "completed"]
    late = Attempt.objects.get(job_id=jobs[1].id).late_report
    assert not_none(late)["report"] == "ack"


@pytest.mark.fault("F60")
def test_a_report_said_twice_counts_once() -> None:
    make(2)
    one, other = take(2)
    assert [answer.verdict for answer in ack(one, other, one)][:2] == [Verdict.SETTLED] * 2
    assert ack(one)[0].verdict is Verdict.REPLAYED
    assert Attempt.objects.count() == 2


@pytest.mark.fault("F62")
def test_a_record_of_an_earlier_claim_proves_nothing() -> None:
    """The lease decides, not the record that comes with it."""
    make()
    (first,) = take()
    settle([Outcome(held(first), Report.REQUEUE)])
    (second,) = take()
    assert ack(first)[0].verdict is Verdict.LOST
    stale = Outcome(held(second), Report.ACK, "1", claimed=first)
    assert settle([stale])[0].verdict is Verdict.SETTLED
    assert Attempt.objects.get(lease_id=not_none(second.lease_id)).lease_seq == second.lease_seq
