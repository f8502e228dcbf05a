"""Who may finish an attempt, over HTTP (decisions L1 and L2)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import override_settings

from django_ojs import clock
from django_ojs.api import get
from django_ojs.clock import FrozenClock
from django_ojs.models import Attempt, Worker
from django_ojs.services.reap import reap
from tests.http.conftest import Caller
from tests.http.support import Api, enqueue, fetch, look

pytestmark = pytest.mark.every_database


def ack(api: Api, job: dict[str, Any], **body: Any) -> Any:
    return api.post("/workers/ack", {"job_id": job["id"], **body})


@pytest.fixture
def twice(api: Api, frozen: FrozenClock) -> tuple[dict[str, Any], dict[str, Any]]:
    """One job fetched by w1, lost by its visibility lease, fetched by w2."""
    enqueue(api, timeout=600)
    first = fetch(api, worker="w1", visibility_timeout_ms=1000)[0]
    frozen.advance(1.5)
    assert reap().counts == {"visibility": 1}
    second = fetch(api, worker="w2", visibility_timeout_ms=60_000)[0]
    assert first["id"] == second["id"]
    assert first["lease"]["id"] != second["lease"]["id"]
    return first, second


@pytest.mark.fault("F62")
def test_the_stale_lease_is_refused_and_noted(
    api: Api, twice: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    first, second = twice
    before = get(first["id"])
    late = ack(api, first, lease_id=first["lease"]["id"], result="stale")
    assert (late.status, late.code) == (409, "conflict")
    assert late.body["error"]["details"]["reason"] == "lease_lost"
    assert get(first["id"]) == before
    note = Attempt.objects.get(job_id=first["id"], lease_seq=1).late_report
    assert note is not None
    assert note["report"] == "ack"
    done = ack(api, second, lease_id=second["lease"]["id"], result="right")
    assert (done.status, done.body["state"]) == (200, "completed")
    assert look(api, first)["result"] == "right"


def test_the_header_is_evidence_too(api: Api, twice: tuple[dict[str, Any], dict[str, Any]]) -> None:
    first, second = twice
    stale = api.post(f"/jobs/{first['id']}/ack", None, OJS_Lease=first["lease"]["id"])
    assert stale.status == 409
    right = api.post(f"/jobs/{first['id']}/ack", None, OJS_Lease=second["lease"]["id"])
    assert right.status == 200


@pytest.mark.fault("F63")
def test_a_bare_report_is_refused_while_an_earlier_worker_lives(
    api: Api, frozen: FrozenClock, twice: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    first, _ = twice
    beat(api, "w1", first)
    bare = ack(api, first)
    assert (bare.status, bare.body["error"]["details"]["reason"]) == (409, "lease_required")
    assert ack(api, first).status == 409, "and again when it is repeated"
    assert ack(api, first, worker_id="w1").status == 409
    assert ack(api, first, attempt=1).status == 409
    assert ack(api, first, worker_id="w2", attempt=2).status == 200


def beat(api: Api, worker: str, *jobs: dict[str, Any]) -> list[str]:
    """Beat for the jobs; those that are still the worker's."""
    named = [job["id"] for job in jobs]
    answer = api.post("/workers/heartbeat", {"worker_id": worker, "active_jobs": named})
    assert answer.status == 200
    kept: list[str] = answer.body["jobs_extended"]
    return kept


@pytest.mark.fault("F63")
@pytest.mark.parametrize("sign", ["beat", "fetch", "report"])
def test_what_counts_as_life_of_an_earlier_worker(
    api: Api, frozen: FrozenClock, twice: tuple[dict[str, Any], dict[str, Any]], sign: str
) -> None:
    first, second = twice
    frozen.advance(2)
    if sign == "beat":
        assert beat(api, "w1") == []
    elif sign == "fetch":
        assert fetch(api, worker="w1") == []
    else:
        assert ack(api, first, lease_id=first["lease"]["id"], worker_id="w1").status == 409
    assert ack(api, second).body["error"]["details"]["reason"] == "lease_required"
    frozen.advance(29)
    assert ack(api, second).status == 409
    frozen.advance(1)
    assert ack(api, second).status == 200, "it has not been heard for 30 s"


@pytest.mark.fault("F63")
def test_a_dead_workers_attempt_holds_up_no_report(
    api: Api, twice: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    _, second = twice
    assert ack(api, second, result="right").status == 200
    assert look(api, second)["result"] == "right"


def test_a_worker_that_said_good_bye_is_dead(
    api: Api, frozen: FrozenClock, twice: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    _, second = twice
    frozen.advance(2)
    assert api.post("/workers/deregister", {"worker_id": "w1"}).status == 200
    assert ack(api, second).status == 200


def test_an_attempt_of_another_credential_is_no_rival(caller: Caller, frozen: FrozenClock) -> None:
    """One token per worker: the late worker is refused, the present one is not."""
    one, two = caller(name="one"), caller(name="two")
    enqueue(one, timeout=600)
    first = fetch(one, worker="w1", visibility_timeout_ms=1000)[0]
    frozen.advance(1.5)
    reap()
    assert ack(one, first).body["error"]["details"]["reason"] == "not_active"
    second = fetch(two, worker="w2", visibility_timeout_ms=60_000)[0]
    assert beat(one, "w1", first) == []
    assert ack(one, first).body["error"]["details"]["reason"] == "lease_lost"
    assert ack(two, second, result="right").status == 200
    assert look(one, second)["result"] == "right"


def test_an_attempt_fetched_without_a_name_is_a_rival_for_30_seconds(
    api: Api, frozen: FrozenClock
) -> None:
    enqueue(api, timeout=600)
    fetch(api, worker=None, visibility_timeout_ms=1000)
    frozen.advance(1.5)
    reap()
    second = fetch(api, worker="w2", visibility_timeout_ms=120_000)[0]
    frozen.advance(29.9)
    assert ack(api, second).body["error"]["details"]["reason"] == "lease_required"
    frozen.advance(0.1)
    assert ack(api, second).status == 200


def test_a_worker_that_fetches_its_job_again_may_mean_either_attempt(
    api: Api, frozen: FrozenClock
) -> None:
    enqueue(api, timeout=600)
    fetch(api, worker="w1", visibility_timeout_ms=1000)
    frozen.advance(1.5)
    reap()
    again = fetch(api, worker="w1", visibility_timeout_ms=120_000)[0]
    frozen.advance(60)
    assert ack(api, again, worker_id="w1").body["error"]["details"]["reason"] == "lease_required"
    assert ack(api, again, attempt=2).status == 200


@pytest.mark.slow
def test_a_bare_report_counts_again_when_the_earlier_attempt_cannot_live(
    api: Api, frozen: FrozenClock, twice: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    first, second = twice
    assert api.post(f"/jobs/{first['id']}/extend", {"extend_timeout": "30m"}).status == 200
    # Its deadline was 630 s after its start, and a report may be 30 s under way.
    for _ in range(13):
        frozen.advance(50)
        assert beat(api, "w2", first) == [first["id"]]
        assert beat(api, "w1", first) == []
    assert ack(api, second).status == 409
    frozen.advance(10)
    assert ack(api, second).status == 200


@pytest.mark.slow
def test_a_waiting_fetch_is_no_sign_of_life_after_it_was_sent(api: Api) -> None:
    """Its worker may have died since: the server does not see every socket."""
    assert fetch(api, worker="w1", wait_ms=2500) == []
    asked = Worker.objects.get(name="w1").heartbeat_at
    assert clock.now("default") - asked > timedelta(seconds=2)


@pytest.mark.slow
def test_one_warning_for_each_token_that_workers_share(
    caller: Caller, frozen: FrozenClock, caplog: pytest.LogCaptureFixture
) -> None:
    shared, own = caller(name="shared"), caller(name="own")

    def finish(api: Api, worker: str, **lease_claim: Any) -> None:
        enqueue(api)
        job = fetch(api, worker=worker)[0]
        assert ack(api, job, **lease_claim).status == 200

    def warned() -> list[str]:
        found = [r.getMessage() for r in caplog.records if "token of its own" in r.getMessage()]
        caplog.clear()
        return found

    finish(own, "o1")
    frozen.advance(70)
    finish(own, "o1")
    frozen.advance(3)
    finish(own, "o2")
    frozen.advance(61)
    finish(own, "o2")
    assert warned() == [], "o2 has taken the place of o1"
    for _ in range(2):
        finish(shared, "s1", worker_id="s1")
        finish(shared, "s2", worker_id="s2")
        frozen.advance(2)
    assert warned() == [], "they say who they are"
    finish(shared, "s1")
    assert [text for text in warned() if "token:shared" in text]
    frozen.advance(300)
    finish(shared, "s1")
    finish(shared, "s2")
    assert warned() == [], "once"


def test_a_refused_report_that_is_repeated_is_refused_again(api: Api, frozen: FrozenClock) -> None:
    """An SDK repeats an ack that it got an error for; meanwhile the job is somebody else's."""
    enqueue(api, timeout=600)
    job = fetch(api, worker="w1", visibility_timeout_ms=1000)[0]
    frozen.advance(1.5)
    reap()
    assert ack(api, job).body["error"]["details"]["reason"] == "not_active"
    assert fetch(api, worker="w2", visibility_timeout_ms=120_000)
    frozen.advance(1)
    assert ack(api, job).body["error"]["details"]["reason"] == "lease_required"
    frozen.advance(31)
    assert ack(api, job).status == 200, "nobody repeats for so long"


@pytest.mark.parametrize(("policy", "status"), [("auto", 200), ("deny", 409), ("allow", 200)])
def test_the_policy_for_bare_reports(api: Api, policy: str, status: int) -> None:
    enqueue(api)
    job = fetch(api)[0]
    with override_settings(OJS={"UNFENCED_ACK": policy}):
        assert ack(api, job).status == status


def test_allow_takes_a_bare_report_whatever_else_lives(
    api: Api, twice: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    beat(api, "w1")
    with override_settings(OJS={"UNFENCED_ACK": "allow"}):
        assert ack(api, twice[0]).status == 200


@pytest.mark.fault("F60")
def test_the_same_ack_again_is_a_replay(api: Api) -> None:
    enqueue(api)
    job = fetch(api)[0]
    lease = job["lease"]["id"]
    first = ack(api, job, lease_id=lease, result={"n": 1})
    again = ack(api, job, lease_id=lease, result={"n": 1})
    assert (again.status, again.body) == (200, first.body)
    assert Attempt.objects.filter(job_id=job["id"]).count() == 1
    assert ack(api, job).status == 409, "without a lease a second ack is a conflict"


@pytest.mark.fault("F65")
def test_a_manual_retry_does_not_revive_an_old_claim(api: Api, frozen: FrozenClock) -> None:
    enqueue(api, timeout=600, heartbeat_timeout=5, retry={"max_attempts": 1})
    old = fetch(api, worker="w1")[0]
    frozen.advance(6)
    assert reap().counts == {"stalled": 1}
    assert api.post(f"/dead-letter/{old['id']}/retry").body["job"]["attempt"] == 0
    new = fetch(api, worker="w1")[0]
    assert old["attempt"] == new["attempt"] == 1
    assert ack(api, old, attempt=1).status == 409
    assert ack(api, old, worker_id="w1", attempt=1).status == 409
    assert ack(api, old, lease_id=old["lease"]["id"]).status == 409
    assert ack(api, new, lease_id=new["lease"]["id"]).status == 200


def test_a_worker_that_reports_its_own_timeout_is_no_rival(api: Api, frozen: FrozenClock) -> None:
    """The JavaScript SDK reports the timeout itself, then acks the next attempt without a lease."""
    enqueue(api, timeout_ms=1000, grace_period=5, retry={"jitter": False})
    job = fetch(api)[0]
    frozen.advance(1.1)
    failed = api.post("/workers/nack", {"job_id": job["id"], "error": {"code": "timeout"}})
    assert failed.body["job"]["error"]["timeout_kind"] == "execution"
    frozen.advance(1.5)
    assert fetch(api)
    assert ack(api, job).status == 200


@pytest.mark.fault("S5")
def test_a_lease_is_bound_to_the_credential_that_fetched(caller: Caller) -> None:
    mine, other = caller(name="mine"), caller(name="other")
    enqueue(mine)
    job = fetch(mine)[0]
    for body in ({}, {"lease_id": job["lease"]["id"]}, {"worker_id": "w1", "attempt": 1}):
        assert ack(other, job, **body).status == 409
        assert other.post("/workers/nack", {"job_id": job["id"], **body}).status == 409
    assert get(job["id"]).state == "active"
    assert ack(mine, job, lease_id=job["lease"]["id"]).status == 200


@pytest.mark.parametrize("verb", ["ack", "nack"])
def test_a_report_repeated_by_another_client_is_refused(caller: Caller, verb: str) -> None:
    """Whoever has learned the lease id must not learn the outcome, nor speak for its worker."""
    mine, other = caller(name="mine"), caller(name="other")
    enqueue(mine, retry={"max_attempts": 1})
    job = fetch(mine)[0]
    report = {"job_id": job["id"], "lease_id": job["lease"]["id"], "error": {"message": "no"}}
    assert mine.post(f"/workers/{verb}", report).status == 200
    foreign = other.post(f"/workers/{verb}", report)
    assert (foreign.status, foreign.body["error"]["details"]["reason"]) == (409, "not_active")
    assert Attempt.objects.get(job_id=job["id"]).late_report is None
    assert mine.post(f"/workers/{verb}", report).status == (200 if verb == "ack" else 409)


def test_a_late_report_of_another_client_is_not_noted(caller: Caller, frozen: FrozenClock) -> None:
    """A note says that the worker of the attempt still spoke: nobody else may make it."""
    mine, other = caller(name="mine"), caller(name="other")
    enqueue(mine, timeout=600)
    job = fetch(mine, visibility_timeout_ms=1000)[0]
    frozen.advance(1.5)
    assert reap().counts == {"visibility": 1}
    assert ack(other, job, lease_id=job["lease"]["id"]).status == 409
    assert Attempt.objects.get(job_id=job["id"]).late_report is None
    assert ack(mine, job, lease_id=job["lease"]["id"]).status == 409
    assert Attempt.objects.get(job_id=job["id"]).late_report is not None


def test_the_lease_is_shown_to_its_holder_only(api: Api) -> None:
    enqueue(api)
    job = fetch(api)[0]
    for path in (f"/jobs/{job['id']}", "/jobs", f"/admin/jobs/{job['id']}", "/events", "/workers"):
        assert job["lease"]["id"].encode() not in api.get(path).raw
