"""Workflows over HTTP: every form that clients send, what they get back, and who may see it."""

from __future__ import annotations

import json
import re
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_ojs import clock, step
from django_ojs.clock import FrozenClock
from django_ojs.domain.leases import Lease
from django_ojs.domain.workflow import Call
from django_ojs.http import listing
from django_ojs.services.claim import claim, sources
from django_ojs.services.workflows import operate, results
from tests.http.conftest import Caller
from tests.http.guarding import error
from tests.http.support import Api, fetch
from tests.support import ROOT

pytestmark = pytest.mark.usefixtures("one_window")


def job(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "args": [], **more}


def made(api: Api, body: dict[str, Any]) -> dict[str, Any]:
    """The workflow that the request makes."""
    answer = api.post("/workflows", body)
    assert answer.status == 201, answer.body
    found: dict[str, Any] = answer.body["workflow"]
    assert answer.headers["Location"] == f"/ojs/v1/workflows/{found['id']}"
    return found


def state(api: Api, workflow: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = api.get(f"/workflows/{workflow['id']}").body["workflow"]
    return found


def work(api: Api, result: Any = None, queue: str = "default") -> dict[str, Any]:
    """Fetch one job and complete it."""
    (found,) = fetch(api, queues=[queue])
    done = {"job_id": found["id"], "lease_id": found["lease"]["id"], "result": result}
    assert api.post("/workers/ack", done).status == 200
    assert isinstance(found, dict)
    return found


PYTHON_CALLBACK = {
    **job("t.done"),
    "id": "on_complete",
    "depends_on": ["step-0", "step-1"],
    "options": {"callback_type": "on_complete"},
}
GO_CALLBACK = {**job("t.done"), "id": "on-complete", "depends_on": ["job-0", "job-1"]}
FORMS: dict[str, tuple[dict[str, Any], str, list[list[int]]]] = {
    "chain of the suites": ({"type": "chain", "steps": [job("t.a"), job("t.b")]}, "chain", [[], [0]]),
    "group of the suites": ({"type": "group", "jobs": [job("t.a"), job("t.b")]}, "group", [[], []]),
    "chain of Go": (
        {
            "steps": [
                {**job("t.a"), "id": "step-0"},
                {**job("t.b"), "id": "step-1", "depends_on": ["step-0"]},
            ]
        },
        "chain",
        [[], [0]],
    ),
    "one step": ({"steps": [{**job("t.a"), "id": "job-0", "depends_on": None}]}, "chain", [[]]),
    "group of Go": (
        {"steps": [{**job("t.a"), "id": "job-0"}, {**job("t.b"), "id": "job-1"}]},
        "group",
        [[], []],
    ),
    "batch of Go": (
        {"steps": [{**job("t.a"), "id": "job-0"}, {**job("t.b"), "id": "job-1"}, GO_CALLBACK]},
        "batch",
        [[], []],
    ),
    "batch of Python": (
        {"steps": [{**job("t.a"), "id": "step-0"}, {**job("t.b"), "id": "step-1"}, PYTHON_CALLBACK]},
        "batch",
        [[], []],
    ),
    "DAG": (
        {
            "steps": [
                {**job("t.c"), "id": "c", "depends_on": ["a", "b"]},
                {**job("t.a"), "id": "a"},
                {**job("t.b"), "id": "b"},
            ]
        },
        "dag",
        [[1, 2], [], []],
    ),
    "nested, by keys": (
        {"type": "chain", "steps": [job("chain"), {"type": "group", "jobs": [job("t.x"), job("t.y")]}]},
        "chain",
        [[], [0]],
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_understood(api: Api, form: str) -> None:
    body, kind, depends = FORMS[form]
    found = made(api, {"name": "a name", **body})
    keys = [step["id"] for step in found["steps"]]
    assert (found["type"], found["name"], found["state"]) == (kind, "a name", "running")
    assert [step["depends_on"] for step in found["steps"]] == [
        [keys[index] for index in needed] for needed in depends
    ]
    assert all(step["type"] for step in found["steps"])
    assert sorted(found["callbacks"]) == (["on_complete"] if kind == "batch" else [])
    assert found["steps_total"] == found["jobs_total"] == len(depends)


def test_a_chain_from_end_to_end(api: Api) -> None:
    found = made(api, {"type": "chain", "steps": [job("t.a"), job("t.b"), job("t.c")]})
    assert [step["state"] for step in found["steps"]] == ["available", "pending", "pending"]
    assert [bool(step["job_id"]) for step in found["steps"]] == [True, False, False]
    first = work(api, {"n": 1})
    assert (first["workflow_id"], first["workflow_step_id"]) == (found["id"], "step-0")
    assert first["parent_results"] == []
    second = work(api, 2)
    assert second["parent_results"] == [{"n": 1}]
    (third,) = fetch(api)
    assert third["parent_results"] == [{"n": 1}, 2]
    assert api.get(f"/jobs/{third['id']}").body["job"]["parent_results"] == [{"n": 1}, 2]
    after = state(api, found)
    assert [step["state"] for step in after["steps"]] == ["completed", "completed", "active"]
    assert after["steps"][0]["result"] == {"n": 1}
    assert "result" not in after["steps"][1], "one SDK reads objects only"
    assert api.get(f"/workflows/{found['id']}/progress").body["completed"] == 2
    results = api.get(f"/workflows/{found['id']}/results?limit=2").body
    assert results["results"] == [{"index": 0, "result": {"n": 1}}, {"index": 1, "result": 2}]
    rest = api.get(f"/workflows/{found['id']}/results?after={results['next_after']}").body
    assert (rest["results"], rest["next_after"]) == ([{"index": 2, "result": None}], None)


def test_jobs_without_a_workflow_have_no_parents(api: Api) -> None:
    api.post("/jobs", job("t.a"))
    (found,) = fetch(api)
    assert {"parent_results", "workflow_id", "workflow_step_id"}.isdisjoint(found)


def test_a_failure_says_which_step_and_why(api: Api) -> None:
    once = {"retry": {"maxAttempts": 1}}
    found = made(api, {"type": "chain", "steps": [job("t.a", options=once), job("t.b")]})
    (claimed,) = fetch(api)
    failure = {"code": "no_luck", "message": "it broke"}
    api.post(
        "/workers/nack", {"job_id": claimed["id"], "lease_id": claimed["lease"]["id"], "error": failure}
    )
    after = state(api, found)
    assert (after["state"], after["failed_step_index"]) == ("failed", 0)
    assert after["failed_job_ids"] == [claimed["id"]]
    assert after["errors"][0]["message"] == "it broke"
    assert [step["state"] for step in after["steps"]] == ["discarded", "cancelled"]
    again = api.post(f"/workflows/{found['id']}/resume")
    assert (again.status, again.body["state"], again.body["runs"]) == (200, "running", 2)
    work(api), work(api)
    assert state(api, found)["state"] == "completed"


@pytest.mark.parametrize("method", ["DELETE", "POST"])
def test_cancel(api: Api, method: str) -> None:
    found = made(api, {"type": "chain", "steps": [job("t.a"), job("t.b"), job("t.c")]})
    work(api)
    path = f"/workflows/{found['id']}" + ("/cancel" if method == "POST" else "")
    answer = api(method, path)
    assert (answer.status, answer.body["workflow"]["state"]) == (200, "cancelled")
    assert (answer.body["steps_cancelled"], answer.body["steps_already_completed"]) == (2, 1)
    assert "cancelled_at" in answer.body
    refused = error(api(method, path), 409, "conflict")
    assert refused["details"]["current_state"] == "cancelled"
    assert fetch(api) == []


def test_options_of_the_workflow_are_defaults_of_its_steps(api: Api) -> None:
    steps = [job("t.a"), job("t.b", options={"queue": "other"})]
    made(api, {"type": "group", "jobs": steps, "options": {"queue": "mine", "priority": 5}})
    (mine,), (other,) = fetch(api, queues=["mine"]), fetch(api, queues=["other"])
    assert (mine["type"], mine["priority"]) == ("t.a", 5)
    assert (other["type"], other["priority"]) == ("t.b", 5)


def test_a_job_s_own_option_wins_whatever_its_name_and_place(api: Api) -> None:
    steps = [
        job("t.a", queue="own", timeout=5),
        job("t.b", options={"timeout_ms": 7000, "queue": None, "meta": {"own": 2}}),
        {"type": "chain", "steps": [job("t.c", retry_policy={"max_attempts": 1})], "options": OPTIONS},
    ]
    options = {
        "queue": "mine",
        "timeout_ms": 60_000,
        "retry": {"max_attempts": 9},
        "meta": {"own": 1, "all": 1},
    }
    made(api, {"type": "group", "jobs": steps, "options": options})
    (first,), (second,) = fetch(api, "own"), fetch(api, "mine")
    (third,) = fetch(api, "inner")
    assert [one["type"] for one in (first, second, third)] == ["t.a", "t.b", "t.c"]
    assert [one["timeout_ms"] for one in (first, second, third)] == [5000, 7000, 60_000]
    assert [one["max_attempts"] for one in (first, second, third)] == [9, 9, 1]
    assert [one["meta"] for one in (first, second, third)] == [
        {"own": 1, "all": 1},
        {"own": 2, "all": 1},
        {"own": 3, "all": 1},
    ]


OPTIONS = {"queue": "inner", "meta": {"own": 3}}
BAD: dict[str, tuple[Any, str]] = {
    "no steps": ({"type": "chain", "steps": []}, "steps"),
    "no jobs": ({"type": "group"}, "steps"),
    "unknown type": ({"type": "ring", "steps": [job("t.a")]}, "type"),
    "type of a number": ({"type": 5, "steps": [job("t.a")]}, "type"),
    "steps of text": ({"type": "chain", "steps": ["a"]}, "steps"),
    "bad step": ({"type": "chain", "steps": [job("t.a"), job("T A")]}, "steps[1].type"),
    "no args": ({"type": "chain", "steps": [job("t.a"), {"type": "t.b"}]}, "steps[1].args"),
    "callback without args": (
        {"type": "batch", "jobs": [job("t.a")], "callbacks": {"on_complete": {"type": "t.b"}}},
        "callbacks.on_complete.args",
    ),
    "bad option": (
        {"type": "chain", "steps": [job("t.a", options={"priority": "x"})]},
        "steps[0].options.priority",
    ),
    "unknown dependency": ({"steps": [{**job("t.a"), "depends_on": ["x"]}]}, "steps[0].depends_on"),
    "dependency on itself": (
        {"steps": [{**job("t.a"), "id": "a", "depends_on": ["a"]}]},
        "steps[0].depends_on",
    ),
    "circle": (
        {
            "steps": [
                {**job("t.a"), "id": "a", "depends_on": ["b"]},
                {**job("t.b"), "id": "b", "depends_on": ["a"]},
            ]
        },
        "steps",
    ),
    "same id twice": ({"steps": [{**job("t.a"), "id": "a"}, {**job("t.b"), "id": "a"}]}, "steps[1].id"),
    "the id of one without": ({"steps": [job("t.a"), {**job("t.b"), "id": "step-0"}]}, "steps[1].id"),
    "batch without callbacks": ({"type": "batch", "jobs": [job("t.a")]}, "callbacks"),
    "unknown callback": (
        {"type": "batch", "jobs": [job("t.a")], "callbacks": {"on_end": job("t.b")}},
        "callbacks.on_end",
    ),
    "bad timeout": (
        {"type": "chain", "steps": [job("t.a")], "workflow_timeout": -1},
        "workflow_timeout",
    ),
    "too deep": (
        {
            "type": "chain",
            "steps": [{"steps": [{"steps": [{"steps": [job("t.a")]}]}]}],
        },
        "steps[0].steps[0].steps[0]",
    ),
    "bad when": ({"type": "chain", "steps": [job("t.a", when="later")]}, "steps[0].when"),
    "unique step": (
        {"type": "chain", "steps": [job("t.a"), job("t.a", unique={"keys": ["type"]})]},
        "steps[1].unique",
    ),
    "unstored meta": ({"type": "chain", "steps": [job("t.a")], "meta": {"_ojs_x": 1}}, "meta.<key>"),
    "unprintable name": ({"type": "chain", "steps": [job("t.a")], "name": "a\u0000"}, "name"),
    "option of nothing": ({"type": "chain", "steps": [job("t.a")], "options": 5}, "options"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_definitions_name_the_place(api: Api, what: str) -> None:
    body, place = BAD[what]
    refused = error(api.post("/workflows", body), 400, "invalid_request")
    assert refused["details"]["field"] == place
    assert api.get("/workflows").body["workflows"] == []
    assert api.get("/jobs").body["jobs"] == []


def test_a_repeated_request_gets_the_same_workflow(api: Api) -> None:
    body = {"id": str(clock.new_id()), "type": "chain", "steps": [job("t.a")]}
    first = made(api, body)
    again = api.post("/workflows", body)
    assert (again.status, again.body["id"], again.body["deduplicated"]) == (200, first["id"], True)
    other = api.post("/workflows", {**body, "steps": [job("t.b")]})
    assert (other.status, other.body["error"]["code"]) == (409, "duplicate")


def test_a_time_from_now_counts_from_the_start_of_the_step(api: Api) -> None:
    later = job("t.b", options={"delay_until": "PT1H"})
    found = made(api, {"type": "chain", "steps": [job("t.a"), later]})
    work(api)
    step = state(api, found)["steps"][1]
    assert step["state"] == "scheduled"


def test_lists(api: Api) -> None:
    names = ["first", "second", "third"]
    for name in names:
        made(api, {"type": "group", "name": name, "jobs": [job("t.a")]})
    made(api, {"type": "chain", "name": "first", "steps": [job("t.a")]})
    page = api.get("/workflows?limit=2").body
    assert [one["name"] for one in page["workflows"]] == ["first", "third"]
    rest = api.get(f"/workflows?limit=2&cursor={page['pagination']['next_cursor']}").body
    assert [one["name"] for one in rest["workflows"]] == ["second", "first"]
    assert len(api.get("/workflows?name=first").body["workflows"]) == 2
    assert len(api.get("/workflows?type=chain").body["workflows"]) == 1
    assert api.get("/workflows?state=completed,failed").body["workflows"] == []
    error(api.get("/workflows?state=odd"), 400, "invalid_request")


def test_a_token_for_some_queues(tenants: tuple[Api, Api]) -> None:
    mine, everything = tenants
    refused = mine.post("/workflows", {"type": "group", "jobs": [job("t.a")]})
    assert (refused.status, refused.code) == (403, "permission_denied")
    own = made(mine, {"type": "chain", "steps": [job("t.a", queue="q1"), job("t.b", queue="q1")]})
    foreign = made(
        everything, {"type": "chain", "steps": [job("t.a", queue="q1"), job("t.b", queue="q2")]}
    )
    assert state(mine, own)["id"] == own["id"]
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/cancel"), ("GET", "/results")):
        answer = mine(method, f"/workflows/{foreign['id']}{path}")
        assert (answer.status, answer.code) == (404, "not_found"), path
    assert [one["id"] for one in mine.get("/workflows").body["workflows"]] == [own["id"]]
    assert len(everything.get("/workflows").body["workflows"]) == 2


def test_a_restricted_list_has_what_others_made_too(
    tenants: tuple[Api, Api], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose queues it all sees; page by page, however many others there are in between."""
    monkeypatch.setattr(listing, "WINDOW", 3)
    mine, everything = tenants
    wanted = []
    for number in range(8):
        queue = "q1" if number % 4 == 0 else "q2"
        found = made(
            everything, {"type": "group", "jobs": [job("t.a", queue="q1"), job("t.b", queue=queue)]}
        )
        wanted += [found["id"]] if queue == "q1" else []
    ids, path = [], "/workflows?limit=1"
    for _ in range(12):
        page = mine.get(path).body
        ids += [one["id"] for one in page["workflows"]]
        if not page["pagination"]["has_more"]:
            break
        path = f"/workflows?limit=1&cursor={page['pagination']['next_cursor']}"
    assert ids == wanted[::-1]
    assert not page["pagination"]["has_more"]


def test_the_queues_of_callbacks_and_nested_workflows_count(tenants: tuple[Api, Api]) -> None:
    mine, everything = tenants
    own = job("t.a", queue="q1")
    inner = {"type": "chain", "steps": [own, job("t.b", queue="q2")]}
    callbacks = {"on_complete": job("t.c", queue="q2")}
    for body in (
        {"type": "group", "jobs": [own, inner]},
        {"type": "batch", "jobs": [own], "callbacks": callbacks},
    ):
        refused = mine.post("/workflows", body)
        assert (refused.status, refused.code) == (403, "permission_denied")
        assert mine.get(f"/workflows/{made(everything, body)['id']}").status == 404
    nested = made(everything, {"type": "group", "jobs": [own, {"type": "group", "jobs": [own]}]})
    inside = nested["steps"][1]["workflow_id"]
    assert mine.get(f"/workflows/{inside}").status == 200


def test_what_a_member_adds_counts(tenants: tuple[Api, Api]) -> None:
    mine, everything = tenants
    own = job("t.a", queue="q1")
    found = made(mine, {"type": "group", "jobs": [{"type": "group", "jobs": [own]}]})
    (claimed,) = fetch(mine, "q1")
    lease = Lease(UUID(claimed["id"]), UUID(claimed["lease"]["id"]))
    what = step("t.b", queue="q2").what
    assert isinstance(what, Call)
    operate.add(lease, what, using="default")
    assert mine.get(f"/workflows/{found['id']}").status == 404
    assert state(everything, found)["id"] == found["id"]


def test_a_repeated_request_may_have_times_from_now(api: Api, frozen: FrozenClock) -> None:
    steps = [job("t.a", expires_at="PT1H"), job("t.b", scheduled_at="+PT5M")]
    body = {"id": str(clock.new_id()), "type": "chain", "steps": steps}
    made(api, body)
    frozen.advance(60)
    assert api.post("/workflows", body).status == 200


def test_scopes(caller: Caller) -> None:
    body = {"type": "group", "jobs": [job("t.a")]}
    found = made(caller("produce"), body)
    error(caller("inspect").post("/workflows", body), 403, "permission_denied")
    error(caller("inspect").post(f"/workflows/{found['id']}/cancel"), 403, "permission_denied")
    assert caller("administer").post(f"/workflows/{found['id']}/cancel").status == 200


def test_what_is_missing(api: Api) -> None:
    for name in (str(clock.new_id()), "x", "00000000"):
        refused = error(api.get(f"/workflows/{name}"), 404, "not_found")
        assert refused["details"]["resource_type"] == "workflow"


def test_a_deadline_over_all(api: Api) -> None:
    found = made(api, {"type": "chain", "steps": [job("t.a")], "workflow_timeout": "PT2H"})
    assert found["workflow_timeout_ms"] == 7_200_000
    assert "deadline_at" in found
    assert "workflows" in api.get("//ojs/manifest").body["capabilities"]


def test_progress(api: Api) -> None:
    found = made(api, {"type": "chain", "steps": [job("t.a"), job("t.b"), job("t.c")]})
    work(api)
    (claimed,) = fetch(api)
    told = {"progress": 0.5, "lease_id": claimed["lease"]["id"]}
    assert api("PUT", f"/jobs/{claimed['id']}/progress", told).status == 200
    answer = api.get(f"/workflows/{found['id']}/progress").body
    assert (answer["type"], answer["progress"], answer["completed"]) == ("chain", 0.5, 1)
    assert [step["progress"] for step in answer["steps"]] == [1.0, 0.5, None]
    assert [step["state"] for step in answer["steps"]] == ["completed", "active", "pending"]
    callbacks = {"on_complete": job("t.c")}
    members = [job("t.a", queue="b"), {"type": "chain", "steps": [job("t.b", queue="b")]}]
    batch = made(api, {"type": "batch", "jobs": members, "callbacks": callbacks})
    work(api, queue="b")
    answer = api.get(f"/workflows/{batch['id']}/progress").body
    assert (answer["progress"], [step["progress"] for step in answer["steps"]]) == (0.5, [1.0, 0.0])


def test_results_beyond_what_is_given_inline(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker reads on, where it sees the queue of its job."""
    monkeypatch.setattr(results, "MOST_BYTES", 1000)
    api, worker = caller(name="all"), caller("work", queues=["done"], name="worker")
    stranger = caller("work", queues=["other"], name="stranger")
    callbacks = {"on_complete": job("t.done", queue="done")}
    members = [job("t.a"), {"type": "group", "jobs": [job("t.b"), job("t.c")]}, job("t.d")]
    found = made(api, {"type": "batch", "jobs": members, "callbacks": callbacks})
    for _ in range(4):
        (one,) = fetch(api)
        told = {"job_id": one["id"], "lease_id": one["lease"]["id"], "result": one["type"][-1] * 400}
        assert api.post("/workers/ack", told).status == 200
    (claimed,) = fetch(worker, "done")
    assert claimed["parent_results_truncated"] is True
    given = claimed["parent_results"]
    assert given == ["a" * 400]
    place = f"/workflows/{found['id']}/results"
    rest = worker.get(f"{place}?job_id={claimed['id']}&after={len(given) - 1}").body
    assert rest["results"] == [{"index": 1, "result": {"0": "b" * 400, "1": "c" * 400}}]
    last = worker.get(f"{place}?job_id={claimed['id']}&after={rest['next_after']}").body
    assert (last["results"], last["next_after"]) == ([{"index": 2, "result": "d" * 400}], None)
    assert [one["index"] for one in api.get(place).body["results"]] == [0]
    for foreign, path in ((worker, place), (stranger, f"{place}?job_id={claimed['id']}")):
        assert foreign.get(path).status == 404
    assert api.get(f"/workflows/{clock.new_id()}/results?job_id={claimed['id']}").status == 404
    other = caller("work", name="other")
    assert error(other.get(place), 403, "permission_denied")


@pytest.mark.slow
def test_results_are_read_together(api: Api) -> None:
    """By a number of statements that does not grow with the jobs of a fetch, and none without need."""
    chain = {"type": "chain", "steps": [job("t.a"), job("t.b", queue="next")]}
    for _ in range(6):
        made(api, chain)
        work(api, {"n": 1})
    api.post("/jobs", job("t.a"))
    (plain,) = claim(sources(["default"]), limit=1, worker_id="w", beats=True)
    with CaptureQueriesContext(connection) as none:
        assert results.of_jobs([plain], using="default") == {}
    assert len(none) == 0
    jobs = claim(sources(["next"]), limit=6, worker_id="w", beats=True)
    with CaptureQueriesContext(connection) as one:
        results.of_jobs(jobs[:1], using="default")
    with CaptureQueriesContext(connection) as six:
        found = results.of_jobs(jobs, using="default")
    assert [found[one.id].values for one in jobs] == [[{"n": 1}]] * 6
    assert len(one) == len(six) == 3


def test_answers_have_so_many_bytes_of_results_only(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "MOST_BYTES", 1000)
    found = made(api, {"type": "group", "jobs": [job("t.a"), job("t.b"), job("t.c")]})
    for _ in range(3):
        work(api, {"x": "a" * 400})
    shown = [step.get("result") for step in state(api, found)["steps"]]
    assert shown == [{"x": "a" * 400}, {"x": "a" * 400}, None]


def test_what_is_not_known_is_named(api: Api) -> None:
    steps = [job("t.a", timout=5), job("t.b", options={"workflow_timeout": 5})]
    answer = api.post("/workflows", {"type": "chain", "steps": steps, "timeout": 5})
    assert answer.status == 201
    assert [one["field"] for one in answer.body["warnings"]] == [
        "steps[0].timout",
        "steps[1].workflow_timeout",
        "timeout",
    ]


def test_a_repeated_request_reveals_nothing_new(caller: Caller, frozen: FrozenClock) -> None:
    api, producer = caller(name="all"), caller("produce", name="producer")
    body = {"id": str(clock.new_id()), "type": "group", "jobs": [job("t.a")]}
    made(producer, body)
    work(api)
    frozen.advance(1)
    again = producer.post("/workflows", body)
    assert (again.status, again.body["state"], again.body["jobs_completed"]) == (200, "running", 0)
    assert api.post("/workflows", body).body["state"] == "completed"


def test_an_id_that_is_taken_by_a_foreign_workflow(tenants: tuple[Api, Api]) -> None:
    mine, everything = tenants
    taken = made(everything, {"id": str(clock.new_id()), "type": "group", "jobs": [job("t.a")]})
    own = {"id": taken["id"], "type": "group", "jobs": [job("t.a", queue="q1")]}
    refused = error(mine.post("/workflows", own), 409, "duplicate")
    assert refused["details"] == {"existing_workflow_id": taken["id"]}


def test_a_callback_that_does_not_run(api: Api) -> None:
    callbacks = {"on_success": job("t.yes"), "on_failure": job("t.no")}
    found = made(api, {"type": "batch", "jobs": [job("t.a")], "callbacks": callbacks})
    assert {one["state"] for one in found["callbacks"].values()} == {"pending"}
    work(api), work(api)
    after = state(api, found)
    states = {name: one["state"] for name, one in after["callbacks"].items()}
    assert after["state"] == "completed"
    assert states == {"on_success": "completed", "on_failure": "cancelled"}


@pytest.mark.slow
def test_steps_of_every_wrong_shape(api: Api) -> None:
    """Every field of a step and of a workflow, with values of each type: refused or done."""
    values: tuple[Any, ...] = (
        True,
        5,
        -1,
        10**30,
        "x",
        "\ud800",
        "\x00",
        [None],
        ["x"],
        {"a": {}},
        {},
        [],
    )
    of_steps = ["id", "type", "args", "depends_on", "when", "options", "queue", "retry", "timeout"]
    of_steps += ["meta", "metadata", "scheduled_at", "unique", "pending", "steps", "jobs", "callbacks"]
    of_all = [*of_steps, "name", "workflow_timeout", "workflow_timeout_ms"]
    inner = ["callback_type", "queue", "retry", "meta", "metadata", "when", "delay_until", "timeout_ms"]
    statuses = set()
    for value in values:
        bodies = [{"type": "chain", "steps": [job("t.a")], name: value} for name in of_all]
        bodies += [
            {"steps": [{**job("t.a"), "depends_on": []}], "options": {name: value}} for name in inner
        ]
        for name in of_steps:
            wrong = {**job("t.a"), name: value}
            bodies.append({"type": "dag", "steps": [job("t.a"), wrong]})
            bodies.append({"type": "batch", "jobs": [job("t.a")], "callbacks": {"on_success": wrong}})
            bodies.append(
                {"type": "group", "jobs": [{"type": "chain", "steps": [job("t.a")], name: value}]}
            )
        bodies += [{"type": "group", "jobs": [job("t.a", options={name: value})]} for name in inner]
        for body in bodies:
            answer = api.post("/workflows", body)
            statuses.add(answer.status)
            assert answer.status in (200, 201, 400, 413, 422), (body, answer.raw[:300])
            if answer.status == 400 and answer.code == "invalid_request":
                found = answer.body["error"]["details"]
                assert found["field"], body
    assert statuses >= {201, 400}


def test_the_examples_of_the_documentation(api: Api) -> None:
    page = (ROOT / "docs" / "reference" / "http.md").read_text(encoding="utf-8")
    bodies = re.findall(r"```http\nPOST /ojs/v1/workflows\n(.*?)```", page, re.DOTALL)
    kinds = [made(api, json.loads(body))["type"] for body in bodies]
    assert kinds == ["batch", "dag"]
