"""The five timeouts over HTTP: when each ends a job, with what error, and what comes after."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from django_ojs.clock import FrozenClock
from django_ojs.models import Attempt
from tests.http.support import Api, enqueue, fetch, look
from tests.http.timed import (
    SLOW_RETRY,
    Timeline,
    ack,
    after_start,
    assert_timeout_error,
    beat,
    events,
    nack,
    started,
)

ONCE = {"max_attempts": 1}
SEVEN = {
    "job_id",
    "job_type",
    "queue",
    "attempt",
    "timeout_kind",
    "limit_seconds",
    "elapsed_seconds",
}
"""The data of the four events (OJS timeouts 11.1)."""


@pytest.fixture
def timeline(api: Api, frozen: FrozenClock) -> Timeline:
    """Time that the test moves."""
    return Timeline(api, frozen)


def test_timeout_is_in_seconds_and_half_an_hour_by_default(api: Api, timeline: Timeline) -> None:
    plain = enqueue(api)
    assert (plain["timeout"], plain["timeout_ms"]) == (1800, 1_800_000)
    assert (plain["grace_period"], plain["heartbeat_timeout"]) == (30, 60)
    assert "total_timeout" not in plain
    assert "enqueue_ttl" not in plain
    mine = fetch(api)[0]
    assert mine["timeout_ms"] == 1_800_000
    assert "timeout" not in mine, "one SDK would read it as milliseconds"
    assert datetime.fromisoformat(mine["lease"]["deadline_at"]) == after_start(mine, 1830)
    assert datetime.fromisoformat(mine["lease"]["soft_deadline_at"]) == after_start(mine, 1800)
    assert mine["lease"]["expires_at"] is None
    job = enqueue(api, queue="one", timeout=1, retry=SLOW_RETRY)
    assert (job["timeout"], job["timeout_ms"], job["grace_period"]) == (1, 1000, 30)
    again = enqueue(api, timeout=7, options={"timeout": 5})
    assert again["timeout"] == 5, "options win"
    short = started(api, queue="two", timeout_ms=1000, retry=SLOW_RETRY)
    assert short["grace_period"] == 0, "the dialect without a grace period (decision T3)"
    assert timeline.state_around(short, 1) == ("active", "retryable")
    assert look(api, short)["error"]["type"] == "timeout"


def test_total_timeout_ends_a_job_in_every_state(api: Api, timeline: Timeline) -> None:
    terms: dict[str, Any] = {"total_timeout": 1, "retry": {"max_attempts": 99}}
    running = started(api, queue="running", **terms)
    dead = started(api, queue="dead", total_timeout=1, retry={"on_exhaustion": "dead_letter"})
    waiting = enqueue(api, queue="waiting", **terms)
    scheduled = enqueue(api, queue="scheduled", scheduled_at="PT1H", **terms)
    pending = enqueue(api, queue="pending", pending=True, **terms)
    jobs = ((running, 1), (dead, 1), (waiting, 0), (scheduled, 0), (pending, 0))
    timeline.go_to(running, 0.999)
    assert not [job for job, _ in jobs if look(api, job)["state"] == "discarded"]
    timeline.go_to(running, 1)
    for job, attempt in jobs:
        after = look(api, job)
        assert after["state"] == "discarded"
        assert_timeout_error(after, "total", "total_timeout", 1, attempt=attempt, elapsed=1)
        assert after["dead_letter"] is (job is dead)
        assert ("completed_at" in after) is (attempt > 0)
    listed = api.get("/dead-letter").body["jobs"]
    assert [job["id"] for job in listed] == [dead["id"]]
    late = ack(api, running)
    assert (late.status, late.code) == (409, "conflict")


def test_a_retry_that_cannot_end_in_total_time_is_not_planned(api: Api, timeline: Timeline) -> None:
    """An explicit timeout counts in the look-ahead, the default of half an hour does not."""
    retry: dict[str, Any] = {"initial_interval": "PT1S", "jitter": False}
    for name, more, state in (("with", {"timeout": 2}, "discarded"), ("without", {}, "retryable")):
        failed = nack(api, started(api, queue=name, total_timeout=2, retry=retry, **more))
        assert failed["state"] == state, name
    # What really failed is kept.
    retry = {"max_attempts": 9, "initial_interval": "PT5S", "jitter": False}
    ahead = nack(api, started(api, queue="ahead", total_timeout=2, retry=retry), error={"code": "x"})
    assert (ahead["state"], ahead["attempt"]) == ("discarded", 1)
    assert [error["type"] for error in ahead["errors"]] == ["x", "total_timeout"]
    assert ahead["error"]["elapsed_seconds"] < ahead["error"]["limit_seconds"] == 2
    timeline.advance(2)
    after = look(api, failed)
    assert after["state"] == "discarded", "between its attempts, which are not used up"
    assert after["error"]["type"] == "total_timeout"


def test_the_attempt_ttl_is_of_each_attempt(api: Api, timeline: Timeline) -> None:
    retry = {"initial_interval": "PT1S", "jitter": False}
    job = started(api, attempt_ttl_ms=2500, retry=retry)
    assert job["attempt_ttl_ms"] == 2500
    assert enqueue(api, queue="other", attempt_ttl="3s")["attempt_ttl"] == 3
    nack(api, job)
    timeline.advance(1)
    assert look(api, job)["state"] == "available"
    timeline.advance(2.5)
    after = look(api, job)
    assert (after["state"], after["attempt"], after["dead_letter"]) == ("discarded", 1, False)
    assert after["error"]["type"] == "enqueue_ttl_expired"
    assert after["error"]["limit_ms"] == 2500


def test_the_enqueue_ttl_ends_with_the_first_start(api: Api, timeline: Timeline) -> None:
    retry = {"on_exhaustion": "dead_letter", "initial_interval": "PT1S", "jitter": False}
    terms: dict[str, Any] = {"enqueue_ttl": 1, "retry": retry}
    lucky = started(api, queue="lucky", **terms)
    doomed = [
        enqueue(api, queue="doomed", **terms),
        enqueue(api, queue="doomed", scheduled_at="PT1H", **terms),
        enqueue(api, queue="doomed", pending=True, **terms),
        enqueue(api, queue="doomed", expires_at="+PT1S"),
    ]
    waiting = ["available", "scheduled", "pending", "available"]
    assert [job["state"] for job in doomed] == waiting
    timeline.go_to(lucky, 0.999)
    assert [look(api, job)["state"] for job in doomed] == waiting
    timeline.go_to(lucky, 1)
    for job in doomed:
        after = look(api, job)
        assert after["state"] == "discarded"
        assert_timeout_error(after, "enqueue_ttl", "enqueue_ttl_expired", 1, attempt=0, elapsed=1)
        assert after["attempt"] == 0
        assert after["dead_letter"] is False
        assert "completed_at" not in after
    assert fetch(api, "doomed") == []
    timeline.advance(1)
    assert look(api, lucky)["state"] == "active"
    assert nack(api, lucky)["state"] == "retryable"
    timeline.advance(1)
    again = fetch(api, "lucky", worker=None)[0]
    assert (again["id"], again["attempt"]) == (lucky["id"], 2)


def test_a_job_that_ends_while_scheduled_was_never_enqueued(api: Api, timeline: Timeline) -> None:
    cancelled = enqueue(api, scheduled_at="PT1H")
    assert api("DELETE", f"/jobs/{cancelled['id']}").status == 200
    expired, due = enqueue(api, scheduled_at="PT1H", enqueue_ttl=2), enqueue(api, scheduled_at="PT1S")
    timeline.advance(2)
    assert look(api, expired)["state"] == "discarded"
    assert api("DELETE", f"/jobs/{due['id']}").status == 200
    shown = ["enqueued_at" in look(api, job) for job in (cancelled, expired, due)]
    assert shown == [False, False, True]


def test_the_grace_period(api: Api, timeline: Timeline) -> None:
    """Soft signal at the timeout, end at timeout plus grace; an ack within counts."""
    terms: dict[str, Any] = {"timeout": 1, "grace_period": 3}
    good = started(api, queue="good", **terms)
    bad = started(api, queue="bad", retry=SLOW_RETRY, **terms)
    last = started(api, queue="last", retry=ONCE, **terms)
    hard = started(api, queue="hard", timeout=1, grace_period=0, retry=SLOW_RETRY)
    timeline.go_to(bad, 0.999)
    assert beat(api, bad["worker_id"], bad)["soft_timeout_jobs"] == []
    assert look(api, hard)["state"] == "active"
    timeline.go_to(bad, 1)
    after = look(api, hard)
    assert after["state"] == "retryable", "at once, without the others' grace"
    assert_timeout_error(after, "execution", "timeout", 1, attempt=1, elapsed=1)
    assert Attempt.objects.get(job_id=hard["id"]).ended_at == after_start(hard, 1)
    told = beat(api, bad["worker_id"], bad)
    assert told["soft_timeout_jobs"] == told["jobs_extended"] == [bad["id"]]
    timeline.go_to(bad, 3.999)
    assert look(api, bad)["state"] == "active"
    accepted = ack(api, good, result="just in time")
    assert (accepted.status, accepted.body["state"]) == (200, "completed")
    timeline.go_to(bad, 4)
    for job, state in ((bad, "retryable"), (last, "discarded")):
        after = look(api, job)
        assert after["state"] == state
        assert_timeout_error(after, "execution", "timeout", 1, attempt=1, elapsed=4)
        assert Attempt.objects.get(job_id=job["id"]).ended_at == after_start(job, 4)
        assert ack(api, job).status == 409
    assert beat(api, bad["worker_id"], bad)["jobs_lost"] == [bad["id"]]


def test_the_error_object(api: Api, timeline: Timeline) -> None:
    cases = (
        (started(api, queue="a", timeout=1, grace_period=0, retry=ONCE), "execution", "timeout"),
        (started(api, queue="b", total_timeout=1, retry=ONCE), "total", "total_timeout"),
        (enqueue(api, queue="c", enqueue_ttl=1), "enqueue_ttl", "enqueue_ttl_expired"),
        (started(api, queue="d", heartbeat_timeout=1, retry=ONCE), "stalled", "stalled"),
    )
    timeline.advance(1)
    for job, kind, of_type in cases:
        after = look(api, job)
        assert after["state"] == "discarded"
        attempt = 0 if kind == "enqueue_ttl" else 1
        assert_timeout_error(after, kind, of_type, 1, attempt=attempt, elapsed=1)
        assert after["errors"][-1] == after["error"]
        flat = api.get(f"/jobs/{job['id']}").body
        assert flat["error"] == after["error"], "also beside the envelope (OJS timeouts 10.2)"
        if kind == "execution":
            assert after["error"]["message"] == "Job execution exceeded timeout of 1 second"
    # A worker's own report of a timeout is the same failure.
    own = nack(api, started(api, queue="e", timeout=3), error={"code": "timeout"})["error"]
    assert (own["type"], own["timeout_kind"], own["limit_seconds"]) == ("timeout", "execution", 3)
    assert own["elapsed_seconds"] == 0


def test_timeouts_are_retried_unless_listed(api: Api, timeline: Timeline) -> None:
    """``timeout`` in ``non_retryable_errors`` ends it; without, there is a retry."""
    limits = {"timeout": 1, "grace_period": 0}
    listed = {"non_retryable_errors": ["timeout"], "on_exhaustion": "dead_letter"}
    other = {**SLOW_RETRY, "non_retryable_errors": ["time", "timeout.*", "stalled"]}
    ends = started(api, queue="ends", retry=listed, **limits)
    goes_on = started(api, queue="goes-on", retry=other, **limits)
    stalls = started(api, queue="stalls", heartbeat_timeout=1, retry=other)
    timeline.advance(1)
    after = look(api, ends)
    assert (after["state"], after["attempt"], after["dead_letter"]) == ("discarded", 1, True)
    assert look(api, goes_on)["state"] == "retryable"
    assert look(api, stalls)["state"] == "discarded"


def test_the_events(api: Api, timeline: Timeline) -> None:
    """Four events with seven data fields and the state, before ``job.failed`` and ``job.discarded``."""
    cases = (
        (
            started(api, queue="a", timeout=1, grace_period=0, retry=ONCE),
            ("execution", 1),
            ["job.timeout", "job.failed", "job.discarded"],
        ),
        (
            started(api, queue="b", heartbeat_timeout=1, retry=SLOW_RETRY),
            ("stalled", 1),
            ["job.stalled", "job.failed", "job.retrying"],
        ),
        (
            enqueue(api, queue="c", enqueue_ttl=1),
            ("enqueue_ttl", 0),
            ["job.ttl_expired", "job.expired", "job.discarded"],
        ),
        (
            started(api, queue="d", total_timeout=1),
            ("total", 1),
            ["job.total_timeout", "job.discarded"],
        ),
    )
    timeline.advance(1)
    for job, (kind, attempt), expected in cases:
        assert look(api, job)["state"] in ("discarded", "retryable")
        found = events(api, job)
        assert [event["type"] for event in found][-len(expected) :] == expected
        data = found[-len(expected)]["data"]
        assert set(data) == SEVEN | {"state"}
        assert data["job_id"] == found[-1]["subject"] == job["id"]
        assert (data["job_type"], data["queue"]) == ("test.job", job["queue"])
        assert (data["timeout_kind"], data["attempt"]) == (kind, attempt)
        assert data["limit_seconds"] == 1 == data["elapsed_seconds"]
    expired = next(event for event in events(api, cases[2][0]) if event["type"] == "job.expired")
    assert {"created_at", "expired_at", "ttl_ms"} <= set(expired["data"])


def test_data_of_progress_reaches_the_next_attempt(api: Api, timeline: Timeline) -> None:
    """``progress_data`` stays until the next attempt reports its own."""
    retry = {"initial_interval_ms": 100, "jitter": False}
    job = started(api, timeout=1, grace_period=1, retry=retry)
    said = {"progress": 0.5, "message": "half", "data": {"row": 41}, "lease_id": job["lease"]["id"]}
    assert api.post(f"/jobs/{job['id']}/progress", said).status == 200
    timeline.go_to(job, 2)
    timeline.advance(0.1)
    again = fetch(api, worker="next")[0]
    assert (again["id"], again["attempt"], again["progress_data"]) == (job["id"], 2, {"row": 41})
    assert not {"progress", "progress_message"} & again.keys()
    said = {"progress": 0.1, "lease_id": again["lease"]["id"]}
    assert api.post(f"/jobs/{job['id']}/progress", said).body["data"] is None


def test_a_checkpoint_of_the_grace_period_is_resumed(api: Api, timeline: Timeline) -> None:
    """``last_checkpoint`` reaches the next attempt, also when it was saved in the grace."""
    retry = {"initial_interval_ms": 100, "jitter": False}
    job = started(api, timeout=1, grace_period=1, retry=retry)
    assert "last_checkpoint" not in job
    path = f"/jobs/{job['id']}/checkpoint"
    assert api.post(path, {"state": {"done": 1}}).body["sequence"] == 1
    timeline.go_to(job, 1)
    assert beat(api, job["worker_id"], job)["soft_timeout_jobs"] == [job["id"]]
    saved = api("PUT", path, {"state": {"done": 2}, "lease_id": job["lease"]["id"]})
    assert (saved.status, saved.body["sequence"]) == (200, 2)
    timeline.go_to(job, 2)
    timeline.advance(0.1)
    again = fetch(api, worker="next")[0]
    assert (again["id"], again["attempt"]) == (job["id"], 2)
    assert again["error"]["type"] == "timeout"
    assert again["last_checkpoint"] == {"done": 2}
    assert again["checkpoint"] == {"state": {"done": 2}, "sequence": 2}
    late = api("PUT", path, {"state": {"done": 3}, "lease_id": job["lease"]["id"]})
    assert (late.status, late.code) == (409, "conflict")
    resumed = api.get(f"/checkpoints/{job['id']}/resume").body
    assert resumed["checkpoint"]["state"] == {"done": 2}


def test_shutdown_is_no_timeout(api: Api) -> None:
    """The error type ``shutdown`` of its own, retried like any failure."""
    for name, error in (("typed", {"type": "shutdown"}), ("coded", {"code": "shutdown"})):
        job = started(api, queue=name, timeout=3, retry=SLOW_RETRY)
        after = nack(api, job, error={**error, "message": "the worker ends"})
        assert (after["state"], after["error"]["type"]) == ("retryable", "shutdown")
        assert "timeout_kind" not in after["error"]
        kinds = [event["type"] for event in events(api, job)]
        assert kinds[-2:] == ["job.failed", "job.retrying"]
        assert "job.timeout" not in kinds
        assert Attempt.objects.get(job_id=job["id"]).outcome == "shutdown"


def test_what_refreshes_a_running_timeout_adds_to_it(api: Api, timeline: Timeline) -> None:
    plain = started(api, queue="plain", timeout="1s", grace_period=0, retry=ONCE)
    longer = started(api, queue="longer", timeout="1s", grace_period=0, retry=ONCE)
    lease = {"lease_id": longer["lease"]["id"]}
    path = f"/jobs/{longer['id']}/extend"
    first = api.post(path, {"extend_timeout": "500ms", **lease})
    assert first.status == 200, first.raw
    assert datetime.fromisoformat(first.body["deadline_at"]) == after_start(longer, 1.5)
    assert first.body["extended_ms"] == 500
    second = api.post(path, {"extend_timeout_ms": 700, **lease})
    assert datetime.fromisoformat(second.body["deadline_at"]) == after_start(longer, 2.2)
    told = beat(api, longer["worker_id"], longer, extend_timeout_ms=300)
    deadline = datetime.fromisoformat(told["deadline_at"][longer["id"]])
    assert deadline == after_start(longer, 2.5)
    timeline.go_to(plain, 1)
    after = look(api, plain)
    assert after["state"] == "discarded"
    assert_timeout_error(after, "execution", "timeout", 1, attempt=1, elapsed=1)
    assert timeline.state_around(longer, 2.5) == ("active", "discarded")
    assert Attempt.objects.get(job_id=longer["id"]).ended_at == after_start(longer, 2.5)
    assert look(api, longer)["error"]["limit_seconds"] == 3, "2.5 s, in whole seconds"
    assert api.post(path, {"extend_timeout": 1, **lease}).status == 409
    extended = [e for e in events(api, longer) if e["type"] == "job.timeout_extended"]
    assert len(extended) == 3, "each is on record"
    assert api.post(f"/jobs/{plain['id']}/extend", {"extend_timeout": -1}).status == 400


def test_the_four_timeouts_of_others(api: Api, timeline: Timeline) -> None:
    """Schedule-to-start is never retried, nor schedule-to-close; the other two are."""
    retry = {"max_attempts": 5, "on_exhaustion": "dead_letter", **SLOW_RETRY}
    to_start = enqueue(api, queue="a", enqueue_ttl=1, retry=retry)
    to_close = started(api, queue="b", total_timeout=1, retry=retry)
    start_to_close = started(api, queue="c", timeout=1, grace_period=0, retry=retry)
    heartbeat = started(api, queue="d", heartbeat_timeout=1, retry=retry)
    expected = (
        (to_start, "discarded", 0, False),
        (to_close, "discarded", 1, True),
        (start_to_close, "retryable", 1, None),
        (heartbeat, "retryable", 1, None),
    )
    timeline.advance(1)
    for job, state, attempt, dead in expected:
        after = look(api, job)
        found = (after["state"], after["attempt"], after.get("dead_letter"))
        assert found == (state, attempt, dead), job["queue"]
        assert ("next_attempt_at" in after) is (state == "retryable")
