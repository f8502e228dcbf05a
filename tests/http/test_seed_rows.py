"""What the seeds require and no conformance suite tests (WIRE 10): a real server, a real reaper.

Each test is one row of the table; the limits are of one to three seconds.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from django_ojs.api import get
from django_ojs.models import Attempt, Job
from tests.http.support import Answer, LiveApi, enqueue, fetch, look
from tests.support import poll

pytestmark = pytest.mark.process

SLOW_RETRY = {"initial_interval": "PT20S", "jitter": False}
"""Keeps a failed job in ``retryable`` for as long as a test looks at it."""
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


def server_time(api: LiveApi) -> datetime:
    """The server's clock."""
    answer = api.post("/workers/heartbeat", {"worker_id": "watch"})
    return datetime.fromisoformat(answer.body["server_time"])


def wait_until(api: LiveApi, moment: datetime) -> None:
    """Until the server's clock has come to the moment."""
    poll(lambda: server_time(api) >= moment, 10, every=0.03)


def after_start(job: dict[str, Any], seconds: float) -> datetime:
    """So many seconds after the attempt began."""
    return datetime.fromisoformat(job["started_at"]) + timedelta(seconds=seconds)


def becomes(api: LiveApi, job: dict[str, Any], *states: str, timeout: float = 6) -> dict[str, Any]:
    """The envelope once the job is in one of the states."""

    def found() -> dict[str, Any]:
        now = look(api, job)
        return now if now["state"] in states else {}

    return poll(found, timeout, every=0.05)


def started(api: LiveApi, **body: Any) -> dict[str, Any]:
    """A new job, fetched by a worker that has never sent a beat."""
    job = enqueue(api, **body)
    queue = body.get("queue", "default")
    found = fetch(api, queue, worker=f"w-{job['id'][-8:]}")
    assert [item["id"] for item in found] == [job["id"]]
    return found[0]


def ack(api: LiveApi, job: dict[str, Any], **body: Any) -> Answer:
    """ACK under the job's lease."""
    return api.post("/workers/ack", {"job_id": job["id"], "lease_id": job["lease"]["id"], **body})


def nack(api: LiveApi, job: dict[str, Any], **body: Any) -> dict[str, Any]:
    """NACK under the job's lease; the envelope after it."""
    sent = {"job_id": job["id"], "lease_id": job["lease"]["id"], **body}
    answer = api.post("/workers/nack", sent)
    assert answer.status == 200, answer.raw
    after: dict[str, Any] = answer.body["job"]
    return after


def beat(api: LiveApi, worker: str | None, *jobs: dict[str, Any], **body: Any) -> dict[str, Any]:
    """A heartbeat that names the jobs."""
    named = [job["id"] for job in jobs]
    answer = api.post("/workers/heartbeat", {"worker_id": worker, "active_jobs": named, **body})
    assert answer.status == 200, answer.raw
    said: dict[str, Any] = answer.body
    return said


def refused(api: LiveApi, status: int, field: str, **body: Any) -> None:
    """The job is not taken, and the answer names the field."""
    answer = api.post("/jobs", {"type": "test.job", "args": [], **body})
    assert answer.status == status, (body, answer.raw)
    assert answer.body["error"]["details"]["field"] == field, body
    assert field.rpartition(".")[2] in answer.body["error"]["message"], body


def events(api: LiveApi, job: dict[str, Any]) -> list[dict[str, Any]]:
    """All events of a job, in order."""
    found: list[dict[str, Any]] = api.get(f"/events?job_id={job['id']}").body["events"]
    return found


def assert_timeout_error(
    error: dict[str, Any], kind: str, of_type: str, limit: int, *, attempt: int
) -> None:
    """The error object of OJS timeouts 8."""
    assert error["type"] == error["code"] == of_type
    assert error["timeout_kind"] == kind
    assert error["limit_seconds"] == limit
    assert type(error["elapsed_seconds"]) is int
    assert limit <= error["elapsed_seconds"] <= limit + 3
    assert error["attempt"] == attempt
    assert error["message"]
    assert error["retryable"] is (kind in ("execution", "stalled"))
    assert error["occurred_at"]


def test_timeout_is_in_seconds_and_half_an_hour_by_default(live: LiveApi) -> None:
    """Row 1: top-level ``timeout`` in integer seconds, default 1800."""
    plain = enqueue(live)
    assert (plain["timeout"], plain["timeout_ms"]) == (1800, 1_800_000)
    assert (plain["grace_period"], plain["heartbeat_timeout"]) == (30, 60)
    assert "total_timeout" not in plain
    assert "enqueue_ttl" not in plain
    mine = fetch(live)[0]
    assert mine["timeout_ms"] == 1_800_000
    assert "timeout" not in mine, "one SDK would read it as milliseconds"
    assert datetime.fromisoformat(mine["lease"]["deadline_at"]) == after_start(mine, 1830)
    assert datetime.fromisoformat(mine["lease"]["soft_deadline_at"]) == after_start(mine, 1800)
    assert mine["lease"]["expires_at"] is None
    job = enqueue(live, queue="one", timeout=1, retry=SLOW_RETRY)
    assert (job["timeout"], job["timeout_ms"], job["grace_period"]) == (1, 1000, 30)
    again = enqueue(live, timeout=7, options={"timeout": 5})
    assert again["timeout"] == 5, "options win"
    short = started(live, queue="two", timeout_ms=1000, retry=SLOW_RETRY)
    assert short["grace_period"] == 0, "the dialect without a grace period (decision T3)"
    assert becomes(live, short, "retryable")["error"]["type"] == "timeout"


def test_total_timeout_beats_everything(live: LiveApi) -> None:
    """Row 2: the deadline in every state, before max_attempts; the look-ahead of a retry."""
    # An explicit timeout counts in the look-ahead, the default of half an hour does not.
    retry: dict[str, Any] = {"initial_interval": "PT1S", "jitter": False}
    for name, more, state in (("with", {"timeout": 2}, "discarded"), ("without", {}, "retryable")):
        failed = nack(live, started(live, queue=name, total_timeout=2, retry=retry, **more))
        assert failed["state"] == state, name
    terms: dict[str, Any] = {"total_timeout": 1, "retry": {"max_attempts": 99}}
    running = started(live, queue="running", **terms)
    dead = started(live, queue="dead", total_timeout=1, retry={"on_exhaustion": "dead_letter"})
    waiting = enqueue(live, queue="waiting", **terms)
    scheduled = enqueue(live, queue="scheduled", scheduled_at="PT1H", **terms)
    pending = enqueue(live, queue="pending", pending=True, **terms)
    for job, attempt in ((running, 1), (dead, 1), (waiting, 0), (scheduled, 0), (pending, 0)):
        after = becomes(live, job, "discarded")
        assert_timeout_error(after["error"], "total", "total_timeout", 1, attempt=attempt)
        assert after["dead_letter"] is (job is dead)
        assert ("completed_at" in after) is (attempt > 0)
    listed = live.get("/dead-letter").body["jobs"]
    assert [job["id"] for job in listed] == [dead["id"]]
    late = ack(live, running)
    assert (late.status, late.code) == (409, "conflict")
    # The retry would come too late: no retry, and what really failed is kept.
    retry = {"max_attempts": 9, "initial_interval": "PT5S", "jitter": False}
    ahead = nack(live, started(live, queue="ahead", total_timeout=2, retry=retry), error={"code": "x"})
    assert (ahead["state"], ahead["attempt"]) == ("discarded", 1)
    assert [error["type"] for error in ahead["errors"]] == ["x", "total_timeout"]
    assert ahead["error"]["elapsed_seconds"] < ahead["error"]["limit_seconds"] == 2
    after = becomes(live, failed, "discarded")
    assert after["error"]["type"] == "total_timeout", "between its attempts, which are not used up"


def test_the_enqueue_ttl(live: LiveApi) -> None:
    """Row 3: the relative TTL and its error; it ends with the first start."""
    retry = {"on_exhaustion": "dead_letter", "initial_interval": "PT1S", "jitter": False}
    terms: dict[str, Any] = {"enqueue_ttl": 1, "retry": retry}
    lucky = started(live, queue="lucky", **terms)
    doomed = [
        enqueue(live, queue="doomed", **terms),
        enqueue(live, queue="doomed", scheduled_at="PT1H", **terms),
        enqueue(live, queue="doomed", pending=True, **terms),
        enqueue(live, queue="doomed", expires_at="+PT1S"),
    ]
    assert [job["state"] for job in doomed] == ["available", "scheduled", "pending", "available"]
    for job in doomed:
        after = becomes(live, job, "discarded")
        assert_timeout_error(after["error"], "enqueue_ttl", "enqueue_ttl_expired", 1, attempt=0)
        assert after["attempt"] == 0
        assert after["dead_letter"] is False
        assert "completed_at" not in after
    assert fetch(live, "doomed") == []
    wait_until(live, after_start(lucky, 1.2))
    assert look(live, lucky)["state"] == "active"
    assert nack(live, lucky)["state"] == "retryable"
    again = poll(lambda: fetch(live, "lucky", worker=None), every=0.05)[0]
    assert (again["id"], again["attempt"]) == (lucky["id"], 2)


def test_the_grace_period(live: LiveApi) -> None:
    """Row 4: soft signal at the timeout, end at timeout plus grace; an ack within counts."""
    terms: dict[str, Any] = {"timeout": 1, "grace_period": 3}
    good = started(live, queue="good", **terms)
    bad = started(live, queue="bad", retry=SLOW_RETRY, **terms)
    last = started(live, queue="last", retry={"max_attempts": 1}, **terms)
    hard = started(live, queue="hard", timeout=1, grace_period=0, retry=SLOW_RETRY)
    assert beat(live, bad["worker_id"], bad)["soft_timeout_jobs"] == []
    after = becomes(live, hard, "retryable")
    assert_timeout_error(after["error"], "execution", "timeout", 1, attempt=1)
    ended = Attempt.objects.get(job_id=hard["id"]).ended_at
    assert after_start(hard, 1) <= ended < after_start(hard, 4), "at once, without the others' grace"
    wait_until(live, after_start(bad, 1.2))
    told = beat(live, bad["worker_id"], bad)
    assert told["soft_timeout_jobs"] == told["jobs_extended"] == [bad["id"]]
    wait_until(live, after_start(good, 1.5))
    assert look(live, bad)["state"] == "active"
    accepted = ack(live, good, result="just in time")
    assert (accepted.status, accepted.body["state"]) == (200, "completed")
    for job, state in ((bad, "retryable"), (last, "discarded")):
        after = becomes(live, job, state)
        assert_timeout_error(after["error"], "execution", "timeout", 1, attempt=1)
        assert after["error"]["elapsed_seconds"] >= 4
        ended = Attempt.objects.get(job_id=job["id"])
        assert ended.ended_at >= after_start(job, 4), "never before timeout plus grace"
        assert ack(live, job).status == 409
    assert beat(live, bad["worker_id"], bad)["jobs_lost"] == [bad["id"]]


def test_the_heartbeat_timeout(live: LiveApi) -> None:
    """Row 5: explicit always; the default for workers that have ever sent a beat (decision T4)."""
    terms: dict[str, Any] = {"heartbeat_timeout": 1, "retry": SLOW_RETRY}
    silent = started(live, queue="silent", **terms)
    last = started(live, queue="last", heartbeat_timeout=1, retry={"max_attempts": 1})
    beaten = started(live, queue="beaten", **terms)

    def ended() -> bool:
        beat(live, beaten["worker_id"], beaten)
        return get(last["id"]).state == get(silent["id"]).state == "active"

    poll(lambda: not ended(), 5, every=0.2)
    for job, state in ((silent, "retryable"), (last, "discarded")):
        after = becomes(live, job, state)
        assert_timeout_error(after["error"], "stalled", "stalled", 1, attempt=1)

    def beats_on() -> bool:
        assert beat(live, beaten["worker_id"], beaten)["jobs_extended"] == [beaten["id"]]
        return server_time(live) > after_start(beaten, 1.6)

    poll(beats_on, 5, every=0.2)
    assert look(live, beaten)["state"] == "active"
    assert becomes(live, beaten, "retryable")["error"]["type"] == "stalled", "when the beats end"


def test_the_default_heartbeat_timeout(live: LiveApi) -> None:
    """Row 5: 60 s by default, of those who have promised beats by sending one."""

    def armed(worker: str | None, **body: Any) -> bool:
        job = enqueue(live, queue="default-limit", **body)
        assert fetch(live, "default-limit", worker=worker)[0]["id"] == job["id"]
        row = Job.objects.get(pk=job["id"])
        assert row.heartbeat_timeout_ms == body.get("heartbeat_timeout", 60) * 1000
        return row.heartbeat_armed

    assert not armed(None)
    assert not armed("never")
    assert not armed("never"), "a fetch is no beat"
    assert armed("never", heartbeat_timeout=60), "an explicit limit always holds"
    beat(live, "beats")
    assert armed("beats")
    assert live.post("/workers/register", {"worker_id": "registers"}).status == 200
    assert armed("registers")


def test_progress_and_checkpoints_are_signs_of_life(live: LiveApi) -> None:
    """Row 6: each of them restarts the heartbeat clock."""
    jobs = [
        started(live, queue=name, heartbeat_timeout=1, retry=SLOW_RETRY)
        for name in ("put", "post", "percent", "save")
    ]
    calls = (
        ("PUT", f"/jobs/{jobs[0]['id']}/progress", {"progress": 0.1}),
        ("POST", f"/jobs/{jobs[1]['id']}/progress", {"progress": 0.1}),
        ("POST", "/workers/progress", {"job_id": jobs[2]["id"], "percentage": 10}),
        ("PUT", f"/jobs/{jobs[3]['id']}/checkpoint", {"state": {"step": 1}}),
    )

    def goes_on() -> bool:
        for method, path, body in calls:
            answer = live(method, path, body)
            assert answer.status == 200, answer.raw
        return server_time(live) > after_start(jobs[3], 1.6)

    poll(goes_on, 6, every=0.2)
    for job in jobs:
        assert look(live, job)["state"] == "active", job["queue"]
    for job in jobs:
        assert becomes(live, job, "retryable")["error"]["type"] == "stalled", job["queue"]


@pytest.mark.parametrize(
    "field", ["timeout", "total_timeout", "enqueue_ttl", "heartbeat_timeout", "grace_period"]
)
def test_limits_are_checked(live: LiveApi, field: str) -> None:
    """Row 7: 400 with the name of the field for whatever is no limit."""
    bad: list[Any] = [-1, 1.5, 1.0, True, False, "", " 5", "5 ", "+5", "-5", "1_0", "٣", "x", [], {}]
    bad += [10 * 366 * 86400 + 1, "P", "PT", "P1Y", "P1M"]
    if field == "grace_period":
        assert enqueue(live, grace_period=0)["grace_period"] == 0
    else:
        bad += [0, "0"]
    for value in bad:
        refused(live, 400, field, **{field: value})
    refused(live, 400, f"options.{field}", options={field: -1})
    refused(live, 400, f"{field}_ms", **{f"{field}_ms": -1})
    refused(live, 400, f"{field}_ms", **{f"{field}_ms": 1.5})
    unset = enqueue(live, **{f"{field}_ms": 0})
    assert (unset["timeout"], unset["grace_period"], unset["heartbeat_timeout"]) == (1800, 30, 60)


def test_total_is_not_below_an_explicit_timeout(live: LiveApi) -> None:
    """Row 7: ``total_timeout`` is at least the ``timeout`` that was said, not the default."""
    refused(live, 400, "total_timeout", timeout=10, total_timeout=9)
    assert enqueue(live, timeout=10, total_timeout=10)["total_timeout"] == 10
    assert enqueue(live, total_timeout=900)["total_timeout"] == 900


def test_the_error_object(live: LiveApi) -> None:
    """Row 8: ``type``, ``message``, ``timeout_kind``, ``limit_seconds``, ``elapsed_seconds``."""
    once = {"max_attempts": 1}
    cases = (
        (started(live, queue="a", timeout=1, grace_period=0, retry=once), "execution", "timeout"),
        (started(live, queue="b", total_timeout=1, retry=once), "total", "total_timeout"),
        (enqueue(live, queue="c", enqueue_ttl=1), "enqueue_ttl", "enqueue_ttl_expired"),
        (started(live, queue="d", heartbeat_timeout=1, retry=once), "stalled", "stalled"),
    )
    for job, kind, of_type in cases:
        after = becomes(live, job, "discarded")
        attempt = 0 if kind == "enqueue_ttl" else 1
        assert_timeout_error(after["error"], kind, of_type, 1, attempt=attempt)
        assert after["errors"][-1] == after["error"]
        flat = live.get(f"/jobs/{job['id']}").body
        assert flat["error"] == after["error"], "also beside the envelope (OJS timeouts 10.2)"
        if kind == "execution":
            assert after["error"]["message"] == "Job execution exceeded timeout of 1 seconds"
    # A worker's own report of a timeout is the same failure.
    own = nack(live, started(live, queue="e", timeout=3), error={"code": "timeout"})["error"]
    assert (own["type"], own["timeout_kind"], own["limit_seconds"]) == ("timeout", "execution", 3)
    assert own["elapsed_seconds"] == 0


def test_timeouts_are_retried_unless_listed(live: LiveApi) -> None:
    """Row 9: ``timeout`` in ``non_retryable_errors`` ends it; without, there is a retry."""
    limits = {"timeout": 1, "grace_period": 0}
    listed = {"non_retryable_errors": ["timeout"], "on_exhaustion": "dead_letter"}
    other = {**SLOW_RETRY, "non_retryable_errors": ["time", "timeout.*", "stalled"]}
    ends = started(live, queue="ends", retry=listed, **limits)
    goes_on = started(live, queue="goes-on", retry=other, **limits)
    stalls = started(live, queue="stalls", heartbeat_timeout=1, retry=other)
    after = becomes(live, ends, "discarded", "retryable")
    assert (after["state"], after["attempt"], after["dead_letter"]) == ("discarded", 1, True)
    assert becomes(live, goes_on, "discarded", "retryable")["state"] == "retryable"
    assert becomes(live, stalls, "discarded", "retryable")["state"] == "discarded"


def test_the_events(live: LiveApi) -> None:
    """Row 10: four events with seven data fields, before ``job.failed`` and ``job.discarded``."""
    retry = {"max_attempts": 1}
    cases = (
        (
            started(live, queue="a", timeout=1, grace_period=0, retry=retry),
            ("execution", 1),
            ["job.timeout", "job.failed", "job.discarded"],
        ),
        (
            started(live, queue="b", heartbeat_timeout=1, retry=SLOW_RETRY),
            ("stalled", 1),
            ["job.stalled", "job.failed", "job.retrying"],
        ),
        (
            enqueue(live, queue="c", enqueue_ttl=1),
            ("enqueue_ttl", 0),
            ["job.ttl_expired", "job.expired", "job.discarded"],
        ),
        (
            started(live, queue="d", total_timeout=1),
            ("total", 1),
            ["job.total_timeout", "job.discarded"],
        ),
    )
    for job, (kind, attempt), expected in cases:
        becomes(live, job, "discarded", "retryable")
        found = events(live, job)
        assert [event["type"] for event in found][-len(expected) :] == expected
        data = found[-len(expected)]["data"]
        assert set(data) == SEVEN
        assert data["job_id"] == found[-1]["subject"] == job["id"]
        assert (data["job_type"], data["queue"]) == ("test.job", job["queue"])
        assert (data["timeout_kind"], data["attempt"]) == (kind, attempt)
        assert data["limit_seconds"] == 1 <= data["elapsed_seconds"]
    expired = next(event for event in events(live, cases[2][0]) if event["type"] == "job.expired")
    assert {"created_at", "expired_at", "ttl_ms"} <= set(expired["data"])


def test_a_checkpoint_of_the_grace_period_is_resumed(live: LiveApi) -> None:
    """Row 12: ``last_checkpoint`` reaches the next attempt, also when it was saved in the grace."""
    retry = {"initial_interval_ms": 100, "jitter": False}
    job = started(live, timeout=1, grace_period=1, retry=retry)
    assert "last_checkpoint" not in job
    path = f"/jobs/{job['id']}/checkpoint"
    assert live.post(path, {"state": {"done": 1}}).body["sequence"] == 1
    poll(lambda: beat(live, job["worker_id"], job)["soft_timeout_jobs"] == [job["id"]], 4, every=0.05)
    saved = live("PUT", path, {"state": {"done": 2}, "lease_id": job["lease"]["id"]})
    assert (saved.status, saved.body["sequence"]) == (200, 2)
    again = poll(lambda: fetch(live, worker="next"), 5, every=0.05)[0]
    assert (again["id"], again["attempt"]) == (job["id"], 2)
    assert again["error"]["type"] == "timeout"
    assert again["last_checkpoint"] == {"done": 2}
    assert again["checkpoint"] == {"state": {"done": 2}, "sequence": 2}
    late = live("PUT", path, {"state": {"done": 3}, "lease_id": job["lease"]["id"]})
    assert (late.status, late.code) == (409, "conflict")
    resumed = live.get(f"/checkpoints/{job['id']}/resume").body
    assert resumed["checkpoint"]["state"] == {"done": 2}


def test_shutdown_is_no_timeout(live: LiveApi) -> None:
    """Row 13: the error type ``shutdown`` of its own, retried like any failure."""
    for name, error in (("typed", {"type": "shutdown"}), ("coded", {"code": "shutdown"})):
        job = started(live, queue=name, timeout=3, retry=SLOW_RETRY)
        after = nack(live, job, error={**error, "message": "the worker ends"})
        assert (after["state"], after["error"]["type"]) == ("retryable", "shutdown")
        assert "timeout_kind" not in after["error"]
        kinds = [event["type"] for event in events(live, job)]
        assert kinds[-2:] == ["job.failed", "job.retrying"]
        assert "job.timeout" not in kinds
        assert Attempt.objects.get(job_id=job["id"]).outcome == "shutdown"


def test_limits_change_while_a_job_waits(live: LiveApi) -> None:
    """Row 15: dynamic timeouts; the new limits hold from the next attempt on."""
    job = enqueue(live, timeout=600)
    path = f"/jobs/{job['id']}"
    changed = live("PATCH", path, {"timeout": 1, "grace_period": 0})
    assert (changed.status, changed.body["job"]["timeout"]) == (200, 1)
    refusal = live("PATCH", path, {"timeout": -1})
    assert (refusal.status, refusal.body["error"]["details"]["field"]) == (400, "timeout")
    assert fetch(live, worker=None)[0]["timeout_ms"] == 1000
    assert live("PATCH", path, {"timeout": 600}).status == 409, "a running job is extended instead"
    after = becomes(live, job, "retryable", "available")
    assert_timeout_error(after["error"], "execution", "timeout", 1, attempt=1)
    short = enqueue(live, queue="short")
    assert live("PATCH", f"/jobs/{short['id']}", {"enqueue_ttl": 1}).status == 200
    assert becomes(live, short, "discarded")["error"]["type"] == "enqueue_ttl_expired"


def test_the_backoff(live: LiveApi) -> None:
    """Row 16: polynomial, the cap after the jitter, partial policies, ``max_attempts: 0``."""
    retry = {
        "backoff_strategy": "polynomial",
        "initial_interval_ms": 200,
        "backoff_coefficient": 2,
        "jitter": False,
    }
    job = enqueue(live, queue="power", retry=retry)
    for number in (1, 2):
        mine = poll(lambda: fetch(live, "power", worker=None), every=0.02)[0]
        assert mine["attempt"] == number
        failed = nack(live, mine)
        assert failed["retry_delay_ms"] == 200 * number**2
        waits = datetime.fromisoformat(failed["next_attempt_at"])
        noted = datetime.fromisoformat(failed["error"]["occurred_at"])
        off = waits - noted - timedelta(milliseconds=200 * number**2)
        assert abs(off) <= timedelta(milliseconds=1)
    third = poll(lambda: fetch(live, "power", worker=None), every=0.02)[0]
    assert (third["id"], nack(live, third)["state"]) == (job["id"], "discarded")

    capped = {"initial_interval": "PT5S", "max_interval": "PT5S"}
    items = [{"type": "test.job", "args": [], "queue": "capped", "retry": capped}] * 40
    assert live.post("/jobs/batch", {"jobs": items}).status == 201
    delays = [nack(live, mine)["retry_delay_ms"] for mine in fetch(live, "capped", count=40)]
    assert len(delays) == 40
    assert all(2500 <= delay <= 5000 for delay in delays), "jittered, and capped again"
    assert min(delays) < 5000 == max(delays)

    merged = enqueue(live, retry={"max_attempts": 7, "strategy": "linear"})["retry"]
    assert merged == {**DEFAULT_RETRY, "max_attempts": 7, "backoff_strategy": "linear"}
    for most in (0, 1):
        once = started(live, queue=f"once-{most}", retry={"max_attempts": most})
        after = nack(live, once)
        assert (after["state"], after["attempt"]) == ("discarded", 1)
    for name, value in (
        ("max_attempts", -1),
        ("backoff_coefficient", 0.5),
        ("jitter", "yes"),
        ("on_exhaustion", "nothing"),
        ("backoff_strategy", "random"),
    ):
        refused(live, 422, f"retry.{name}", retry={name: value})


DEFAULT_RETRY = {
    "max_attempts": 3,
    "initial_interval": "PT1S",
    "backoff_coefficient": 2.0,
    "max_interval": "PT5M",
    "jitter": True,
    "non_retryable_errors": [],
    "on_exhaustion": "discard",
    "backoff_strategy": "exponential",
}


def test_directives_of_a_handler(live: LiveApi) -> None:
    """Row 17: RETRY, DISCARD, DEAD_LETTER and FAIL win over the policy and over ``retryable``."""
    never = {"non_retryable_errors": ["boom"], "on_exhaustion": "dead_letter", **SLOW_RETRY}
    discard = {**never, "on_exhaustion": "discard"}
    error = {"type": "boom", "message": "said by the test", "retryable": False}
    cases = (
        ("RETRY", never, ("retryable", None)),
        ("DISCARD", never, ("discarded", False)),
        ("FAIL", never, ("discarded", False)),
        ("DEAD_LETTER", discard, ("discarded", True)),
    )
    for number, (word, retry, expected) in enumerate(cases):
        forms: tuple[dict[str, Any], ...] = (
            {"error": error, "directive": word},
            {"error": error, "response_code": word},
            {"error": {**error, "directive": word}},
            {"error": {**error, "code": word}},
        )
        for form, body in enumerate(forms):
            after = nack(live, started(live, queue=f"q{number}-{form}", retry=retry), **body)
            assert (after["state"], after.get("dead_letter")) == expected, (word, body)
            assert (after["error"]["type"], after["error"]["directive"]) == ("boom", word)
    last = started(live, queue="last", retry={"max_attempts": 1})
    assert nack(live, last, directive="RETRY")["state"] == "discarded", "no attempt is left"
    total = started(live, queue="total", total_timeout=3, retry=SLOW_RETRY)
    ended = nack(live, total, error=error, directive="RETRY")
    assert (ended["state"], ended["error"]["type"]) == ("discarded", "total_timeout")


def test_prefixes_of_errors(live: LiveApi) -> None:
    """Row 18: ``Auth.*`` decides by itself, with ``retryable: true`` in the report."""
    policy = {"non_retryable_errors": ["Auth.*", "a+b", "Exact"], **SLOW_RETRY}
    cases = (
        ("Auth.TokenExpired", "discarded"),
        ("Auth.", "discarded"),
        ("Auth", "retryable"),
        ("Authx", "retryable"),
        ("auth.TokenExpired", "retryable"),
        ("My.Auth.TokenExpired", "retryable"),
        ("aab", "retryable"),
        ("a+b", "discarded"),
        ("Exact", "discarded"),
        ("Exactly", "retryable"),
    )
    for number, (name, state) in enumerate(cases):
        for where in ("type", "code", "details") if number < 3 else ("type",):
            error: dict[str, Any] = {"retryable": True, where: name}
            if where == "details":
                error = {"code": "handler_error", "details": {"error_class": name}}
            job = started(live, queue=f"q{number}.{where}", retry=policy)
            assert nack(live, job, error=error)["state"] == state, (name, where)


def test_a_visibility_lease_consumes_an_attempt(live: LiveApi) -> None:
    """Row 19: its end counts, obeys ``max_attempts`` and matching, and can end in the dead letter."""
    lease: dict[str, Any] = {"visibility_timeout_ms": 1000}
    enqueue(live, queue="a", retry={"max_attempts": 2, "on_exhaustion": "dead_letter"})
    listed = {"non_retryable_errors": ["visibility_timeout"], "max_attempts": 5}
    enqueue(live, queue="b", visibility_timeout_ms=1000, retry=listed)
    first = fetch(live, "a", **lease)[0]
    ends = fetch(live, "b")[0]
    assert datetime.fromisoformat(first["lease"]["expires_at"]) == after_start(first, 1)
    assert datetime.fromisoformat(ends["lease"]["expires_at"]) == after_start(ends, 1)
    back = becomes(live, first, "available", "retryable", "discarded")
    assert (back["state"], back["attempt"]) == ("available", 1), "at once, without backoff"
    assert "started_at" not in back
    assert_timeout_error(back["error"], "stalled", "visibility_timeout", 1, attempt=1)
    after = becomes(live, ends, "available", "discarded")
    assert (after["state"], after["dead_letter"]) == ("discarded", False)
    second = fetch(live, "a", **lease)[0]
    assert (second["id"], second["attempt"]) == (first["id"], 2)
    after = becomes(live, second, "discarded", "available")
    assert (after["state"], after["dead_letter"]) == ("discarded", True)
    assert [error["type"] for error in after["errors"]] == ["visibility_timeout"] * 2
    listed_ids = [job["id"] for job in live.get("/dead-letter").body["jobs"]]
    assert listed_ids == [first["id"]]


def test_beats_extend_a_visibility_lease(live: LiveApi) -> None:
    """Row 20: the job stays with its worker for as long as that is heard of."""
    enqueue(live)
    job = fetch(live, visibility_timeout_ms=1000)[0]

    def beats_on() -> bool:
        assert beat(live, "w1", job)["jobs_extended"] == [job["id"]]
        return server_time(live) > after_start(job, 1.6)

    poll(beats_on, 6, every=0.2)
    assert look(live, job)["state"] == "active"
    assert fetch(live, worker="w2") == []
    back = becomes(live, job, "available")
    assert back["error"]["type"] == "visibility_timeout"
    assert fetch(live, worker="w2")[0]["attempt"] == 2


def test_the_default_retry_policy(live: LiveApi) -> None:
    """Row 21: all eight fields are returned when none was given."""
    job = enqueue(live)
    assert job["retry"] == DEFAULT_RETRY
    assert job["max_attempts"] == 3
    for given in (None, {}, {"max_attempts": None}):
        assert enqueue(live, retry=given)["retry"] == DEFAULT_RETRY
    assert look(live, job)["retry"] == DEFAULT_RETRY
    assert fetch(live)[0]["retry"] == DEFAULT_RETRY


def test_durations_and_additive_extension(live: LiveApi) -> None:
    """Row 22: ``"10s"``, ``"4m"``, ``"1h"``; what refreshes a running timeout adds to it."""
    for text, seconds in (
        ("10s", 10),
        ("4m", 240),
        ("1h", 3600),
        ("15", 15),
        ("1h30m", 5400),
        ("PT2M", 120),
        ("P1D", 86400),
    ):
        terms = {"timeout": text, "grace_period": text, "heartbeat_timeout": text}
        job = enqueue(live, queue="texts", enqueue_ttl=text, total_timeout=text, **terms)
        for field in (*terms, "enqueue_ttl", "total_timeout"):
            assert job[field] == seconds, (field, text)
    assert enqueue(live, queue="texts", timeout="500ms")["timeout_ms"] == 500

    retry = {"max_attempts": 1}
    plain = started(live, queue="plain", timeout="1s", grace_period=0, retry=retry)
    longer = started(live, queue="longer", timeout="1s", grace_period=0, retry=retry)
    lease = {"lease_id": longer["lease"]["id"]}
    path = f"/jobs/{longer['id']}/extend"
    first = live.post(path, {"extend_timeout": "500ms", **lease})
    assert first.status == 200, first.raw
    assert datetime.fromisoformat(first.body["deadline_at"]) == after_start(longer, 1.5)
    assert first.body["extended_ms"] == 500
    second = live.post(path, {"extend_timeout_ms": 700, **lease})
    assert datetime.fromisoformat(second.body["deadline_at"]) == after_start(longer, 2.2)
    told = beat(live, longer["worker_id"], longer, extend_timeout_ms=300)
    deadline = datetime.fromisoformat(told["deadline_at"][longer["id"]])
    assert deadline == after_start(longer, 2.5)
    after = becomes(live, plain, "discarded")
    assert_timeout_error(after["error"], "execution", "timeout", 1, attempt=1)
    wait_until(live, after_start(longer, 1.6))
    assert look(live, longer)["state"] == "active"
    after = becomes(live, longer, "discarded")
    assert Attempt.objects.get(job_id=longer["id"]).ended_at >= after_start(longer, 2.5)
    assert after["error"]["limit_seconds"] == 3, "2.5 s, in whole seconds"
    assert live.post(path, {"extend_timeout": 1, **lease}).status == 409
    extended = [e for e in events(live, longer) if e["type"] == "job.timeout_extended"]
    assert len(extended) == 3, "each is on record"
    assert live.post(f"/jobs/{plain['id']}/extend", {"extend_timeout": -1}).status == 400


def test_the_four_timeouts_of_others(live: LiveApi) -> None:
    """Row 23: schedule-to-start is never retried, nor schedule-to-close; the other two are."""
    retry = {"max_attempts": 5, "on_exhaustion": "dead_letter", **SLOW_RETRY}
    to_start = enqueue(live, queue="a", enqueue_ttl=1, retry=retry)
    to_close = started(live, queue="b", total_timeout=1, retry=retry)
    start_to_close = started(live, queue="c", timeout=1, grace_period=0, retry=retry)
    heartbeat = started(live, queue="d", heartbeat_timeout=1, retry=retry)
    expected = (
        (to_start, "discarded", 0, False),
        (to_close, "discarded", 1, True),
        (start_to_close, "retryable", 1, None),
        (heartbeat, "retryable", 1, None),
    )
    for job, state, attempt, dead in expected:
        after = becomes(live, job, "discarded", "retryable")
        found = (after["state"], after["attempt"], after.get("dead_letter"))
        assert found == (state, attempt, dead), job["queue"]
        assert ("next_attempt_at" in after) is (state == "retryable")


def test_the_server_is_the_authority(live: LiveApi) -> None:
    """Row 24: with workers that never say a word the server ends every attempt by itself.

    Nothing asks for the jobs meanwhile: the rows are looked at, not the API, which would do what
    is due by itself.
    """
    retry = {"max_attempts": 2, "initial_interval_ms": 100, "jitter": False}
    job = enqueue(live, timeout=1, grace_period=0, retry=retry)
    leased = enqueue(live, queue="leased", visibility_timeout_ms=1000, retry={"max_attempts": 1})
    stalls = enqueue(live, queue="stalls", heartbeat_timeout=1, retry={"max_attempts": 1})
    total = enqueue(live, queue="total", total_timeout=1)
    unwanted = enqueue(live, queue="unwanted", enqueue_ttl=1)
    for queue in ("leased", "stalls", "total"):
        assert len(fetch(live, queue, worker=None)) == 1
    for attempt in (1, 2):
        assert poll(lambda: fetch(live, worker=None), 5, every=0.05)[0]["attempt"] == attempt
        poll(lambda: get(job["id"]).state != "active", 4, every=0.02)
    assert get(job["id"]).state == "discarded"
    outcomes = Attempt.objects.filter(job_id=job["id"]).order_by("lease_seq")
    for ended in outcomes:
        assert ended.outcome == "timeout"
        ran = ended.ended_at - ended.started_at
        assert timedelta(seconds=1) <= ran < timedelta(seconds=2.5)
    assert len(outcomes) == 2
    for other, of_type in (
        (leased, "visibility_timeout"),
        (stalls, "stalled"),
        (total, "total_timeout"),
        (unwanted, "enqueue_ttl_expired"),
    ):
        record = get(other["id"])
        assert (record.state, record.json("error")["type"]) == ("discarded", of_type)
