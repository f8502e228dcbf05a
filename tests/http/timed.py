"""Jobs with limits, seen through the API: started, reported on, and moved through time."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django_ojs.clock import FrozenClock
from django_ojs.services import promote
from django_ojs.services.reap import reap
from tests.http.support import Answer, Api, enqueue, fetch, look

SLOW_RETRY = {"initial_interval": "PT20S", "jitter": False}
"""Keeps a failed job in ``retryable`` for as long as a test looks at it."""
INSTANT = 0.001
"""The shortest time that limits tell apart, in seconds."""


class Timeline:
    """The API, with a clock that a test moves and a reaper that runs each time it moved."""

    def __init__(self, api: Api, clock: FrozenClock) -> None:
        self.api = api
        self.clock = clock

    def advance(self, seconds: float) -> None:
        """Let so many seconds pass."""
        self.clock.advance(seconds)
        reap()
        promote.promote()

    def go_to(self, job: dict[str, Any], seconds: float) -> None:
        """Go to the moment so many seconds after the attempt began, or a waiting job was made."""
        moment = after_start(job, seconds)
        self.advance((moment - self.clock.time).total_seconds())

    def state_around(self, job: dict[str, Any], seconds: float) -> tuple[str, str]:
        """The state of a job an instant before a moment after its start, and at that moment."""
        self.go_to(job, seconds - INSTANT)
        before = str(look(self.api, job)["state"])
        self.go_to(job, seconds)
        return before, str(look(self.api, job)["state"])


def after_start(job: dict[str, Any], seconds: float) -> datetime:
    """So many seconds after the attempt began, or after a job that waits was made."""
    began = job.get("started_at") or job["created_at"]
    return datetime.fromisoformat(began) + timedelta(seconds=seconds)


def started(api: Api, **body: Any) -> dict[str, Any]:
    """A new job, fetched by a worker that has never sent a beat."""
    job = enqueue(api, **body)
    queue = body.get("queue", "default")
    found = fetch(api, queue, worker=f"w-{job['id'][-8:]}")
    assert [item["id"] for item in found] == [job["id"]]
    return found[0]


def ack(api: Api, job: dict[str, Any], **body: Any) -> Answer:
    """ACK under the job's lease."""
    return api.post("/workers/ack", {"job_id": job["id"], "lease_id": job["lease"]["id"], **body})


def nack(api: Api, job: dict[str, Any], **body: Any) -> dict[str, Any]:
    """NACK under the job's lease; the envelope after it."""
    sent = {"job_id": job["id"], "lease_id": job["lease"]["id"], **body}
    answer = api.post("/workers/nack", sent)
    assert answer.status == 200, answer.raw
    after: dict[str, Any] = answer.body["job"]
    return after


def beat(api: Api, worker: str | None, *jobs: dict[str, Any], **body: Any) -> dict[str, Any]:
    """A heartbeat that names the jobs."""
    named = [job["id"] for job in jobs]
    answer = api.post("/workers/heartbeat", {"worker_id": worker, "active_jobs": named, **body})
    assert answer.status == 200, answer.raw
    said: dict[str, Any] = answer.body
    return said


def refused(api: Api, status: int, field: str, **body: Any) -> None:
    """The job is not taken, and the answer names the field."""
    answer = api.post("/jobs", {"type": "test.job", "args": [], **body})
    assert answer.status == status, (body, answer.raw)
    assert answer.body["error"]["details"]["field"] == field, body
    assert field.rpartition(".")[2] in answer.body["error"]["message"], body


def events(api: Api, job: dict[str, Any]) -> list[dict[str, Any]]:
    """All events of a job, in order."""
    found: list[dict[str, Any]] = api.get(f"/events?job_id={job['id']}").body["events"]
    return found


def assert_timeout_error(
    job: dict[str, Any], kind: str, of_type: str, limit: int, *, attempt: int, elapsed: int
) -> None:
    """The error object of OJS timeouts 8, as it is on the job."""
    error = job["error"]
    assert error["type"] == error["code"] == of_type
    assert error["timeout_kind"] == kind
    assert error["limit_seconds"] == limit
    assert type(error["elapsed_seconds"]) is int
    assert 0 <= limit * 1000 - error["limit_ms"] < 1000
    assert error["elapsed_ms"] // 1000 == elapsed
    assert error["elapsed_seconds"] == elapsed
    assert error["attempt"] == attempt
    assert error["message"]
    assert error["retryable"] is (job["state"] in ("retryable", "available"))
    assert error["occurred_at"]
