"""Events that are not stored are told from the jobs: what an installation without settings has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from django_ojs import clock
from django_ojs.domain.ids import uuid7
from django_ojs.models import Attempt, Event
from django_ojs.services import derived
from tests.http.conftest import Caller
from tests.http.support import Api, enqueue, fetch, refused_field
from tests.support import poll

pytestmark = pytest.mark.every_database


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No setting at all; what was committed a moment ago is told."""
    monkeypatch.setattr(derived, "SETTLING", timedelta(0))
    with override_settings(OJS={}):
        yield


def done(api: Api, result: Any = None, **job: Any) -> dict[str, Any]:
    """A job that has been worked on."""
    made = enqueue(api, **job)
    taken = fetch(api, made["queue"])[0]
    said = {"job_id": taken["id"], "lease_id": taken["lease"]["id"], "result": result}
    assert api.post("/workers/ack", said).status == 200
    return made


def told(api: Api, query: str = "") -> list[dict[str, Any]]:
    """The events of one page."""
    answer = api.get(f"/events{query}")
    assert answer.status == 200, answer.raw
    events: list[dict[str, Any]] = answer.body["events"]
    return events


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in events]


def walk(api: Api, query: str, name: str = "cursor") -> list[dict[str, Any]]:
    """The events of all pages, each behind the last one's cursor, or its last event."""
    found: list[dict[str, Any]] = []
    after = ""
    while True:
        page = api.get(f"/events?{query}&{name}={after}").body
        found += page["events"]
        if not page["has_more"]:
            return found
        assert len(found) < 100
        after = page["cursor"] if name == "cursor" else page["events"][-1]["id"]


@pytest.mark.parametrize("setting", [{}, {"EVENTS": "all"}], ids=str)
def test_the_total_of_a_page_with_more_behind_it_is_no_promise(api: Api, setting: Any) -> None:
    with override_settings(OJS=setting):
        done(api, queue="mail")
        pages = [api.get(f"/events?types=job.*&limit={n}").body["pagination"] for n in (1, 200)]
    assert [page["has_more"] for page in pages] == [True, False]
    assert [page["total_is_capped"] for page in pages] == [True, False]
    assert (pages[0]["total"], "next_cursor" in pages[0]) == (1, True)


def test_an_id_from_the_future_hides_no_other_job(api: Api) -> None:
    """A client whose clock is wrong, or who means it."""
    enqueue(api)
    query = "/events?types=job.enqueued"
    cursor = api.get(query).body["cursor"]
    enqueue(api, id="ffffffff-ffff-7fff-bfff-ffffffffffff")
    page = api.get(f"{query}&cursor={cursor}").body
    assert page["events"] == []
    job = enqueue(api)
    found = api.get(f"{query}&cursor={page['cursor']}").body["events"]
    assert [event["data"]["job_id"] for event in found] == [job["id"]]


def test_a_place_behind_the_last_year_is_the_end(api: Api) -> None:
    done(api)
    assert told(api, "?after=evt_ffffffff-ffff-7fff-bfff-ffffffffffff") == []


def test_the_life_of_a_job_is_told_and_not_stored(api: Api) -> None:
    job = done(api, {"n": 1}, queue="mail")
    assert Event.objects.exclude(kind__startswith="worker.").count() == 0
    entered, started, completed = told(api, "?types=job.*")
    assert [entered["type"], started["type"]] == ["job.enqueued", "job.started"]
    shared = {"job_id": job["id"], "job_type": "test.job", "queue": "mail"}
    assert entered["data"] == shared | {"attempt": 0, "priority": 0, "state": "available"}
    assert started["data"] == shared | {"attempt": 1, "worker_id": "w1", "state": "active"}
    assert completed["data"].pop("duration_ms") >= 0
    own = {"attempt": 1, "result": {"n": 1}, "state": "completed"}
    assert (completed["type"], completed["data"]) == ("job.completed", shared | own)
    assert kinds(told(api, "?types=job.completed&queues=mail")) == ["job.completed"]
    assert told(api, "?types=job.completed&queues=other") == []


def test_a_scheduled_and_a_pending_job(api: Api) -> None:
    enqueue(api, scheduled_at="PT1H")
    pending = enqueue(api, pending=True)
    assert kinds(told(api, "?types=job.*")) == ["job.scheduled"]
    assert kinds(told(api, "?types=job.enqueued")) == []
    assert api.post(f"/jobs/{pending['id']}/activate").status == 200
    assert kinds(told(api, "?types=job.enqueued")) == ["job.enqueued"]
    assert kinds(told(api, "?types=job.scheduled")) == ["job.scheduled"]


def test_a_job_that_ended_while_it_was_pending_never_entered(api: Api) -> None:
    ended, later = enqueue(api, pending=True), enqueue(api, pending=True, scheduled_at="PT1H")
    assert api.post(f"/jobs/{later['id']}/activate").status == 200
    for job in (ended, later):
        assert api("DELETE", f"/jobs/{job['id']}").status == 200
    entered = [event for event in told(api, "?types=job.*") if event["type"] != "job.cancelled"]
    assert [(event["type"], event["data"]["job_id"]) for event in entered] == [
        ("job.scheduled", later["id"])
    ]
    history = [
        api.get(f"/jobs/{job['id']}/events", Accept="application/json") for job in (ended, later)
    ]
    assert [[event["type"] for event in answer.body["items"]] for answer in history] == [
        ["job.cancelled"],
        ["job.scheduled", "job.cancelled"],
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cursor", "after"])
@pytest.mark.parametrize("limit", [1, 2, 3, 50])
def test_every_event_is_on_one_page(api: Api, name: str, limit: int) -> None:
    for _ in range(3):
        done(api)
    batch = {"jobs": [{"type": "test.job", "args": []}] * 5}
    assert api.post("/jobs/batch", batch).status == 201
    assert api.post("/queues/default/pause").status == 200
    found = walk(api, f"limit={limit}&types=job.*,queue.*", name)
    assert sorted(kinds(found)) == sorted(
        ["job.enqueued"] * 8 + ["job.started", "job.completed"] * 3 + ["queue.paused"]
    )
    assert len({event["id"] for event in found}) == len(found)


@pytest.mark.parametrize(
    "kind", ["worker.heartbeat", "workflow.created", "queue.full", "backpressure.*"]
)
def test_kinds_of_the_documents_that_nothing_emits(api: Api, kind: str) -> None:
    enqueue(api)
    assert told(api, f"?types={kind}") == []
    assert kinds(told(api, f"?types={kind},job.enqueued")) == ["job.enqueued"]


def test_a_cursor_goes_on_with_what_came_later(api: Api) -> None:
    done(api)
    first = api.get("/events?types=job.*").body
    assert first["has_more"] is False
    assert told(api, f"?types=job.*&cursor={first['cursor']}") == []
    assert told(api, f"?types=job.*&after={first['events'][-1]['id']}") == []
    done(api)
    later = [
        told(api, f"?types=job.*&{place}")
        for place in (f"cursor={first['cursor']}", f"after={first['events'][-1]['id']}")
    ]
    assert later[0] == later[1]
    assert kinds(later[0]) == ["job.enqueued", "job.started", "job.completed"]
    assert told(api, f"?types=job.*&since={later[0][0]['time']}") == later[0]


def test_since_finds_a_job_whose_id_was_made_a_moment_before(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine the moment until it is stored may be longer.
    monkeypatch.setattr(derived, "_OLDER", timedelta(seconds=30))
    before = enqueue(api)
    ms = int(clock.now("default").timestamp() * 1000)
    made = enqueue(api, id=str(uuid7(ms - 100, 5)))
    (event,) = told(api, f"?types=job.enqueued&since={made['created_at']}")
    assert event["data"]["job_id"] == made["id"] != before["id"]


def test_a_forged_cursor_is_refused(api: Api) -> None:
    done(api)
    cursor = api.get("/events?limit=1").body["cursor"]
    refused_field(api.get(f"/events?cursor={cursor}x"), "cursor")
    refused_field(api.get(f"/events?after={cursor}x"), "after")


def test_the_history_of_one_job_has_every_attempt(api: Api) -> None:
    job = enqueue(api, retry={"initial_interval": "PT0.001S", "jitter": False})
    other = enqueue(api, queue="other")
    first = fetch(api)[0]
    lease = {"job_id": first["id"], "lease_id": first["lease"]["id"]}
    assert api.post("/workers/nack", {**lease, "error": {"message": "no"}}).status == 200
    second = _again(api)
    path = f"/jobs/{job['id']}/events"
    answer = api.get(path, Accept="application/json")
    assert answer.status == 200
    running = kinds(answer.body["events"])
    begun = ["job.enqueued", "job.started", "job.failed", "job.retrying", "job.enqueued"]
    assert running == [*begun, "job.started"]
    lease = {"job_id": second["id"], "lease_id": second["lease"]["id"]}
    assert api.post("/workers/ack", lease).status == 200
    events = api.get(path, Accept="application/json").body["events"]
    assert kinds(events) == [*begun, "job.started", "job.completed"]
    assert kinds(told(api, f"?job_id={job['id']}")) == kinds(events)
    assert [event["data"]["attempt"] for event in events if event["type"] == "job.started"] == [1, 2]
    assert walk(api, f"job_id={job['id']}&limit=2") == events
    assert {event["data"]["job_id"] for event in events} != {other["id"]}
    assert kinds(api.get(f"{path}?types=job.completed", Accept="application/json").body["items"]) == [
        "job.completed"
    ]


def _again(api: Api) -> dict[str, Any]:
    """The retry, as soon as it is due."""
    return poll(lambda: next(iter(fetch(api)), None))


def test_what_one_may_not_see_is_not_told(api: Api, caller: Caller) -> None:
    mine, foreign = done(api, queue="mine"), done(api, queue="foreign")
    some = caller("inspect", name="some", queues=["mine"])
    assert {event["data"]["job_id"] for event in told(some)} == {mine["id"]}
    missing = some.get(f"/jobs/{foreign['id']}/events", Accept="application/json")
    assert (missing.status, missing.code) == (404, "not_found")


@override_settings(OJS={"EVENTS": "all"})
def test_what_is_stored_is_not_told_twice(api: Api) -> None:
    job = done(api)
    expected = ["job.enqueued", "job.started", "job.completed"]
    events = told(api, "?types=job.*")
    assert kinds(events) == expected
    assert walk(api, "types=job.*&limit=1", "after") == events
    with override_settings(OJS={}):
        assert kinds(told(api, "?types=job.*")) == expected
        assert kinds(told(api, f"?job_id={job['id']}")) == expected


def test_a_history_reads_nothing_large_however_many_attempts(api: Api) -> None:
    """A job has up to a megabyte of arguments, an attempt an error of 64 KiB."""
    statements = []
    for attempts in (1, 5):
        job = done(api, {"n": 1}, queue="mail")
        ended = Attempt.objects.get(job_id=job["id"])
        for number in range(1, attempts):
            ended.pk, ended.lease_seq, ended.lease_id = None, number + 1, uuid4()
            ended.save(force_insert=True)
        with CaptureQueriesContext(connection) as queries:
            answer = api.get(f"/jobs/{job['id']}/events", Accept="application/json")
        assert kinds(answer.body["events"]).count("job.completed") == attempts
        reads = [query["sql"] for query in queries if "django_ojs_" in query["sql"]]
        columns = re.compile(r"django_ojs_(?:job|attempt)\W{3}(args|meta|errors|error|checkpoint)\W")
        # Of the endpoint's own look at the job, which is as for every other, nothing is asked here.
        # Of meta only the trace leaves the database, cut to 256 characters.
        told = [sql for sql in reads if not sql.startswith("SELECT j.") and "traceparent" not in sql]
        assert not [found for sql in told for found in columns.findall(sql)]
        statements.append(len(reads))
    assert statements[0] == statements[1]


@pytest.mark.slow
@pytest.mark.parametrize("stored", ["problems", "all"])
def test_a_page_without_events_leads_on(api: Api, monkeypatch: pytest.MonkeyPatch, stored: str) -> None:
    """Of many events a reader wants one: no page looks through all, and none is the last too early."""
    monkeypatch.setattr(derived, "WINDOW", 4)
    with override_settings(OJS={"EVENTS": stored}):
        for _ in range(3):
            for _ in range(9):
                done(api, queue="busy")
            done(api, queue="rare")
        first = api.get("/events?queues=rare").body
        assert (first["events"], first["has_more"]) == ([], True)
        assert first["pagination"]["next_cursor"] == first["cursor"]
        found = walk(api, "queues=rare")
        assert kinds(found) == ["job.enqueued", "job.started", "job.completed"] * 3
        assert {event["data"]["queue"] for event in found} == {"rare"}
        assert kinds(walk(api, "types=job.started&queues=rare&limit=1")) == ["job.started"] * 3
