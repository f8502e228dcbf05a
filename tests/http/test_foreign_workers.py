"""Workers and leases of another credential."""

from __future__ import annotations

import pytest

from django_ojs import clock
from django_ojs.clock import FrozenClock
from django_ojs.models import Worker
from tests.http.conftest import Caller
from tests.http.guarding import error, everything
from tests.http.support import Api, enqueue, fetch

pytestmark = pytest.mark.usefixtures("one_window")


@pytest.mark.fault("S6")
def test_another_credentials_worker_id(caller: Caller, frozen: FrozenClock) -> None:
    mine, other = caller(name="mine"), caller(name="other")
    job = enqueue(mine)
    claimed = fetch(mine, worker="w1")[0]
    enqueue(mine)
    frozen.advance(20)
    before, workers = everything(), list(Worker.objects.values())
    named = {"worker_id": "w1", "active_jobs": [{"id": job["id"], "lease_id": claimed["lease"]["id"]}]}
    for path, body in (
        ("/workers/heartbeat", named),
        ("/workers/beat", {**named, "extend_timeout": 60}),
        ("/workers/fetch", {"worker_id": "w1", "queues": ["default"]}),
        ("/workers/register", {"worker_id": "w1"}),
        ("/workers/deregister", {"worker_id": "w1"}),
    ):
        found = error(other.post(path, body), 403, "permission_denied")
        assert found["details"]["field"] == "worker_id", path
    assert everything() == before
    assert list(Worker.objects.values()) == workers
    beat = other.post("/workers/heartbeat", {**named, "worker_id": "w2"})
    assert (beat.body["jobs_extended"], beat.body["jobs_lost"]) == ([], [job["id"]])
    assert everything()[:3] == before[:3]


def test_a_worker_of_this_project_is_not_for_callers(api: Api, frozen: FrozenClock) -> None:
    """Whose row has no credential at all."""
    now = clock.now("default")
    Worker.objects.create(id="host-1", incarnation=clock.new_id(), started_at=now, heartbeat_at=now)
    for path in ("/workers/heartbeat", "/workers/register", "/workers/deregister"):
        error(api.post(path, {"worker_id": "host-1"}), 403, "permission_denied")
    assert Worker.objects.get().phase == "running"


@pytest.mark.fault("S6")
def test_another_credential_may_not_end_a_worker(caller: Caller) -> None:
    mine, other = caller("work", name="mine"), caller("work", name="other")
    mine.post("/workers/register", {"worker_id": "w1"})
    error(other("DELETE", "/workers/w1"), 404, "not_found")
    assert Worker.objects.get().phase == "running"
    assert mine("DELETE", "/workers/w1").status == 200


@pytest.mark.fault("S5")
def test_a_stolen_lease_is_worth_nothing(caller: Caller) -> None:
    mine, other = caller(name="mine"), caller("work", "inspect", name="other")
    enqueue(mine)
    job = fetch(mine)[0]
    before = everything()
    stolen = {"job_id": job["id"], "lease_id": job["lease"]["id"], "worker_id": "w1", "attempt": 1}
    for path in ("/workers/ack", "/workers/nack"):
        error(other.post(path, stolen), 409, "conflict")
    for path in ("progress", "checkpoint", "extend"):
        body = {**stolen, "progress": 0.5, "state": 1, "by": 60}
        error(other.post(f"/jobs/{job['id']}/{path}", body), 409, "conflict")
    assert everything() == before
