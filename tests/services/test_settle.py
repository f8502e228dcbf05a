"""Reports count under the current lease only, once, and are written in few statements."""

from __future__ import annotations

import json

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_ojs.api import retry
from django_ojs.clock import FrozenClock
from django_ojs.domain.retry import UNLIMITED
from django_ojs.models import Attempt, Event, Job
from django_ojs.services import operate, reap
from django_ojs.services.settle import Outcome, Report, Verdict, settle
from tests.support import not_none

from .support import ack, fail, held, make, now_stored, release, take

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("ojs_db")]


def test_ack_completes_and_stores_the_result() -> None:
    (job,) = make()
    (claimed,) = take()
    (answer,) = ack(claimed, result='{"a":1}')
    assert answer.verdict is Verdict.SETTLED
    stored = now_stored(job)
    assert (stored.state, stored.json("result"), stored.attempt) == ("completed", {"a": 1}, 1)
    assert (stored.lease_id, stored.worker_id, stored.deadline_at) == (None, None, None)
    row = Attempt.objects.get(job_id=job.id)
    assert (row.outcome, row.attempt, row.lease_seq, row.worker_id) == ("completed", 1, 1, "w1")
    assert row.lease_id == claimed.lease_id


@pytest.mark.fault("F60")
def test_repeating_an_honoured_ack_is_a_replay_and_changes_nothing() -> None:
    make()
    (claimed,) = take()
    ack(claimed, result="1")
    before = now_stored(claimed)
    assert ack(claimed, result="2")[0].verdict is Verdict.REPLAYED
    assert now_stored(claimed) == before
    assert Attempt.objects.count() == 1


@pytest.mark.fault("F62")
def test_a_stale_report_changes_nothing_and_is_noted(frozen: FrozenClock) -> None:
    make(heartbeat_timeout=2, retry={"initial_interval": "PT1S", "jitter": False})
    (first,) = take(worker="w1")
    frozen.advance(3)
    assert reap.reap().counts == {"stalled": 1}
    frozen.advance(2)
    from django_ojs.services.promote import promote

    assert promote() == 1
    (second,) = take(worker="w2")
    before = now_stored(second)
    assert ack(first, result='"old"')[0].verdict is Verdict.LOST
    assert now_stored(second) == before
    assert ack(second, result='"new"')[0].verdict is Verdict.SETTLED
    assert now_stored(second).json("result") == "new"
    stalled = Attempt.objects.get(lease_id=not_none(first.lease_id))
    assert stalled.outcome == "stalled"
    assert not_none(stalled.late_report)["report"] == "ack"


@pytest.mark.fault("F65")
def test_a_lease_from_before_a_manual_retry_is_never_honoured() -> None:
    """The attempt number comes again after a manual retry; the lease does not."""
    make(retry={"max_attempts": 1})
    (first,) = take()
    fail(first)
    assert now_stored(first).state == "discarded"
    retry(first.id)
    (second,) = take()
    assert second.attempt == first.attempt == 1
    assert ack(first)[0].verdict is Verdict.LOST
    assert now_stored(first).state == "active"
    assert ack(second)[0].verdict is Verdict.SETTLED


@pytest.mark.fault("F60")
def test_fail_after_ack_does_not_unfinish() -> None:
    make()
    (claimed,) = take()
    ack(claimed)
    assert fail(claimed)[0].verdict is Verdict.LOST
    assert now_stored(claimed).state == "completed"


@pytest.mark.fault("F57", "F58")
def test_ack_after_cancel_is_refused() -> None:
    make()
    (claimed,) = take()
    operate.cancel([claimed.id])
    assert ack(claimed)[0].verdict is Verdict.LOST
    assert now_stored(claimed).state == "cancelled"


def test_failing_uses_up_the_attempts() -> None:
    make(retry={"max_attempts": 2, "initial_interval": "PT1S", "jitter": False})
    states = []
    for _ in range(2):
        (claimed,) = take()
        fail(claimed)
        stored = now_stored(claimed)
        states.append((stored.state, stored.attempt, len(stored.json("errors"))))
        operate.reschedule([claimed.id], stored.created_at) if stored.state == "retryable" else None
    assert states == [("retryable", 1, 1), ("discarded", 2, 2)]


def test_attempts_without_a_limit() -> None:
    """However many there were, failing and giving back go on counting."""
    (job,) = make(retry={"max_attempts": None, "jitter": False})
    assert job.max_attempts == job.json("retry")["max_attempts"] == UNLIMITED
    Job.objects.filter(pk=job.id).update(attempt=1_000_000)
    (claimed,) = take()
    fail(claimed)
    stored = now_stored(job)
    assert (stored.state, stored.attempt, stored.retry_delay_ms) == ("retryable", 1_000_001, 300_000)
    operate.reschedule([job.id], stored.created_at)
    (claimed,) = take()
    settle([Outcome(held(claimed), Report.REQUEUE)])
    assert (now_stored(job).state, now_stored(job).attempt) == ("available", 1_000_002)
    take()
    assert now_stored(job).attempt == 1_000_003


def test_release_gives_the_attempt_back_and_keeps_the_place() -> None:
    first, _second = make(2)
    claimed = take(1)
    release(*claimed)
    stored = now_stored(first)
    assert (stored.state, stored.attempt, stored.lease_seq) == ("available", 0, 1)
    assert stored.enqueued_at == first.enqueued_at
    assert take(1)[0].id == first.id
    assert [a.outcome for a in Attempt.objects.all()] == ["released"]


def test_unknown_jobs_are_missing_not_an_error() -> None:
    make()
    (claimed,) = take()
    ghost = held(claimed)._replace(job_id=claimed.lease_id)  # type: ignore[arg-type]
    answers = settle([Outcome(ghost, Report.ACK), Outcome(held(claimed), Report.ACK)])
    assert [answer.verdict for answer in answers] == [Verdict.MISSING, Verdict.SETTLED]


def test_statements_do_not_grow_with_the_batch() -> None:
    counts = []
    for size in (3, 60):
        make(size)
        claimed = take(size)
        half = size // 3
        with CaptureQueriesContext(connection) as queries:
            outcomes = [Outcome(held(job), Report.ACK, "1") for job in claimed[half:]]
            outcomes += [Outcome(held(job), Report.REQUEUE) for job in claimed[:half]]
            settle(outcomes)
        counts.append(len(queries))
        operate.cancel([job.id for job in claimed[:half]])
    assert counts[0] == counts[1]


def test_events_tell_the_story_in_order() -> None:
    (job,) = make(retry={"max_attempts": 1, "on_exhaustion": "dead_letter"})
    (claimed,) = take()
    fail(claimed)
    kinds = list(Event.objects.filter(job_id=job.id).order_by("pk").values_list("kind", flat=True))
    assert kinds == [
        "job.enqueued",
        "job.started",
        "job.failed",
        "job.discarded",
        "dead_letter.added",
    ]
    last = Event.objects.filter(job_id=job.id, kind="job.failed").get()
    assert last.data["error"]["type"] == "test.Error"
    assert json.loads(json.dumps(last.data))["attempt"] == 1
