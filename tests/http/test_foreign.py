"""What belongs to the queues of another credential does not exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from django_ojs.http.routing import features
from django_ojs.models import Worker
from tests.http.conftest import Caller
from tests.http.guarding import MISSING, error, everything
from tests.http.support import Answer, Api, enqueue, fetch, look

pytestmark = pytest.mark.usefixtures("one_window")


def foreign(every: Api) -> dict[str, dict[str, Any]]:
    """Jobs of ``q2`` in every state that an operation is about, with signs."""
    pending = enqueue(every, queue="q2", pending=True)
    dead = enqueue(every, queue="q2", retry={"max_attempts": 1, "on_exhaustion": "dead_letter"})
    fetch(every, "q2", worker="foreign-worker")
    every.post("/workers/nack", {"job_id": dead["id"], "error": "foreign-error"})
    enqueue(every, queue="q2", args=["foreign-secret"])
    active = fetch(every, "q2", worker="foreign-worker")[0]
    lease = {"lease_id": active["lease"]["id"]}
    path = f"/jobs/{active['id']}"
    assert every.post(f"{path}/checkpoint", {**lease, "state": "foreign-state"}).status == 200
    assert (
        every.post(f"{path}/progress", {**lease, "progress": 0.3, "message": "foreign"}).status == 200
    )
    waiting = enqueue(every, queue="q2")
    return {"pending": pending, "dead": dead, "active": active, "waiting": waiting}


def leveled(answer: Answer, *names: str) -> tuple[int, Any]:
    """The answer without what must differ: the name that was asked for, and the request's id."""
    text = re.sub(rb'"request_id":"[^"]*"', b'"request_id":""', answer.raw).decode()
    for name in names:
        text = text.replace(name, "*")
    return answer.status, json.loads(text)


def job_operations() -> Iterator[tuple[str, str]]:
    for part in features():
        for route in part.routes:
            for method in route.actions:
                for path in (route.path, *route.aliases):
                    if "{job_id}" in path:
                        yield method.upper(), path


@pytest.mark.slow
@pytest.mark.fault("S3", "S4", "F126")
def test_a_foreign_job_does_not_exist(tenants: tuple[Api, Api]) -> None:
    """Every operation on a job, by every path: the same answer as for an id that is nobody's."""
    mine, every = tenants
    jobs = foreign(every)
    before = everything()
    seen = 0
    for method, path in job_operations():
        for job in jobs.values():
            body = None
            if method != "GET":
                body = {
                    "priority": 9,
                    "extend_timeout": 60,
                    "progress": 0.9,
                    "state": "x",
                    "queue": "q1",
                }
                body |= {"lease_id": job["lease"]["id"]} if "lease" in job else {}
            answer = mine(method, "/" + path.format(job_id=job["id"]), body)
            missing = mine(method, "/" + path.format(job_id=MISSING), body)
            assert answer.status == 404, (method, path, answer.raw)
            assert leveled(answer, job["id"]) == leveled(missing, MISSING), (method, path)
            seen += 1
    assert seen > 80
    assert everything() == before


@pytest.mark.parametrize(
    "path", ["/workers/ack", "/workers/nack", "/workers/fail", "/workers/progress"]
)
@pytest.mark.fault("S3")
def test_a_foreign_job_named_in_the_body(tenants: tuple[Api, Api], path: str) -> None:
    mine, every = tenants
    job = foreign(every)["active"]
    before = everything()
    more = {
        "progress": 0.9,
        "lease_id": job["lease"]["id"],
        "worker_id": "foreign-worker",
        "attempt": 1,
    }
    answer = mine.post(path, {"job_id": job["id"], **more})
    missing = mine.post(path, {"job_id": MISSING, **more})
    assert answer.status == 404
    assert leveled(answer, job["id"]) == leveled(missing, MISSING)
    assert everything() == before


@pytest.mark.fault("S3")
def test_a_beat_for_a_foreign_job(tenants: tuple[Api, Api]) -> None:
    mine, every = tenants
    jobs = foreign(every)
    every("DELETE", f"/jobs/{jobs['waiting']['id']}")
    before = everything()[0]
    for job in jobs.values():
        beats = []
        for job_id in (job["id"], MISSING):
            item: Any = {"id": job_id, "lease_id": jobs["active"]["lease"]["id"]}
            body = {"worker_id": "w1", "active_jobs": [item], "extend_timeout": 60}
            answer = mine.post("/workers/heartbeat", body)
            found = leveled(answer, job_id)
            del found[1]["server_time"]
            beats.append(found)
        assert beats[0] == beats[1]
        assert (beats[0][1]["jobs_lost"], beats[0][1]["jobs_extended"]) == (["*"], [])
    assert everything()[0] == before


@pytest.mark.fault("S3")
def test_a_foreign_queue_does_not_exist(tenants: tuple[Api, Api]) -> None:
    mine, every = tenants
    foreign(every)
    before = everything()[2]
    for method, path in (
        ("GET", "/queues/{}"),
        ("GET", "/queues/{}/stats"),
        ("GET", "/queues/{}/events"),
        ("POST", "/queues/{}/pause"),
        ("POST", "/queues/{}/resume"),
        ("GET", "/admin/queues/{}"),
        ("POST", "/admin/queues/{}/pause"),
        ("POST", "/admin/queues/{}/resume"),
        ("GET", "/events/stream?channel=queue:{}"),
    ):
        answer, missing = mine(method, path.format("q2")), mine(method, path.format("q-none"))
        assert answer.status == 404, (method, path, answer.raw)
        assert leveled(answer, "q2") == leveled(missing, "q-none"), path
    assert everything()[2] == before
    assert mine.get("/queues/q1").status == 200


def test_a_foreign_worker_does_not_exist(tenants: tuple[Api, Api]) -> None:
    mine, every = tenants
    foreign(every)
    before = list(Worker.objects.values())
    for method, path in (
        ("GET", "/workers/{}"),
        ("GET", "/workers/{}/health"),
        ("POST", "/workers/{}/quiet"),
        ("POST", "/workers/{}/terminate"),
        ("POST", "/workers/{}/resume"),
        ("DELETE", "/workers/{}"),
        ("GET", "/admin/workers/{}"),
        ("DELETE", "/admin/workers/{}"),
    ):
        answer, missing = (
            mine(method, path.format("foreign-worker")),
            mine(method, path.format("nobody")),
        )
        assert answer.status == 404, (method, path)
        assert leveled(answer, "foreign-worker") == leveled(missing, "nobody"), path
    assert list(Worker.objects.values()) == before


def test_events_of_a_foreign_job(tenants: tuple[Api, Api]) -> None:
    mine, every = tenants
    job = foreign(every)["active"]
    for path in ("/events?job_id={}", "/events/stream?channel=job:{}", "/events/stream?job_id={}"):
        answer, missing = mine.get(path.format(job["id"])), mine.get(path.format(MISSING))
        assert answer.status == 404
        assert leveled(answer, job["id"]) == leveled(missing, MISSING)


@pytest.mark.fault("S3")
def test_nothing_goes_into_or_comes_out_of_a_foreign_queue(tenants: tuple[Api, Api]) -> None:
    mine, every = tenants
    foreign(every)
    own = enqueue(mine, queue="q1")
    before = everything()
    job = {"type": "test.job", "args": []}
    error(mine.post("/jobs", {**job, "queue": "q2"}), 403, "permission_denied")
    error(
        mine.post("/jobs", {**job, "queue": "q1", "options": {"queue": "q2"}}), 403, "permission_denied"
    )
    error(mine.post("/jobs", job), 403, "permission_denied")
    batch = [{**job, "queue": "q1"}, {**job, "queue": "q2"}]
    found = error(mine.post("/jobs/batch", {"jobs": batch}), 403, "permission_denied")
    assert found["details"]["index"] == 1
    for queues in (["q2"], ["q1", "q2"], ["q"], ["q10"]):
        answer = mine.post("/workers/fetch", {"queues": queues, "worker_id": "w1"})
        error(answer, 403, "permission_denied")
    error(mine.post("/workers/fetch", {"queue": "q2"}), 403, "permission_denied")
    error(mine.post("/queues", {"name": "q2"}), 403, "permission_denied")
    error(mine("PATCH", f"/jobs/{own['id']}", {"queue": "q2"}), 403, "permission_denied")
    assert everything() == before


@pytest.mark.fault("S4")
def test_lists_show_nothing_foreign(tenants: tuple[Api, Api]) -> None:
    mine, every = tenants
    jobs = foreign(every)
    secrets = [*(job["id"] for job in jobs.values()), "q2", "foreign"]
    own = enqueue(mine, queue="q1")
    paths = [
        "/jobs",
        "/admin/jobs",
        "/jobs?state=active",
        "/jobs?worker_id=foreign-worker",
        "/dead-letter",
        "/admin/dead-letter",
        "/dead-letter/stats",
        "/admin/dead-letter/stats",
        "/queues",
        "/admin/queues",
        "/workers",
        "/admin/workers",
        "/events",
        "/events?types=job.*",
        "/admin/stats",
        "/health",
    ]
    for path in paths:
        answer = mine.get(path)
        assert answer.status == 200, (path, answer.raw)
        for text in secrets:
            assert text.encode() not in answer.raw, (path, text)
    for path in ("/jobs?queue=q2", "/dead-letter?queue=q2", "/events?queues=q2"):
        assert mine.get(path).body["items"] == [], path
    assert [job["id"] for job in mine.get("/jobs").body["jobs"]] == [own["id"]]
    assert mine.get("/jobs").body["pagination"]["total"] == 1
    assert mine.get("/dead-letter/stats").body["total"] == 0
    assert every.get("/jobs").body["pagination"]["total"] == 5


@pytest.mark.fault("S4")
def test_an_id_of_a_foreign_job_tells_nothing_of_it(tenants: tuple[Api, Api]) -> None:
    mine, every = tenants
    job = enqueue(every, queue="q2", id=MISSING, args=["foreign-secret"])
    body = {"type": "test.job", "args": ["foreign-secret"], "queue": "q1", "id": job["id"]}
    answer = mine.post("/jobs", body)
    found = error(answer, 409, "duplicate")
    assert "existing_job_state" not in found["details"]
    for text in (b"q2", b"available", b"foreign-secret"):
        assert text not in answer.raw
    assert look(every, job)["queue"] == "q2"


def test_prefixes_of_queues(caller: Caller) -> None:
    team = caller(name="team", queues=["team-*", "q"])
    assert team.post("/jobs", {"type": "test.job", "args": [], "queue": "team-a"}).status == 201
    for queue in ("team", "teams", "tea", "q1", "xteam-a"):
        answer = team.post("/jobs", {"type": "test.job", "args": [], "queue": queue})
        error(answer, 403, "permission_denied")
    other = caller(name="other", queues=["team-b*"])
    assert other.get("/jobs").body["items"] == []
