"""Workers and leases of another credential, under the same names too."""

from __future__ import annotations

from typing import Any

import pytest

from django_ojs import clock
from django_ojs.clock import FrozenClock
from django_ojs.models import Worker
from django_ojs.services import http_workers, workers
from django_ojs.services.reap import reap
from django_ojs.services.workers import WorkerInfo
from tests.http.conftest import Caller
from tests.http.guarding import error, everything
from tests.http.support import Api, enqueue, fetch

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("one_window")]


def rows_of(client: str | None) -> list[Any]:
    """The rows of the workers of a client, ``None`` for those of the project."""
    return list(Worker.objects.filter(principal=f"token:{client}" if client else "").values())


def beat(api: Api, worker: str = "w1", **body: Any) -> dict[str, Any]:
    answer = api.post("/workers/heartbeat", {"worker_id": worker, **body})
    assert answer.status == 200, answer.raw
    found: dict[str, Any] = answer.body
    return found


@pytest.mark.fault("S6")
def test_a_name_that_another_client_uses_is_free(caller: Caller, frozen: FrozenClock) -> None:
    """Names are easy to guess: whoever took one first could keep its worker out for ever."""
    mine, other = caller(name="mine"), caller(name="other")
    job = enqueue(mine)
    claimed = fetch(mine, worker="w1")[0]
    second = enqueue(mine)
    frozen.advance(20)
    before, worker = everything()[:3], rows_of("mine")
    named: dict[str, Any] = {"active_jobs": [{"id": job["id"], "lease_id": claimed["lease"]["id"]}]}
    for _ in range(2):
        said = beat(other, **named, extend_timeout=60)
        assert (said["jobs_extended"], said["jobs_lost"]) == ([], [job["id"]])
    assert other.post("/workers/register", {"worker_id": "w1"}).status == 200
    assert other.post("/workers/deregister", {"worker_id": "w1"}).status == 200
    assert (everything()[:3], rows_of("mine")) == (before, worker)
    assert [found["id"] for found in fetch(other, worker="w1")] == [second["id"]]
    assert rows_of("mine") == worker
    assert beat(mine, **named)["jobs_extended"] == [job["id"]]
    assert beat(mine, active_jobs=[second["id"]])["jobs_lost"] == [second["id"]]


@pytest.mark.fault("S6")
def test_a_worker_of_this_project_knows_nothing_of_callers(api: Api, frozen: FrozenClock) -> None:
    info = WorkerInfo("host-1", clock.new_lease())
    workers.register(info)
    before = rows_of(None)
    for path in ("heartbeat", "register", "deregister", "register"):
        assert api.post(f"/workers/{path}", {"worker_id": "host-1"}).status == 200
    assert rows_of(None) == before
    assert workers.report(info, phase="running", running=0) is None
    workers.deregister(info.id, None, incarnation=info.incarnation)
    assert api.get("/workers/host-1").body["state"] == "running"


@pytest.mark.fault("S6")
def test_another_credential_may_not_end_a_worker(caller: Caller) -> None:
    mine, other = caller("work", name="mine"), caller("work", name="other")
    mine.post("/workers/register", {"worker_id": "w1"})
    error(other("DELETE", "/workers/w1"), 404, "not_found")
    error(other("DELETE", "/workers/w1?client=token:mine"), 404, "not_found")
    assert Worker.objects.get().phase == "running"
    assert mine("DELETE", "/workers/w1").status == 200


def test_an_order_is_for_the_worker_of_one_client(caller: Caller) -> None:
    mine, other = caller(name="mine"), caller(name="other")
    beat(mine)
    beat(other)
    enqueue(mine)
    assert mine.post("/workers/w1/quiet").body["client"] == "token:mine"
    assert (beat(mine)["directive"], beat(other)["directive"]) == ("quiet", "continue")
    assert fetch(mine) == []
    assert len(fetch(other)) == 1


def test_an_ambiguous_name_is_refused_until_somebody_says_whose(caller: Caller) -> None:
    one, two, operator = caller(name="one"), caller(name="two"), caller(name="operator")
    beat(one)
    beat(two)
    beat(two, "w2")
    workers.register(WorkerInfo("w2", clock.new_lease()))
    for method, path in (("GET", ""), ("GET", "/health"), ("POST", "/quiet"), ("DELETE", "")):
        found = error(operator(method, f"/workers/w1{path}"), 409, "conflict")
        assert found["details"]["field"] == "client"
        assert found["details"]["clients"] == ["token:one", "token:two"]
    listed = operator.get("/workers").body["workers"]
    assert [(row["id"], row["client"]) for row in listed] == [
        ("w1", "token:one"),
        ("w1", "token:two"),
        ("w2", None),
        ("w2", "token:two"),
    ]
    assert operator.post("/workers/w1/quiet?client=token:one").body["client"] == "token:one"
    assert (beat(one)["directive"], beat(two)["directive"]) == ("quiet", "continue")
    assert operator.get("/workers/w2?client=").body["client"] is None
    error(operator.get("/workers/w1?client="), 404, "not_found")
    error(operator.get("/workers/w1?client=%00"), 400, "invalid_request")
    assert operator("DELETE", "/workers/w1?client=token:two").status == 200
    assert [row["phase"] for row in rows_of("two")] == ["stopped", "running"]
    assert [row["phase"] for row in rows_of("one")] == ["running"]
    # With a worker of that name of its own, the operator means that one.
    beat(operator)
    assert operator.get("/workers/w1").body["client"] == "token:operator"


def test_a_list_of_one_name_is_paged_through(caller: Caller) -> None:
    for number in range(5):
        beat(caller(name=f"c{number}"))
    operator, seen, query = caller(name="operator"), [], ""
    while True:
        page = operator.get(f"/workers?limit=2{query}").body
        seen += [row["client"] for row in page["workers"]]
        if not page["pagination"]["has_more"]:
            break
        query = f"&cursor={page['pagination']['next_cursor']}"
    assert seen == [f"token:c{number}" for number in range(5)]


def test_why_a_job_was_lost_is_told_to_the_client_that_had_it(
    caller: Caller, frozen: FrozenClock
) -> None:
    mine, other = caller(name="mine"), caller(name="other")
    job = enqueue(mine, timeout=10, grace_period=0)
    fetch(mine)
    frozen.advance(11)
    assert reap().counts
    named: dict[str, Any] = {"active_jobs": [job["id"]]}
    assert beat(mine, **named)["stop_reasons"] == {job["id"]: "timeout"}
    assert beat(other, **named)["stop_reasons"] == {job["id"]: "lost"}


def test_another_clients_worker_is_no_sign_of_life(caller: Caller, frozen: FrozenClock) -> None:
    """An earlier attempt stands in the way of a bare report while its own worker lives, not another."""
    mine, other = caller(name="mine"), caller(name="other")
    job = enqueue(mine, timeout=10, grace_period=0, retry={"initial_interval": 1, "jitter": False})
    fetch(mine, worker="w1")
    frozen.advance(11)
    assert reap().counts
    frozen.advance(2)
    assert [found["id"] for found in fetch(mine, worker="w2")] == [job["id"]]
    beat(other, "w1")
    frozen.advance(5)
    beat(other, "w1")
    assert mine.post("/workers/ack", {"job_id": job["id"]}).status == 200


def test_a_beating_worker_of_that_name_hides_no_silent_one(caller: Caller, frozen: FrozenClock) -> None:
    mine, other = caller(name="mine"), caller(name="other")
    enqueue(mine, heartbeat_timeout=8)
    fetch(mine)
    beat(other)
    frozen.advance(3)
    found = http_workers.silent(now=frozen.time, using="default")
    assert found == [("w1", "token:mine", 1)]


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
