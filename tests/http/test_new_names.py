"""What small tokens can make without end: queues and workers, a limit for each credential."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection, connections
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext

from django_ojs.clock import FrozenClock
from django_ojs.models import Job, Queue, Worker
from django_ojs.services import enqueue as enqueue_service
from tests.http.conftest import Caller
from tests.http.guarding import error
from tests.http.support import Answer, Api, enqueue, fetch, look

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("one_window")]


@pytest.fixture
def few() -> Iterator[None]:
    """Three of each."""
    with override_settings(OJS={"HTTP": {"MAX_NEW_QUEUES_PER_HOUR": 3, "MAX_WORKERS": 3}}):
        yield


def batch(api: Api, *queues: str) -> Answer:
    jobs = [{"type": "test.job", "args": [], "queue": queue} for queue in queues]
    return api.post("/jobs/batch", {"jobs": jobs})


def limited(answer: Answer, setting: str, field: str) -> int:
    """A 429 that names the limit; when to try again, in seconds."""
    found = error(answer, 429, "rate_limited")
    assert setting in found["message"]
    assert (found["details"]["limit"], found["details"]["field"]) == (3, field)
    return int(answer.headers["Retry-After"])


def queues() -> list[str]:
    return list(Queue.objects.order_by("name").values_list("name", flat=True))


@pytest.mark.fault("S34")
def test_new_queues_of_a_credential_are_limited(caller: Caller, frozen: FrozenClock, few: None) -> None:
    mine, other = caller(name="mine"), caller(name="other")
    assert batch(mine, "q1", "q2").status == 201
    frozen.advance(600)
    assert limited(batch(mine, "q3", "q1", "q4"), "MAX_NEW_QUEUES_PER_HOUR", "queue") == 3001
    assert (queues(), Job.objects.count()) == (["q1", "q2"], 2), "refused whole"
    assert batch(mine, "q3", "q1", "q3").status == 201
    assert limited(mine.post("/jobs", {"type": "a", "args": [], "queue": "q4"}), "MAX_", "queue")
    assert batch(mine, "q1", "q2", "q3").status == 201, "of known queues there may be any number"
    assert batch(other, "q1", "q4", "q5", "q6").status == 201
    # Whoever made it, it is known now.
    assert batch(mine, "q4", "q6").status == 201
    frozen.advance(3002)
    assert batch(mine, "q7", "q8").status == 201
    assert limited(batch(mine, "q9"), "MAX_NEW_QUEUES_PER_HOUR", "queue") == 599


def test_more_new_queues_than_ever_may_be_are_refused_in_one_batch(caller: Caller, few: None) -> None:
    assert limited(batch(caller(), "q1", "q2", "q3", "q4"), "MAX_", "queue") == 3601
    assert queues() == []


def test_every_way_to_name_a_queue_counts(api: Api, few: None) -> None:
    job = enqueue(api, queue="q1", retry={"max_attempts": 1})
    assert api.post("/queues", {"name": "q2"}).status == 201
    assert api.post("/queues/q3/pause").status == 200
    assert limited(api.post("/queues", {"name": "q4"}), "MAX_", "queue")
    assert limited(api.post("/queues/q4/pause"), "MAX_", "queue")
    assert limited(api("PATCH", f"/jobs/{job['id']}", {"queue": "q4"}), "MAX_", "queue")
    (claimed,) = fetch(api, "q1")
    failed = {"job_id": job["id"], "lease_id": claimed["lease"]["id"], "error": "no"}
    assert api.post("/workers/nack", failed).status == 200
    override = {"override": {"queue": "q4"}}
    assert limited(api.post(f"/jobs/{job['id']}/retry", override), "MAX_", "queue")
    assert look(api, job)["state"] == "discarded"
    assert queues() == ["q1", "q2", "q3"]
    # To ask for jobs makes no queue.
    assert fetch(api, "q5", "q6") == []
    assert queues() == ["q1", "q2", "q3"]


def test_the_session_of_a_staff_user_is_a_credential_too(ojs_db: None, few: None) -> None:
    user = User.objects.create_user("limited", is_staff=True)
    try:
        user.user_permissions.add(Permission.objects.get(codename="http_produce"))
        client = Client()
        client.force_login(user)

        def post(queue: str) -> int:
            body = {"type": "test.job", "args": [], "queue": queue}
            path = "/ojs/v1/jobs"
            return client.post(path, body, content_type="application/json").status_code

        assert [post(f"q{number}") for number in range(4)] == [201, 201, 201, 429]
    finally:
        user.delete()


def test_known_queues_cost_no_statement(api: Api) -> None:
    enqueue(api, queue="q1")
    with CaptureQueriesContext(connection) as asked:
        enqueue(api, queue="q1")
    assert [query["sql"] for query in asked if "ojs_queue" in query["sql"].replace("django_", "")] == []


def test_requests_at_once_make_no_more_together(api: Api, few: None) -> None:
    def ask(number: int) -> int:
        try:
            return batch(api, f"a{number}", f"b{number}").status
        finally:
            connections["default"].close()

    with ThreadPoolExecutor(6) as pool:
        answers = sorted(pool.map(ask, range(6)))
    assert answers == [201] + [429] * 5
    assert len(queues()) == 2


def test_live_workers_of_a_credential_are_limited(
    caller: Caller, frozen: FrozenClock, few: None
) -> None:
    mine, other = caller(name="mine"), caller(name="other")

    def beat(api: Api, name: str) -> Answer:
        return api.post("/workers/heartbeat", {"worker_id": name})

    assert [beat(mine, f"w{number}").status for number in range(3)] == [200] * 3
    for path, body in (
        ("heartbeat", {}),
        ("register", {}),
        ("fetch", {"queues": ["default"]}),
    ):
        answer = mine.post(f"/workers/{path}", {"worker_id": "w3", **body})
        assert limited(answer, "MAX_WORKERS", "worker_id") == 60
    assert Worker.objects.count() == 3
    assert beat(mine, "w0").status == 200
    assert beat(other, "w3").status == 200
    assert mine.post("/workers/deregister", {"worker_id": "w1"}).status == 200
    assert beat(mine, "w3").status == 200, "in the place of the one that has stopped"
    frozen.advance(61)
    assert [beat(mine, f"new-{number}").status for number in range(4)] == [200] * 3 + [429]
    mine_now = Worker.objects.filter(principal="token:mine").order_by("name")
    assert list(mine_now.values_list("name", flat=True)) == ["new-0", "new-1", "new-2"]


@pytest.mark.parametrize("path", ["register", "heartbeat", "fetch"])
def test_the_row_of_a_known_worker_costs_no_count(api: Api, path: str) -> None:
    body: dict[str, Any] = {"worker_id": "w1", "queues": ["default"]}
    api.post(f"/workers/{path}", body)
    with CaptureQueriesContext(connection) as asked:
        assert api.post(f"/workers/{path}", body).status == 200
    counts = [query["sql"] for query in asked if "COUNT" in query["sql"] and "worker" in query["sql"]]
    assert counts == []


def test_what_a_process_remembers_of_queues_is_bounded() -> None:
    enqueue_service._known_queues.clear()
    enqueue_service.know_queues((f"q{number}" for number in range(10_001)), using="default")
    assert enqueue_service.unknown(["q0", "q1", "q10000"], using="default") == ["q0"]
    assert len(enqueue_service._known_queues) == 10_000
    enqueue_service._known_queues.clear()
