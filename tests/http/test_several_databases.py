"""Over HTTP: requests go where the queue or the job is; a mount of its own serves one database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import override_settings
from django.urls import include, path

from django_ojs import conf
from django_ojs.models import Job, RateLimit, Schedule
from django_ojs.services import queues, tokens
from tests.http.support import Api, enqueue, fetch, look, refused_field
from tests.several import FIRST, SECOND, gone, two_databases

pytestmark = pytest.mark.usefixtures("two")
urlpatterns = [
    path("", include("django_ojs.urls")),
    path("mail/", include("django_ojs.urls"), {"database": SECOND}),
]


@pytest.fixture
def two(ojs_db: None, tmp_path: Path) -> Iterator[None]:
    """Queues are on two databases."""
    with two_databases(tmp_path), override_settings(ROOT_URLCONF=__name__):
        yield


def caller(alias: str) -> Api:
    """A client that may do everything, with a token of this database."""
    with conf.on(alias):
        return Api(tokens.create("everything", scopes=tokens.SCOPES, queues=["*"])[1])


def where(job: Any) -> list[str]:
    """The databases that have a job."""
    return [a for a in (FIRST, SECOND) if Job.objects.using(a).filter(pk=job["id"]).exists()]


def test_requests_go_where_the_queue_or_the_job_is() -> None:
    api = caller(FIRST)
    here, there = enqueue(api), enqueue(api, queue="mail", options={"priority": 3})
    inner = enqueue(api, options={"queue": "reports.x"})
    assert (where(here), where(there), where(inner)) == ([FIRST], [SECOND], [SECOND])
    for job in (here, there):
        assert look(api, job)["state"] == "available"
    assert [job["id"] for job in api.get("/jobs").body["items"]] == [here["id"]]
    assert [job["id"] for job in api.get("/jobs?queue=mail").body["items"]] == [there["id"]]
    both = api.get("/jobs?queue=mail,reports.x").body["items"]
    assert [job["id"] for job in both] == [inner["id"], there["id"]]
    refused_field(api.get("/jobs?queue=mail,default"), "queue")
    assert api.get("/dead-letter?queue=mail").body["items"] == []
    assert api.get("/queues/mail").body["counts"]["available"] == 1
    assert api.post("/queues/mail/pause", {}).status == 200
    assert queues.paused(using=SECOND) == ["mail"] and not queues.paused(using=FIRST)
    assert api.get(f"/jobs/{there['id']}/events", Accept="application/json").status == 200
    assert api("DELETE", f"/jobs/{there['id']}").body["job"]["state"] == "cancelled"
    assert api.get(f"/jobs/{there['id']}/result?wait=true&timeout=1").body["state"] == "cancelled"
    refused_field(api("PATCH", f"/jobs/{here['id']}", {"queue": "mail"}), "queue")


def test_a_batch_is_for_one_database() -> None:
    api, job = caller(FIRST), {"type": "test.job", "args": []}
    mail = {**job, "options": {"queue": "mail"}}
    made = api.post("/jobs/batch", {"jobs": [mail, {**job, "queue": "reports.x"}]})
    assert made.status == 201 and [where(one) for one in made.body["jobs"]] == [[SECOND], [SECOND]]
    refused_field(api.post("/jobs/batch", {"jobs": [mail, job]}), "jobs[1].queue")
    assert Job.objects.using(SECOND).count() == 2


def test_workflows_and_schedules() -> None:
    api, step = caller(FIRST), {"type": "test.job", "args": [], "options": {"queue": "mail"}}
    made = api.post("/workflows", {"type": "chain", "steps": [step, step]})
    assert made.status == 201, made.raw
    key = made.body.get("id") or made.body["workflow"]["id"]
    assert api.get(f"/workflows/{key}").status == 200
    assert Job.objects.using(SECOND).filter(workflow_id=key).count() == 1
    plain = {"type": "test.job", "args": []}
    refused_field(api.post("/workflows", {"type": "chain", "steps": [step, plain]}), "steps[1].queue")
    cron: dict[str, Any] = {"name": "nightly", "cron": "0 3 * * *", "type": "test.job", "args": []}
    cron["options"] = {"queue": "mail"}
    assert api.post("/cron", cron).status == 201
    assert Schedule.objects.using(SECOND).filter(pk="nightly").exists()
    assert api.get("/cron/nightly").status == 200
    cron["options"] = {"queue": "default"}
    refused = api.post("/cron", cron)
    assert (refused.status, refused.code) == (409, "conflict"), "both would fire"


def test_a_rate_limit_is_changed_where_it_counts() -> None:
    api, stopped = caller(FIRST), {"concurrency": 0}
    # As a job brings it whose type is there.
    RateLimit.objects.using(SECOND).create(key="smtp", policy={"concurrency": 1})
    assert api("PUT", "/rate-limits/smtp", stopped).status == 200
    assert api("PUT", "/queues/mail/rate-limit", stopped).status == 200
    assert api("PUT", "/queues/default/rate-limit", stopped).status == 200
    changed = {alias: list(overridden(alias)) for alias in (FIRST, SECOND)}
    assert changed == {FIRST: ["queue:default"], SECOND: ["queue:mail", "smtp"]}
    assert api.get("/rate-limits/smtp").status == 200
    assert api("DELETE", "/rate-limits/smtp/override").status == 200
    assert list(overridden(SECOND)) == ["queue:mail"]


def overridden(alias: str) -> Any:
    """The keys whose limits an operator has set there."""
    rows = RateLimit.objects.using(alias).filter(override__isnull=False)
    return rows.order_by("key").values_list("key", flat=True)


def test_workers_are_served_where_their_jobs_are() -> None:
    api = caller(FIRST)
    enqueue(api, queue="mail")
    refused_field(api.post("/workers/fetch", {"queues": ["mail"], "worker_id": "w1"}), "queues")
    worker = Mounted(caller(SECOND).token)
    (job,) = fetch(worker, "mail")
    beat = worker.post("/workers/heartbeat", {"worker_id": "w1", "active_jobs": [job["id"]]})
    assert beat.body["jobs_extended"] == [job["id"]]
    report = {"job_id": job["id"], "lease_id": job["lease"]["id"]}
    assert worker.post("/workers/ack", report).status == 200
    assert look(api, job)["state"] == "completed"
    assert worker.get("/jobs").body["items"][0]["id"] == job["id"], "lists are of that database"
    assert api.get("/workers").body["items"] == []
    assert Mounted(api.token).get("/jobs").status == 401, "and so are tokens"


@pytest.mark.fault("F149")
def test_the_routes_of_one_database_do_not_need_the_other() -> None:
    worker = Mounted(caller(SECOND).token)
    with gone(FIRST):
        made = enqueue(worker, queue="mail")
        (job,) = fetch(worker, "mail")
        assert job["id"] == made["id"] and look(worker, job)["state"] == "active"
        report = {"job_id": job["id"], "lease_id": job["lease"]["id"]}
        assert worker.post("/workers/ack", report).status == 200
        assert worker("GET", "//mail/ready").status == 200


class Mounted(Api):
    """A caller below ``/mail``."""

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """One request."""
        full = path if path.startswith("//") else f"//mail/ojs/v1{path}"
        return super().__call__(method, full, body, **headers)
