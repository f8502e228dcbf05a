"""What is due of a workflow has happened when it is shown, also where nothing reaps or promotes."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_ojs.clock import FrozenClock
from tests.http.guarding import error
from tests.http.support import Api, fetch
from tests.http.test_workflows import job, made, state

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("one_window")]

ONCE = {"max_attempts": 1}


def chain(**options: Any) -> dict[str, Any]:
    first = job("t.a", options={"retry": ONCE, "grace_period": "1s", **options})
    return {"type": "chain", "steps": [first, job("t.b")]}


@pytest.mark.parametrize(
    "options",
    [{"timeout": 5}, {"total_timeout": 5}, {"visibility_timeout": 5}, {"heartbeat_timeout": 5}],
)
def test_an_overdue_step_has_ended(api: Api, frozen: FrozenClock, options: Any) -> None:
    found = made(api, chain(**options))
    (claimed,) = fetch(api)
    if "heartbeat_timeout" in options:
        beat = {"worker_id": claimed["worker_id"], "active_jobs": [claimed["id"]]}
        assert api.post("/workers/heartbeat", beat).status == 200
    frozen.advance(4)
    assert [step["state"] for step in state(api, found)["steps"]] == ["active", "pending"]
    frozen.advance(60)
    after = state(api, found)
    assert (after["state"], after["failed_step_index"]) == ("failed", 0)
    assert [step["state"] for step in after["steps"]] == ["discarded", "cancelled"]


def test_a_step_that_expired_has_not_started(api: Api, frozen: FrozenClock) -> None:
    found = made(api, chain(enqueue_ttl="5s"))
    frozen.advance(6)
    assert api.get(f"/workflows/{found['id']}/progress").body["state"] == "failed"


def test_a_step_whose_time_has_come_is_available(api: Api, frozen: FrozenClock) -> None:
    found = made(api, chain(scheduled_at="PT5S"))
    assert state(api, found)["steps"][0]["state"] == "scheduled"
    frozen.advance(6)
    assert state(api, found)["steps"][0]["state"] == "available"


def test_a_workflow_over_its_timeout_has_failed(api: Api, frozen: FrozenClock) -> None:
    found = made(api, {**chain(), "workflow_timeout": 5})
    fetch(api)
    frozen.advance(6)
    after = state(api, found)
    assert (after["state"], after["error"]["type"]) == ("failed", "workflow_timeout")
    assert [step["state"] for step in after["steps"]] == ["cancelled", "cancelled"]


def test_it_is_too_late_to_cancel_it(api: Api, frozen: FrozenClock) -> None:
    found = made(api, {**chain(), "workflow_timeout": 5})
    frozen.advance(6)
    error(api("DELETE", f"/workflows/{found['id']}"), 409, "conflict")


def test_a_step_of_a_nested_workflow(api: Api, frozen: FrozenClock) -> None:
    inner = {"type": "group", "jobs": [job("t.a", options={"enqueue_ttl": "5s"})]}
    found = made(api, {"type": "chain", "steps": [inner, job("t.b")]})
    frozen.advance(6)
    assert state(api, found)["state"] == "failed"


def test_the_next_step_is_there(api: Api, frozen: FrozenClock) -> None:
    steps = [job("t.a", options={"enqueue_ttl": "5s"}), {**job("t.b"), "id": "b"}]
    steps[1] |= {"depends_on": ["step-0"], "when": "ended"}
    found = made(api, {"name": "a graph", "steps": steps})
    frozen.advance(6)
    assert [step["state"] for step in state(api, found)["steps"]] == ["discarded", "available"]


def test_what_is_not_due_is_not_touched(api: Api, frozen: FrozenClock) -> None:
    found = made(api, {"type": "group", "jobs": [job("t.a") for _ in range(5)]})
    fetch(api, count=5)
    with CaptureQueriesContext(connection) as seen:
        state(api, found)
    assert not [query["sql"] for query in seen if query["sql"].startswith("UPDATE")]
