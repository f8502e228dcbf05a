"""What a beat keeps alive and what it refuses: stall clocks, visibility leases, its fields."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from django_ojs.clock import FrozenClock
from django_ojs.models import Attempt, Job
from tests.http.support import Api, enqueue, fetch, look
from tests.http.timed import (
    SLOW_RETRY,
    Timeline,
    after_start,
    assert_timeout_error,
    beat,
    started,
)


@pytest.fixture
def timeline(api: Api, frozen: FrozenClock) -> Timeline:
    """Time that the test moves."""
    return Timeline(api, frozen)


def test_the_heartbeat_timeout(api: Api, timeline: Timeline) -> None:
    """An explicit one holds always, for workers that have never sent a beat too (decision T4)."""
    terms: dict[str, Any] = {"heartbeat_timeout": 1, "retry": SLOW_RETRY}
    silent = started(api, queue="silent", **terms)
    last = started(api, queue="last", heartbeat_timeout=1, retry={"max_attempts": 1})
    beaten = started(api, queue="beaten", **terms)
    timeline.go_to(beaten, 0.8)
    assert beat(api, beaten["worker_id"], beaten)["jobs_extended"] == [beaten["id"]]
    timeline.go_to(beaten, 1)
    for job, state in ((silent, "retryable"), (last, "discarded")):
        after = look(api, job)
        assert after["state"] == state
        assert_timeout_error(after, "stalled", "stalled", 1, attempt=1, elapsed=1)
        assert Attempt.objects.get(job_id=job["id"]).ended_at == after_start(job, 1)
    timeline.go_to(beaten, 1.6)
    assert beat(api, beaten["worker_id"], beaten)["jobs_extended"] == [beaten["id"]]
    assert timeline.state_around(beaten, 2.6) == ("active", "retryable"), "when the beats end"
    assert look(api, beaten)["error"]["type"] == "stalled"


def test_the_default_heartbeat_timeout(api: Api) -> None:
    """60 s by default, of those who have promised beats by sending one."""

    def armed(worker: str | None, **body: Any) -> bool:
        job = enqueue(api, queue="default-limit", **body)
        assert fetch(api, "default-limit", worker=worker)[0]["id"] == job["id"]
        row = Job.objects.get(pk=job["id"])
        assert row.heartbeat_timeout_ms == body.get("heartbeat_timeout", 60) * 1000
        return row.heartbeat_armed

    assert not armed(None)
    assert not armed("never")
    assert not armed("never"), "a fetch is no beat"
    assert armed("never", heartbeat_timeout=60), "an explicit limit always holds"
    beat(api, "beats")
    assert armed("beats")
    assert api.post("/workers/register", {"worker_id": "registers"}).status == 200
    assert armed("registers")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/jobs/{}/progress", {"progress": 0.1}),
        ("POST", "/jobs/{}/progress", {"progress": 0.1}),
        ("POST", "/workers/progress", {"percentage": 10}),
        ("PUT", "/jobs/{}/checkpoint", {"state": {"step": 1}}),
    ],
)
def test_progress_and_checkpoints_are_signs_of_life(
    api: Api, timeline: Timeline, method: str, path: str, body: dict[str, Any]
) -> None:
    """Each of them restarts the heartbeat clock."""
    job = started(api, heartbeat_timeout=1, retry=SLOW_RETRY)
    named = body if "{}" in path else {"job_id": job["id"], **body}
    for seconds in (0.8, 1.6):
        timeline.go_to(job, seconds)
        answer = api(method, path.format(job["id"]), named)
        assert answer.status == 200, answer.raw
    assert timeline.state_around(job, 2.6) == ("active", "retryable")
    assert look(api, job)["error"]["type"] == "stalled"


def test_a_visibility_lease_consumes_an_attempt(api: Api, timeline: Timeline) -> None:
    """Its end counts, obeys ``max_attempts`` and matching, and can end in the dead letter."""
    lease: dict[str, Any] = {"visibility_timeout_ms": 1000}
    enqueue(api, queue="a", retry={"max_attempts": 2, "on_exhaustion": "dead_letter"})
    listed = {"non_retryable_errors": ["visibility_timeout"], "max_attempts": 5}
    enqueue(api, queue="b", visibility_timeout_ms=1000, retry=listed)
    first = fetch(api, "a", **lease)[0]
    ends = fetch(api, "b")[0]
    assert datetime.fromisoformat(first["lease"]["expires_at"]) == after_start(first, 1)
    assert datetime.fromisoformat(ends["lease"]["expires_at"]) == after_start(ends, 1)
    assert timeline.state_around(first, 1) == ("active", "available"), "at once, without backoff"
    back = look(api, first)
    assert back["attempt"] == 1
    assert "started_at" not in back
    assert_timeout_error(back, "stalled", "visibility_timeout", 1, attempt=1, elapsed=1)
    after = look(api, ends)
    assert (after["state"], after["dead_letter"]) == ("discarded", False)
    second = fetch(api, "a", **lease)[0]
    assert (second["id"], second["attempt"]) == (first["id"], 2)
    assert timeline.state_around(second, 1) == ("active", "discarded")
    after = look(api, second)
    assert after["dead_letter"] is True
    assert [error["type"] for error in after["errors"]] == ["visibility_timeout"] * 2
    listed_ids = [job["id"] for job in api.get("/dead-letter").body["jobs"]]
    assert listed_ids == [first["id"]]


def test_beats_extend_a_visibility_lease(api: Api, timeline: Timeline) -> None:
    """The job stays with its worker for as long as that is heard of."""
    enqueue(api)
    job = fetch(api, visibility_timeout_ms=1000)[0]
    for seconds in (0.8, 1.6):
        timeline.go_to(job, seconds)
        assert beat(api, "w1", job)["jobs_extended"] == [job["id"]]
    timeline.go_to(job, 2.599)
    assert look(api, job)["state"] == "active"
    assert fetch(api, worker="w2") == []
    timeline.go_to(job, 2.6)
    back = look(api, job)
    assert (back["state"], back["error"]["type"]) == ("available", "visibility_timeout")
    assert fetch(api, worker="w2")[0]["attempt"] == 2
