"""Workers that speak HTTP: beats, orders, the registry, one that stops (OJS worker protocol)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_ojs.api import get
from django_ojs.clock import FrozenClock, using_clock
from django_ojs.domain.durations import format_instant
from django_ojs.models import Attempt, Job, Worker
from django_ojs.services.reap import reap
from tests.http.conftest import Caller
from tests.http.support import Api, LiveApi, enqueue, fetch, look
from tests.support import poll

pytestmark = [pytest.mark.every_database, pytest.mark.process]

UNKNOWN = "019539a4-b68c-7def-8000-1a2b3c4d5e6f"


def beat(api: Api, worker: str = "w1", jobs: Iterable[Any] = (), **body: Any) -> dict[str, Any]:
    """A heartbeat that names the jobs."""
    named = [job if isinstance(job, str) else job["id"] for job in jobs]
    answer = api.post("/workers/heartbeat", {"worker_id": worker, "active_jobs": named, **body})
    assert answer.status == 200, answer.raw
    assert answer.body["acknowledged"] is True
    assert answer.body["jobs_cancelled"] == answer.body["cancelled_jobs"]
    assert answer.body["jobs_lost"] == answer.body["lost_jobs"]
    said: dict[str, Any] = answer.body
    return said


def started(api: Api, worker: str = "w1", **body: Any) -> dict[str, Any]:
    """A new job, fetched by the worker."""
    job = enqueue(api, **body)
    found = fetch(api, worker=worker)
    assert [item["id"] for item in found] == [job["id"]]
    return found[0]


def health(api: Api, worker: str = "w1") -> dict[str, Any]:
    """What the registry says of a worker."""
    answer = api.get(f"/workers/{worker}/health")
    assert answer.status == 200, answer.raw
    said: dict[str, Any] = answer.body
    return said


def kinds(api: Api) -> list[str]:
    """The events about workers, in order."""
    return [event["type"] for event in api.get("/events?types=worker.*").body["events"]]


@pytest.fixture
def frozen() -> Iterator[FrozenClock]:
    """Far ahead, where nothing is due for the reaper beside the live server."""
    with using_clock(FrozenClock(datetime(2100, 1, 1, tzinfo=UTC))) as stopped:
        assert isinstance(stopped, FrozenClock)
        yield stopped


# Two workers, one of which stops.


@pytest.mark.fault("F4", "F67")
def test_the_job_of_a_worker_that_stops_goes_to_another(live: LiveApi) -> None:
    job = enqueue(live, queue="story")
    lease = {"visibility_timeout_ms": 1000}
    first = fetch(live, "story", worker="w1", **lease)[0]
    assert fetch(live, "story", worker="w2") == []
    assert beat(live, "w1", [first], **lease)["jobs_extended"] == [job["id"]]
    # From here on w1 is not heard.
    found = poll(lambda: fetch(live, "story", worker="w2", wait_ms=1000))
    second = found[0]
    assert (second["id"], second["attempt"]) == (job["id"], 2)
    assert second["lease"]["id"] != first["lease"]["id"]
    assert second["errors"][0]["type"] == "visibility_timeout"
    # Now it comes back, and says what it can.
    assert beat(live, "w2", [second])["jobs_extended"] == [job["id"]]
    before = get(job["id"])
    told = beat(live, "w1", [first])
    assert (told["jobs_extended"], told["jobs_lost"]) == ([], [job["id"]])
    claims: list[tuple[dict[str, Any], str]] = [
        ({}, "lease_required"),
        ({"worker_id": "w1"}, "lease_lost"),
        ({"worker_id": "w1", "attempt": 1}, "lease_lost"),
        ({"attempt": 1}, "lease_lost"),
        # Last: what it says under its lease shows that it is at its end.
        ({"lease_id": first["lease"]["id"]}, "lease_lost"),
    ]
    reports: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("POST", "/workers/ack", {"result": "stale"}),
        ("POST", "/workers/nack", {"error": {"message": "stale"}}),
        ("POST", f"/jobs/{job['id']}/ack", {}),
        ("PUT", f"/jobs/{job['id']}/progress", {"progress": 0.9}),
        ("PUT", f"/jobs/{job['id']}/checkpoint", {"state": "stale"}),
    )
    for claim, reason in claims:
        for method, path, body in reports:
            late = live(method, path, {"job_id": job["id"], **body, **claim})
            assert (late.status, late.code) == (409, "conflict"), (path, claim, late.raw)
            details = late.body["error"]["details"]
            assert details["reason"] == reason, (path, claim)
            assert details["current_state"] == "active"
            assert get(job["id"]) == before, (path, claim)
    note = Attempt.objects.get(job_id=job["id"], lease_seq=1).late_report
    assert note is not None
    done = live.post(
        "/workers/ack", {"job_id": job["id"], "lease_id": second["lease"]["id"], "result": "right"}
    )
    assert (done.status, done.body["state"]) == (200, "completed")
    before = get(job["id"])
    for claim, _ in claims:
        assert live.post("/workers/ack", {"job_id": job["id"], **claim}).status == 409, claim
        assert get(job["id"]) == before
    assert look(live, job)["result"] == "right"
    assert Attempt.objects.filter(job_id=job["id"]).count() == 2


@pytest.mark.fault("F53")
def test_many_workers_never_share_a_job(live: LiveApi) -> None:
    items = [{"type": "test.job", "args": [n], "queue": "many"} for n in range(40)]
    assert live.post("/jobs/batch", {"jobs": items}).status == 201
    got: list[list[dict[str, Any]]] = []

    def work(number: int) -> None:
        while mine := fetch(live, "many", worker=f"w{number}", count=3):
            got.append(mine)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    ids = [job["id"] for mine in got for job in mine]
    assert len(ids) == len(set(ids)) == 40
    assert set(Job.objects.values_list("attempt", flat=True)) == {1}


# What a beat says.


@pytest.mark.fault("F64")
def test_a_beat_sorts_the_jobs(api: Api, frozen: FrozenClock) -> None:
    held = started(api, timeout=600)
    soft = started(api, timeout=10, grace_period=300)
    cancelled = started(api)
    lapsed = started(api, heartbeat_timeout=5)
    foreign = started(api, worker="w2")
    ended = started(api)
    assert api.post("/workers/ack", {"job_id": ended["id"]}).status == 200
    frozen.advance(10)
    assert api.post(f"/jobs/{cancelled['id']}/cancel").status == 200
    assert reap().counts == {"stalled": 1}
    before = get(foreign["id"])
    told = beat(api, jobs=[held, soft, cancelled, lapsed, foreign, ended, UNKNOWN])
    assert told["worker_id"] == "w1"
    assert (told["state"], told["directive"]) == ("running", "continue")
    assert set(told["jobs_extended"]) == {held["id"], soft["id"]}
    assert told["soft_timeout_jobs"] == [soft["id"]]
    assert told["jobs_cancelled"] == [cancelled["id"]]
    assert set(told["jobs_lost"]) == {lapsed["id"], foreign["id"], ended["id"], UNKNOWN}
    assert told["server_time"] == format_instant(frozen.time)
    begun = frozen.time - timedelta(seconds=10)
    assert told["deadline_at"] == {
        held["id"]: format_instant(begun + timedelta(seconds=630)),
        soft["id"]: format_instant(begun + timedelta(seconds=310)),
    }
    each = {job["id"]: job for job in told["jobs"]}
    assert set(each) == set(told["jobs_extended"])
    assert each[held["id"]]["deadline_at"] == told["deadline_at"][held["id"]]
    assert each[soft["id"]]["soft_deadline_at"] == format_instant(frozen.time)
    assert each[held["id"]]["attempt"] == 1
    assert get(foreign["id"]) == before, "another worker's job is not kept alive"
    assert get(held["id"]).heartbeat_at == frozen.time


@pytest.mark.parametrize(
    "form", ["active_job_ids", "active_jobs", "jobs", "leases", "job_id", "objects", "wrong lease"]
)
def test_the_forms_of_naming_jobs(api: Api, frozen: FrozenClock, form: str) -> None:
    job = started(api)
    frozen.advance(3)
    body: dict[str, Any] = {form: [job["id"]]}
    if form == "job_id":
        body = {"job_id": job["id"]}
    elif form == "objects":
        body = {"jobs": [{"job_id": job["id"], "lease_id": job["lease"]["id"]}]}
    elif form == "wrong lease":
        body = {"jobs": [{"id": job["id"], "lease_id": UNKNOWN}]}
    told = api.post("/workers/heartbeat", {"worker_id": "w1", **body}).body
    kept = form != "wrong lease"
    assert told["jobs_extended"] == ([job["id"]] if kept else [])
    assert told["jobs_lost"] == ([] if kept else [job["id"]])
    assert (get(job["id"]).heartbeat_at == frozen.time) is kept


def test_ids_win_over_a_number(api: Api) -> None:
    job = started(api)
    told = beat(api, active_jobs=7, active_job_ids=[job["id"]])
    assert told["jobs_extended"] == [job["id"]]
    assert health(api)["active_jobs"] == 7


def test_a_number_of_jobs_refreshes_the_worker_only(api: Api, frozen: FrozenClock) -> None:
    job = started(api, heartbeat_timeout=10)
    frozen.advance(9)
    told = beat(api, active_jobs=1)
    assert (told["jobs_extended"], told["jobs_lost"]) == ([], [])
    assert health(api)["active_jobs"] == 1
    assert health(api)["status"] == "healthy"
    frozen.advance(2)
    assert reap().counts == {"stalled": 1}
    assert look(api, job)["error"]["type"] == "stalled"


def test_beats_never_move_the_execution_deadline(api: Api, frozen: FrozenClock) -> None:
    job = started(api, timeout=60, grace_period=30)
    deadlines = set()
    for _ in range(8):
        frozen.advance(10)
        deadlines.add(beat(api, jobs=[job])["deadline_at"][job["id"]])
    assert deadlines == {job["lease"]["deadline_at"]}
    frozen.advance(10)
    assert reap().counts == {"execution": 1}
    assert beat(api, jobs=[job])["jobs_lost"] == [job["id"]]


def test_a_beat_can_ask_for_a_lease_and_for_more_time(api: Api, frozen: FrozenClock) -> None:
    job = started(api, timeout=60, grace_period=0)
    beat(api, jobs=[job], visibility_timeout_ms=5000)
    assert get(job["id"]).row.lease_expires_at == frozen.time + timedelta(seconds=5)
    frozen.advance(1)
    told = beat(api, jobs=[job], extend_timeout="30s")
    assert told["jobs"][0]["deadline_at"] == format_instant(frozen.time + timedelta(seconds=89))
    frozen.advance(4)
    beat(api, jobs=[job])
    assert get(job["id"]).row.lease_expires_at == frozen.time + timedelta(seconds=5), "as long as asked"
    frozen.advance(5)
    assert reap().counts == {"visibility": 1}


def test_another_credential_learns_and_keeps_nothing(caller: Caller) -> None:
    mine, other = caller(name="mine"), caller(name="other")
    job = started(mine, "w1")
    before = get(job["id"])
    told = beat(other, "w2", jobs=[job])
    assert (told["jobs_extended"], told["jobs_lost"]) == ([], [job["id"]])
    assert get(job["id"]) == before
    narrow = caller("work", "administer", name="narrow", queues=["mail"])
    assert mine.post(f"/jobs/{job['id']}/cancel").status == 200
    told = beat(narrow, "w3", jobs=[job])
    assert (told["jobs_cancelled"], told["jobs_lost"]) == ([], [job["id"]])


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "worker_id"),
        ({"worker_id": ""}, "worker_id"),
        ({"worker_id": 7}, "worker_id"),
        ({"worker_id": "w", "active_jobs": -1}, "active_jobs"),
        ({"worker_id": "w", "active_jobs": True}, "active_jobs"),
        ({"worker_id": "w", "active_jobs": "many"}, "active_jobs"),
        ({"worker_id": "w", "active_jobs": ["x" * 256]}, "active_jobs"),
        ({"worker_id": "w", "active_job_ids": [1]}, "active_job_ids"),
        ({"worker_id": "w", "jobs": [{"id": UNKNOWN, "lease_id": "x"}]}, "jobs.lease_id"),
        ({"worker_id": "w", "active_jobs": [UNKNOWN] * 1001}, "active_jobs"),
        ({"worker_id": "w", "visibility_timeout_ms": -1}, "visibility_timeout_ms"),
        ({"worker_id": "w", "extend_timeout": 1.5}, "extend_timeout"),
        ({"worker_id": "w", "pid": -1}, "pid"),
        ({"worker_id": "w", "labels": "x"}, "labels"),
    ],
)
def test_malformed_beats(api: Api, body: dict[str, Any], field: str) -> None:
    answer = api.post("/workers/heartbeat", body)
    assert (answer.status, answer.code) == (400, "invalid_request"), answer.raw
    assert answer.body["error"]["details"]["field"] == field
    assert not Worker.objects.exists(), "nothing was noted"


def test_what_is_no_jobs_id_is_lost_and_the_others_are_kept(api: Api, frozen: FrozenClock) -> None:
    """The example of OJS worker protocol 4.3 names "job_1": a beat is not lost because of it."""
    job = started(api)
    frozen.advance(3)
    told = beat(api, active_jobs=2, active_job_ids=["job_1", job["id"]])
    assert (told["jobs_extended"], told["jobs_lost"]) == ([job["id"]], ["job_1"])
    assert told["stop_reasons"] == {"job_1": "lost"}
    assert get(job["id"]).heartbeat_at == frozen.time


@pytest.mark.fault("F58")
def test_a_cancelled_job_is_told_by_the_next_beat(api: Api) -> None:
    job = started(api)
    assert beat(api, jobs=[job])["jobs_cancelled"] == []
    assert api.post(f"/jobs/{job['id']}/cancel").body["job"]["state"] == "cancelled"
    for _ in range(2):
        told = beat(api, jobs=[job])
        assert (told["jobs_cancelled"], told["jobs_extended"]) == ([job["id"]], [])
        assert told["jobs_lost"] == []
    for path in ("ack", "nack"):
        late = api.post(f"/workers/{path}", {"job_id": job["id"], "lease_id": job["lease"]["id"]})
        assert (late.status, late.body["error"]["details"]["current_state"]) == (409, "cancelled")
    assert look(api, job)["state"] == "cancelled"


# Orders.


@pytest.mark.parametrize("prefix", ["", "/admin"])
@pytest.mark.parametrize("order", ["quiet", "terminate"])
def test_an_order_arrives_with_the_next_beat(
    api: Api, frozen: FrozenClock, order: str, prefix: str
) -> None:
    job = started(api)
    enqueue(api)
    assert beat(api, jobs=[job])["directive"] == "continue"
    told = api.post(f"{prefix}/workers/w1/{order}", {"reason": "maintenance"})
    assert (told.status, told.body["directive"], told.body["state"]) == (200, order, order)
    assert told.body["status"] == "degraded"
    for _ in range(2):
        frozen.advance(5)
        said = beat(api, jobs=[job], state="running")
        assert (said["state"], said["directive"]) == (order, order), "until it is taken back"
        assert said["jobs_extended"] == [job["id"]]
        assert fetch(api) == []
    assert len(fetch(api, worker="w2")) == 1, "it is told to that worker only"
    enqueue(api)
    assert api.post("/workers/ack", {"job_id": job["id"]}).status == 200, "it may finish"
    back = api.post(f"{prefix}/workers/w1/resume")
    assert (back.status, back.body["directive"], back.body["state"]) == (200, None, "running")
    said = beat(api)
    assert (said["state"], said["directive"]) == ("running", "continue")
    assert len(fetch(api)) == 1
    assert kinds(api).count("worker.quiet") == 1


def test_orders_to_nobody(api: Api) -> None:
    for order in ("quiet", "terminate", "resume"):
        answer = api.post(f"/workers/nobody/{order}")
        assert (answer.status, answer.code) == (404, "not_found")
        assert answer.body["error"]["details"]["resource_type"] == "worker"
    assert not Worker.objects.exists()


@pytest.mark.parametrize(
    ("said", "told", "state"),
    [
        ({"state": "quiet"}, "quiet", "quiet"),
        ({"state": "terminate"}, "terminate", "terminate"),
        ({"state": "drain"}, "quiet", "drain"),
        ({"state": "draining"}, "quiet", "drain"),
        ({"shutdown": True}, "quiet", "drain"),
        ({"shutdown": True, "state": "running"}, "quiet", "drain"),
    ],
)
def test_a_worker_that_stops_by_itself(api: Api, said: dict[str, Any], told: str, state: str) -> None:
    job = started(api)
    enqueue(api)
    answer = beat(api, jobs=[job], **said)
    assert (answer["state"], answer["directive"]) == (told, "continue")
    assert answer["jobs_extended"] == [job["id"]]
    assert (health(api)["state"], health(api)["status"]) == (state, "degraded")
    assert fetch(api) == []
    assert beat(api, jobs=[job])["state"] == told, "a beat without a state changes none"
    assert beat(api, state="nonsense")["state"] == told
    assert beat(api, state="running")["state"] == "running"
    assert len(fetch(api)) == 1
    assert kinds(api) == ["worker.started", "worker.quiet"]


# The registry.


def test_registration(api: Api, frozen: FrozenClock) -> None:
    answer = api.post(
        "/workers/register",
        {
            "worker_id": "w1",
            "hostname": "host-1",
            "pid": 4711,
            "queues": ["default", "mail"],
            "concurrency": 8,
            "labels": {"zone": "a"},
            "version": "1.2",
            "started_at": "2026-01-01T00:00:00Z",
        },
    )
    assert answer.status == 200
    assert answer.body == {
        "ok": True,
        "worker_id": "w1",
        "server_time": format_instant(frozen.time),
        "heartbeat_interval": 5,
        "heartbeat_timeout": 60,
        "visibility_timeout_default": 1800,
    }
    listed = api.get("/workers").body
    assert listed["workers"] == listed["items"]
    assert listed["summary"] == {"total": 1, "running": 1, "quiet": 0, "stale": 0}
    worker = listed["workers"][0]
    assert worker == {
        "worker_id": "w1",
        "id": "w1",
        "client": "token:test-produce-work-inspect-administer-metrics-0",
        "state": "running",
        "status": "healthy",
        "directive": None,
        "hostname": "host-1",
        "pid": 4711,
        "concurrency": 8,
        "active_jobs": 0,
        "queues": ["default", "mail"],
        "labels": {"zone": "a"},
        "version": "1.2",
        "started_at": format_instant(frozen.time),
        "last_heartbeat_at": format_instant(frozen.time),
    }
    one = api.get("/workers/w1").body
    assert one["worker"] == worker
    assert {**one, "worker": None} == {**worker, "worker": None}
    assert api.post("/workers/register", {}).status == 400
    assert api.post("/workers/register", {"worker_id": "w2", "queues": "mail"}).status == 400


def test_the_first_sight_registers(api: Api) -> None:
    assert api.get("/workers/w1/health").status == 404
    fetch(api, worker="by-fetch")
    beat(api, "by-beat", shutdown=True)
    assert [worker["id"] for worker in api.get("/workers").body["workers"]] == ["by-beat", "by-fetch"]
    assert health(api, "by-beat")["state"] == "drain"
    assert Worker.objects.get(name="by-beat").beats, "the first beat counts as one"
    assert not Worker.objects.get(name="by-fetch").beats
    assert kinds(api) == ["worker.started"] * 2


def test_without_a_name_there_is_no_worker(api: Api) -> None:
    enqueue(api)
    assert len(fetch(api, worker=None)) == 1
    assert api.get("/workers").body["workers"] == []


def test_deregistration_keeps_leases(api: Api) -> None:
    job = started(api)
    before = get(job["id"])
    assert api.post("/workers/deregister", {"worker_id": "w1"}).body == {"ok": True, "worker_id": "w1"}
    assert get(job["id"]) == before
    assert (health(api)["state"], health(api)["status"]) == ("stopped", "stale")
    assert api.post("/workers/deregister", {"worker_id": "w1"}).status == 200
    assert api.post("/workers/deregister", {"worker_id": "never-seen"}).status == 200
    assert api.post("/workers/deregister", {}).status == 400
    assert kinds(api) == ["worker.started", "worker.stopped"], "once"
    done = api.post("/workers/ack", {"job_id": job["id"], "lease_id": job["lease"]["id"]})
    assert done.status == 200


def test_a_worker_is_deleted_by_itself_or_an_operator(caller: Caller) -> None:
    mine, other = caller("work", name="mine"), caller("work", name="other")
    operator = caller("administer", name="operator")
    beat(mine, "w1")
    beat(mine, "w2")
    assert other("DELETE", "/workers/w1").status == 404
    assert mine("DELETE", "/workers/w1").status == 200
    assert operator("DELETE", "/admin/workers/w2").status == 200
    assert operator("DELETE", "/workers/w3").status == 404
    phases = set(Worker.objects.values_list("phase", flat=True))
    assert phases == {Worker.Phase.STOPPED}


def test_health_of_a_worker_that_is_not_heard(api: Api, frozen: FrozenClock) -> None:
    job = started(api, heartbeat_timeout=600, timeout=6000)
    beat(api, jobs=[job])
    frozen.advance(60)
    assert health(api)["status"] == "healthy"
    frozen.advance(1)
    assert (health(api)["status"], health(api)["state"]) == ("stale", "running")
    assert api.get("/workers").body["summary"]["stale"] == 1
    assert look(api, job)["state"] == "active", "its jobs have limits of their own"
    beat(api, jobs=[job])
    assert health(api)["status"] == "healthy"


@pytest.mark.parametrize("how", ["register", "deregister", "silence"])
@pytest.mark.parametrize("before", ["quiet", "terminate", "drain"])
def test_a_second_incarnation_is_running(api: Api, frozen: FrozenClock, how: str, before: str) -> None:
    """What the last process under a name was told, or said of itself, is not for the next one."""
    beat(api)
    if before == "drain":
        beat(api, shutdown=True)
    else:
        api.post(f"/workers/w1/{before}")
    first = Worker.objects.get(name="w1")
    enqueue(api)
    assert fetch(api) == []
    frozen.advance(2)
    if how == "register":
        assert api.post("/workers/register", {"worker_id": "w1"}).status == 200
    elif how == "deregister":
        assert api.post("/workers/deregister", {"worker_id": "w1"}).status == 200
    else:
        frozen.advance(61)
    assert len(fetch(api)) == 1
    second = Worker.objects.get(name="w1")
    assert (second.phase, second.directive) == (Worker.Phase.RUNNING, None)
    said = beat(api)
    assert (said["state"], said["directive"]) == ("running", "continue")
    assert health(api)["status"] == "healthy"
    assert second.incarnation != first.incarnation
    assert second.started_at == frozen.time > first.started_at
