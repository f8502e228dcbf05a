"""The jobs of django_ojs itself are given in the admin: over HTTP they are read, and left alone."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from django.core import signing

from django_ojs.domain.job import Actor
from django_ojs.models import AuditEntry, Event, Job, Queue
from django_ojs.services import bulk, operate
from django_ojs.services.bulk import QUEUE, Filter
from django_ojs.services.rate_limits import operate as operate_limits
from tests.http.guarding import everything
from tests.http.support import Api, enqueue, fetch
from tests.http.test_foreign import job_operations
from tests.services.support import fail, take

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("one_window", "ojs_db")]

GIVER = Actor("admin", "ada", "old ones", "10.1.2.3")


def order(user: int = 4711) -> UUID:
    """A bulk order that somebody gave in the admin."""
    return bulk.start("purge", Filter(), {}, GIVER, user=user).id


def discarded() -> UUID:
    """One that failed, in the dead letter."""
    job_id = order()
    Job.objects.filter(pk=job_id).update(max_attempts=1)
    fail(*take(queues=(QUEUE,), types=(bulk.TYPE,)))
    assert Job.objects.get(pk=job_id).state == "discarded"
    return job_id


@pytest.mark.slow
@pytest.mark.parametrize("make", [order, discarded])
def test_no_operation_changes_one(api: Api, make: Any) -> None:
    """Whatever the path and the method: not even a credential with every scope and every queue."""
    job_id = make()
    assert api.get("/events").status == 200, "so that the events have got their place"
    before = everything()
    body = {"priority": 9, "extend_timeout": 60, "progress": 0.9, "state": "x", "queue": "mine"}
    seen = 0
    for method, path in job_operations():
        answer = api(method, "/" + path.format(job_id=job_id), None if method == "GET" else body)
        if method != "GET":
            reports = path.endswith(("ack", "nack", "fail"))
            assert answer.status == (409 if reports else 403), (method, path, answer.raw)
            seen += 1
    assert seen > 20
    for path in ("ack", "nack", "fail", "progress"):
        assert api.post(f"/workers/{path}", {**body, "job_id": str(job_id)}).status in (403, 409)
    assert everything() == before


def test_they_are_not_fetched(api: Api) -> None:
    """A worker over HTTP would say that all is done, and do nothing."""
    order()
    for path in ("fetch", "register", "heartbeat"):
        answer = api.post(f"/workers/{path}", {"queues": ["default", QUEUE], "worker_id": "w1"})
        assert (answer.status, answer.code) == (403, "permission_denied"), path
        assert answer.body["error"]["details"]["field"] == "queues"
    assert fetch(api) == []


def test_nothing_gets_into_their_queue(api: Api) -> None:
    """Also a job that waits or has failed elsewhere: workers of the queue serve no other types."""
    waiting = enqueue(api)["id"]
    dead = enqueue(api, queue="q1", retry={"max_attempts": 1, "on_exhaustion": "dead_letter"})["id"]
    api.post("/workers/nack", {"job_id": fetch(api, "q1")[0]["id"], "error": "no"})
    new = {"type": "test.job", "args": []}
    asked: list[tuple[str, str, Any]] = [
        ("POST", "/jobs", {**new, "queue": QUEUE}),
        ("POST", "/jobs", {**new, "options": {"queue": QUEUE}}),
        ("POST", "/jobs/batch", {"jobs": [new, {**new, "queue": QUEUE}]}),
        ("PATCH", f"/jobs/{waiting}", {"queue": QUEUE}),
        ("PATCH", f"/admin/jobs/{waiting}", {"queue": QUEUE}),
        ("POST", f"/jobs/{dead}/retry", {"queue": QUEUE}),
        ("POST", f"/dead-letter/{dead}/retry", {"override": {"queue": QUEUE}}),
        ("POST", "/queues", {"name": QUEUE}),
    ]
    for method, path, body in asked:
        answer = api(method, path, body)
        assert (answer.status, answer.code) == (403, "permission_denied"), (path, answer.raw)
        assert answer.body["error"]["details"]["queue"] == QUEUE
    assert not Job.objects.filter(queue=QUEUE).exists()


def test_their_queue_is_not_paused(api: Api) -> None:
    order()
    for path in ("pause", "resume"):
        for root in ("/queues", "/admin/queues"):
            assert api.post(f"{root}/{QUEUE}/{path}").status == 403
    assert not Queue.objects.filter(name=QUEUE, paused=True).exists()


def test_who_may_inspect_learns_neither_the_address_nor_the_user(api: Api) -> None:
    job_id = order()
    job = api.get(f"/jobs/{job_id}").body["job"]
    assert (job["state"], job["args"]) == ("available", [])
    assert job["meta"]["operation"] == "purge"
    listed = api.get(f"/jobs?queue={QUEUE}").body["items"]
    assert [item.get("args", []) for item in listed] == [[]]


def test_their_queue_gets_no_limit(api: Api) -> None:
    operate_limits.override(f"queue:{QUEUE}", {"concurrency": 3})
    for method, path in (
        ("PUT", f"/rate-limits/queue:{QUEUE}"),
        ("DELETE", f"/rate-limits/queue:{QUEUE}/override"),
        ("PUT", f"/admin/queues/{QUEUE}/rate-limit"),
    ):
        answer = api(method, path, {"concurrency": 0} if method == "PUT" else None)
        assert (answer.status, answer.code) == (403, "permission_denied"), path
    shown = api.get(f"/rate-limits/queue:{QUEUE}").body
    assert shown["concurrency"]["limit"] == 3


def test_the_address_is_not_in_the_order() -> None:
    """It is in the audit, and what reads jobs need not read that."""
    job_id = order()
    signed = Job.objects.get(pk=job_id).args[0]
    assert bulk.read(signed, job_id).actor.name == "ada"
    assert "10.1.2.3" not in str(signing.loads(signed, salt="django_ojs.bulk"))
    assert AuditEntry.objects.get(action="bulk.started").address == "10.1.2.3"
    assert not Event.objects.filter(data__address__isnull=False).exists()


def test_a_job_that_got_into_their_queue_otherwise_can_be_taken_out(api: Api) -> None:
    """From Python any queue may be named; an administrator mends it."""
    job = enqueue(api)
    operate.edit([UUID(job["id"])], {"queue": QUEUE})
    assert api("PATCH", f"/jobs/{job['id']}", {"queue": "default"}).status == 200
