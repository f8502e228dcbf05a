"""Events of workflows: what they say, what they are about, and who gets them."""

from __future__ import annotations

from typing import Any

import pytest

from django_ojs.clock import FrozenClock
from django_ojs.models import AuditEntry
from tests.http.support import Api, fetch
from tests.http.test_workflows import job, made, work

pytestmark = pytest.mark.usefixtures("one_window")

CHAIN = {"type": "chain", "name": "a chain", "steps": [job("t.a", queue="q1"), job("t.b", queue="q1")]}
FINAL = {"retry": {"max_attempts": 1}}


def events(api: Api, **query: str) -> list[dict[str, Any]]:
    asked = "&".join(f"{key}={value}" for key, value in {"types": "workflow.*", **query}.items())
    found: list[dict[str, Any]] = api.get(f"/events?{asked}").body["events"]
    return found


def fail(api: Api, queue: str) -> None:
    (claimed,) = fetch(api, queue)
    error = {"code": "no_luck", "message": "it broke"}
    told = {"job_id": claimed["id"], "lease_id": claimed["lease"]["id"], "error": error}
    assert api.post("/workers/nack", told).status == 200


def test_what_a_chain_tells(api: Api, frozen: FrozenClock) -> None:
    steps = [job("t.a"), {**job("t.b"), "id": "second", "depends_on": ["step-0"]}]
    found = made(api, {"name": "a chain", "steps": steps})
    (claimed,) = fetch(api)
    frozen.advance(3)
    api.post("/workers/ack", {"job_id": claimed["id"], "lease_id": claimed["lease"]["id"]})
    work(api)
    told = events(api)
    assert [event["type"] for event in told] == [
        "workflow.started",
        "workflow.step_completed",
        "workflow.step_completed",
        "workflow.completed",
    ]
    assert {event["subject"] for event in told} == {found["id"]}
    data = [event["data"] for event in told]
    assert {one["workflow_name"] for one in data} == {"a chain"}
    assert {one["total_steps"] for one in data} == {2}
    names = ("step_id", "step_type", "duration_ms", "steps_remaining", "step_index")
    assert [[one[name] for name in names] for one in data[1:3]] == [
        ["step-0", "t.a", 3000, 1, 0],
        ["second", "t.b", 0, 0, 1],
    ]
    assert data[3]["duration_ms"] == 3000


def test_why_a_workflow_failed(api: Api) -> None:
    made(api, {"type": "chain", "steps": [{**job("t.a"), "id": "first", "options": FINAL}, job("t.b")]})
    fail(api, "default")
    _, step, end = events(api)
    error = {"code": "no_luck", "message": "it broke"}
    assert (step["type"], step["data"]["step_id"], step["data"]["error"]) == (
        "workflow.step_failed",
        "first",
        error,
    )
    assert end["data"]["error"] == error
    assert (end["data"]["failed_step_id"], end["data"]["failed_step_type"]) == ("first", "t.a")


CANCELLED = {"code": "job_cancelled", "message": "the job was cancelled"}


@pytest.mark.parametrize("running", [True, False])
def test_a_chain_fails_by_a_step_that_was_cancelled(api: Api, running: bool) -> None:
    found = made(api, {"type": "chain", "steps": [{**job("t.a"), "id": "first"}, job("t.b")]})
    first = found["steps"][0]["job_id"]
    if running:
        fetch(api)
    assert api("DELETE", f"/jobs/{first}").status == 200
    _, step, end = events(api)
    assert (step["type"], step["data"]["step_id"]) == ("workflow.step_failed", "first")
    assert step["data"]["error"] == end["data"]["error"] == CANCELLED
    assert (end["data"]["failed_step_id"], end["data"]["failed_step_type"]) == ("first", "t.a")
    after = api.get(f"/workflows/{found['id']}").body
    assert (after["state"], after["failed_step_index"]) == ("failed", 0)
    assert after["errors"] == [{"job_id": first, "step_index": 0, "attempt": int(running), **CANCELLED}]
    assert after["failed_job_ids"] == [first]


def test_a_cancelled_member_beside_a_failed_one(api: Api) -> None:
    """What has failed is the reason, as before."""
    found = made(api, {"type": "group", "jobs": [job("t.a"), job("t.b", queue="q1", options=FINAL)]})
    assert api("DELETE", f"/jobs/{found['steps'][0]['job_id']}").status == 200
    fail(api, "q1")
    end = events(api)[-1]
    assert (end["data"]["failed_step_id"], end["data"]["error"]["code"]) == ("step-1", "no_luck")
    errors = api.get(f"/workflows/{found['id']}").body["errors"]
    assert [error["code"] for error in errors] == ["no_luck"]


def test_a_nested_workflow_that_failed(api: Api) -> None:
    inner = {"type": "group", "jobs": [job("t.a", options=FINAL)]}
    made(api, {"type": "chain", "steps": [inner, job("t.b")]})
    fail(api, "default")
    *_, step, end = events(api)
    error = {"code": "no_luck", "message": "it broke"}
    assert (step["type"], step["data"]["error"]) == ("workflow.step_failed", error)
    assert (end["data"]["failed_step_id"], end["data"]["failed_step_type"]) == ("step-0", "group")
    assert end["data"]["error"] == error


def test_a_callback_that_failed(api: Api) -> None:
    callbacks = {"on_complete": job("t.done", options=FINAL)}
    found = made(api, {"type": "batch", "jobs": [job("t.a")], "callbacks": callbacks})
    work(api)
    fail(api, "default")
    end = events(api)[-1]
    assert (end["data"]["failed_step_id"], end["data"]["failed_step_type"]) == ("on_complete", "t.done")
    after = api.get(f"/workflows/{found['id']}").body
    assert (after["state"], after["errors"][0]["callback"]) == ("failed", "on_complete")


def test_a_nested_workflow_is_a_step(api: Api) -> None:
    made(api, {"type": "chain", "steps": [{"type": "group", "jobs": [job("t.a")]}, job("t.b")]})
    work(api)
    (step,) = events(api, types="workflow.step_completed")
    assert (step["data"]["step_id"], step["data"]["step_type"]) == ("step-0", "group")


def test_who_gets_them(tenants: tuple[Api, Api]) -> None:
    """A restricted credential gets those of workflows that are in one queue, which it sees."""
    mine, everything = tenants
    own = made(mine, CHAIN)
    both = made(everything, {"type": "group", "jobs": [job("t.a", queue="q1"), job("t.b", queue="q2")]})
    foreign = made(everything, {"type": "group", "jobs": [job("t.a", queue="q2")]})
    assert [event["subject"] for event in events(mine)] == [own["id"]]
    assert {event["subject"] for event in events(everything)} == {own["id"], both["id"], foreign["id"]}
    assert [event["subject"] for event in events(everything, queues="q2")] == [foreign["id"]]


def test_the_audit_names_the_workflow(api: Api) -> None:
    found = made(api, CHAIN)
    assert api("DELETE", f"/workflows/{found['id']}", {"reason": "a mistake"}).status == 200
    entry = AuditEntry.objects.get(action="workflow.cancelled")
    assert (entry.target_type, entry.target_id) == ("workflow", found["id"])
    assert (entry.source, entry.reason) == ("http", "a mistake")
