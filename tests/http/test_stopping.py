"""What a worker over HTTP is told, and may still do, when the time of an attempt is up."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from django_ojs.api import get
from django_ojs.clock import FrozenClock
from django_ojs.domain.durations import format_instant
from django_ojs.services.reap import reap
from tests.http.conftest import Caller
from tests.http.support import Api, enqueue, fetch, look

pytestmark = pytest.mark.every_database


def started(api: Api, worker: str = "w1", **body: Any) -> dict[str, Any]:
    """A new job, fetched by the worker."""
    job = enqueue(api, **body)
    found = fetch(api, worker=worker)
    assert [item["id"] for item in found] == [job["id"]]
    return found[0]


def leased(job: dict[str, Any], **body: Any) -> dict[str, Any]:
    """A report on the attempt with its lease."""
    return {"job_id": job["id"], "lease_id": job["lease"]["id"], **body}


def beat(api: Api, *jobs: dict[str, Any], worker: str = "w1", **body: Any) -> dict[str, Any]:
    """What a beat for the jobs is answered."""
    named = [leased(job) for job in jobs]
    answer = api.post("/workers/heartbeat", {"worker_id": worker, "jobs": named, **body})
    assert answer.status == 200, answer.raw
    told: dict[str, Any] = answer.body
    return told


class TestExtension:
    def test_the_answer_says_what_was_granted(self, api: Api, frozen: FrozenClock) -> None:
        start = frozen.time
        job = started(api, timeout=60, total_timeout=80)
        assert job["lease"]["deadline_at"] == format_instant(start + timedelta(seconds=80))
        path, lease = f"/jobs/{job['id']}/extend", {"lease_id": job["lease"]["id"]}
        answer = api.post(path, {"extend_timeout": "10s", **lease})
        assert answer.status == 200, answer.raw
        told = answer.body
        assert (told["extended_by_ms"], told["extended_ms"]) == (10_000, 10_000)
        assert told["soft_deadline_at"] == format_instant(start + timedelta(seconds=70))
        assert told["deadline_at"] == format_instant(start + timedelta(seconds=80))
        told = api.post(path, {"extend_timeout": "1h", **lease}).body
        assert (told["extended_by_ms"], told["extended_ms"]) == (10_000, 20_000)
        assert told["soft_deadline_at"] == told["deadline_at"]
        refused = api.post(path, {"extend_timeout": 1, **lease})
        assert (refused.status, refused.code) == (409, "conflict")

    def test_a_beat_says_it_too(self, api: Api, frozen: FrozenClock) -> None:
        job = started(api, timeout=60, grace_period=0, total_timeout=80)
        (told,) = beat(api, job, extend_timeout="1h")["jobs"]
        assert (told["extended_by_ms"], told["extended_ms"]) == (20_000, 20_000)
        (told,) = beat(api, job, extend_timeout="1h")["jobs"]
        assert "extended_by_ms" not in told, "there was nothing left to grant"

    def test_a_lease_shows_no_deadline_beyond_the_total(self, api: Api, frozen: FrozenClock) -> None:
        lease = started(api, total_timeout=10)["lease"]
        assert lease["soft_deadline_at"] == lease["deadline_at"]


def test_every_limit_has_its_milliseconds(api: Api) -> None:
    job = enqueue(api, timeout=60, grace_period="500ms", heartbeat_timeout="1500ms")
    assert (job["grace_period"], job["grace_period_ms"]) == (1, 500)
    assert (job["heartbeat_timeout"], job["heartbeat_timeout_ms"]) == (2, 1500)
    (claimed,) = fetch(api)
    assert (claimed["grace_period_ms"], claimed["heartbeat_timeout_ms"]) == (500, 1500)


def nack(api: Api, job: dict[str, Any], **body: Any) -> dict[str, Any]:
    """The job after the report."""
    answer = api.post("/workers/nack", leased(job, **body))
    assert answer.status == 200, answer.raw
    after: dict[str, Any] = answer.body["job"]
    return after


def moment(frozen: FrozenClock, seconds: float) -> str:
    """So many seconds from now."""
    return format_instant(frozen.time + timedelta(seconds=seconds))


def checkpoint(api: Api, job: dict[str, Any], **lease_claim: Any) -> int:
    """The status of an attempt to save one."""
    body = {"state": {"row": 41}, "lease_id": job["lease"]["id"], **lease_claim}
    return api.post(f"/jobs/{job['id']}/checkpoint", body).status


class TestStopReasons:
    def test_the_timeout(self, api: Api, frozen: FrozenClock) -> None:
        job = started(api, timeout=5, grace_period=10)
        assert beat(api, job)["stop_reasons"] == {}
        frozen.advance(5)
        told = beat(api, job)
        assert told["soft_timeout_jobs"] == told["jobs_extended"] == [job["id"]]
        assert told["stop_reasons"] == {job["id"]: "timeout"}

    @pytest.mark.parametrize("reaped", [True, False], ids=["settled", "not settled yet"])
    def test_the_total_timeout_has_its_grace_period(
        self, api: Api, frozen: FrozenClock, reaped: bool
    ) -> None:
        """Settled at five seconds, lost at fifteen; in between a checkpoint is taken, a result not."""
        job = started(api, total_timeout=5, grace_period=10)
        frozen.advance(5)
        if reaped:
            assert reap().counts == {"total": 1}
        told = beat(api, job)
        assert (told["jobs_extended"], told["jobs_lost"]) == ([], [])
        assert told["soft_timeout_jobs"] == [job["id"]]
        assert told["stop_reasons"] == {job["id"]: "total_timeout"}
        assert told["deadline_at"] == {job["id"]: moment(frozen, 10)}
        assert api.post("/workers/ack", leased(job)).status == 409
        frozen.advance(9)
        assert checkpoint(api, job) == 200
        assert beat(api, job)["soft_timeout_jobs"] == [job["id"]]
        frozen.advance(1)
        told = beat(api, job)
        assert (told["soft_timeout_jobs"], told["jobs_lost"]) == ([], [job["id"]])
        assert told["stop_reasons"] == {job["id"]: "total_timeout"}
        assert checkpoint(api, job) == 409
        after = look(api, job)
        assert (after["state"], after["error"]["type"]) == ("discarded", "total_timeout")
        assert api.post(f"/jobs/{job['id']}/retry").status == 200
        (again,) = fetch(api)
        assert again["last_checkpoint"] == {"row": 41}
        assert checkpoint(api, job) == 409, "the job is in other hands"

    def test_a_timeout_that_came_first_stands(self, api: Api, frozen: FrozenClock) -> None:
        """Told at three seconds, settled at five, killed at three and ten."""
        job = started(api, timeout=3, total_timeout=5, grace_period=10)
        frozen.advance(3)
        assert beat(api, job)["stop_reasons"] == {job["id"]: "timeout"}
        frozen.advance(3)
        reap()
        told = beat(api, job)
        assert told["stop_reasons"] == {job["id"]: "timeout"}
        assert told["deadline_at"] == {job["id"]: moment(frozen, 7)}
        frozen.advance(7)
        assert beat(api, job)["jobs_lost"] == [job["id"]]

    def test_what_was_granted_counts_in_the_grace(self, api: Api, frozen: FrozenClock) -> None:
        job = started(api, timeout=1, total_timeout=5, grace_period=10)
        beat(api, job, extend_timeout=2)
        frozen.advance(5)
        reap()
        assert beat(api, job)["deadline_at"] == {job["id"]: moment(frozen, 8)}

    def test_without_a_grace_period_it_is_lost_at_once(self, api: Api, frozen: FrozenClock) -> None:
        job = started(api, total_timeout=5, grace_period=0)
        frozen.advance(5)
        reap()
        told = beat(api, job)
        assert (told["soft_timeout_jobs"], told["jobs_lost"]) == ([], [job["id"]])
        assert told["stop_reasons"] == {job["id"]: "total_timeout"}
        assert checkpoint(api, job) == 409

    def test_cancelled_stalled_and_lost(self, api: Api, frozen: FrozenClock) -> None:
        cancelled, stalled = started(api), started(api, heartbeat_timeout=5)
        assert api.post(f"/jobs/{cancelled['id']}/cancel").status == 200
        frozen.advance(6)
        assert reap().counts == {"stalled": 1}
        foreign = started(api, "w2")
        told = beat(api, cancelled, stalled, foreign)
        assert told["jobs_cancelled"] == [cancelled["id"]]
        assert set(told["jobs_lost"]) == {stalled["id"], foreign["id"]}
        assert told["stop_reasons"] == {
            cancelled["id"]: "cancelled",
            stalled["id"]: "stalled",
            foreign["id"]: "lost",
        }

    def test_another_credential_learns_nothing(self, caller: Caller, frozen: FrozenClock) -> None:
        mine, other = caller(name="mine"), caller(name="other")
        job = started(mine, total_timeout=5, grace_period=10)
        frozen.advance(5)
        told = beat(other, job, worker="w9")
        assert told["stop_reasons"] == {job["id"]: "lost"}
        reap()
        told = beat(other, job, worker="w9")
        assert (told["soft_timeout_jobs"], told["jobs_lost"]) == ([], [job["id"]])


class TestReportsPastTheDeadline:
    """A beat, progress, a checkpoint and an extension are judged by the clock, like an ack."""

    def test_they_are_refused_and_change_nothing(self, api: Api, frozen: FrozenClock) -> None:
        job = started(api, timeout=5, grace_period=5)
        frozen.advance(10)
        before = get(job["id"])
        told = beat(api, job)
        assert (told["jobs_extended"], told["jobs_lost"]) == ([], [job["id"]])
        assert api.post("/workers/progress", leased(job, progress=0.5)).status in (200, 409)
        assert checkpoint(api, job) == 409
        longer = {"extend_timeout": 60, "lease_id": job["lease"]["id"]}
        assert api.post(f"/jobs/{job['id']}/extend", longer).status == 409
        after = get(job["id"])
        assert (after.progress, after.checkpoint, after.extended_ms) == (None, None, 0)
        assert (after.row.lease_seq, before.row.lease_seq) == (1, 1)

    def test_a_lapsed_heartbeat_is_healed_by_each(self, api: Api, frozen: FrozenClock) -> None:
        job = started(api, heartbeat_timeout=2)
        frozen.advance(3)
        assert beat(api, job)["jobs_extended"] == [job["id"]]
        frozen.advance(3)
        assert api.post("/workers/progress", leased(job, progress=0.5)).status == 200
        frozen.advance(1)
        assert reap().counts == {}


class TestRetryDelay:
    def test_a_nack_says_when(self, api: Api, frozen: FrozenClock) -> None:
        for said, ms in (
            ({"retry_after": "45s"}, 45_000),
            ({"retry_after_ms": 1500, "directive": "RETRY"}, 1500),
            ({"error": {"message": "busy", "next_retry_delay": "PT2M"}}, 120_000),
        ):
            after = nack(api, started(api), **said)
            assert (after["state"], after["retry_delay_ms"]) == ("retryable", ms)

    def test_what_contradicts_itself_is_refused_and_changes_nothing(self, api: Api) -> None:
        job = started(api)
        for said, field in (
            ({"retry_after": 5, "directive": "DISCARD"}, "retry_after"),
            ({"retry_after": "soon"}, "retry_after"),
            ({"retry_after": 5, "requeue": True}, "requeue"),
        ):
            answer = api.post("/workers/nack", leased(job, **said))
            assert (answer.status, answer.code) == (400, "invalid_request")
            assert answer.body["error"]["details"]["field"] == field
        assert nack(api, job)["state"] == "retryable"


def test_a_workers_own_timeout_gets_the_standard_text(api: Api, frozen: FrozenClock) -> None:
    job = started(api, timeout=5)
    frozen.advance(6)
    error = nack(api, job, error={"type": "timeout"})["error"]
    assert (error["type"], error["code"]) == ("timeout", "timeout")
    assert error["message"] == "Job execution exceeded timeout of 5 seconds"
    assert (error["limit_ms"], error["elapsed_ms"]) == (5000, 6000)


def test_progress_goes_down_with_a_new_attempt_only(api: Api, frozen: FrozenClock) -> None:
    def report(job: dict[str, Any], fraction: float) -> float:
        answer = api.post("/workers/progress", leased(job, progress=fraction))
        assert answer.status == 200, answer.raw
        told: float = answer.body["progress"]
        return told

    job = started(api)
    assert [report(job, 0.7), report(job, 0.1)] == [0.7, 0.7], "what arrives late is not the truth"
    nack(api, job, retry_after=0)
    (again,) = fetch(api)
    assert "progress" not in again
    assert report(again, 0.1) == 0.1
