"""Unique jobs over HTTP (OJS unique jobs, HTTP binding 8)."""

from __future__ import annotations

from typing import Any

import pytest

from django_ojs.clock import FrozenClock
from django_ojs.models import Job
from tests.http.conftest import Caller
from tests.http.support import Answer, Api, fetch, refused_field

pytestmark = pytest.mark.every_database
TYPE = "probe.unique"
ARGS: dict[str, Any] = {"keys": ["type", "args"]}


def push(api: Api, args: list[Any] | None = None, unique: Any = ARGS, **fields: Any) -> Answer:
    return api.post("/jobs", {"type": TYPE, "args": args or [1], "unique": unique, **fields})


def test_an_equal_job_is_409_with_the_id_of_the_first(api: Api) -> None:
    first = push(api)
    assert first.status == 201
    assert "warnings" not in first.body
    again = push(api)
    assert (again.status, again.code) == (409, "duplicate")
    details = again.body["error"]["details"]
    assert details["existing_job_id"] == first.body["id"]
    assert details["existing_job_state"] == "available"
    assert len(details["unique_key"]) == 64


def test_the_policy_may_stand_in_options(api: Api) -> None:
    body = {"type": TYPE, "args": [1], "options": {"unique": ARGS}}
    assert [api.post("/jobs", body).status for _ in range(2)] == [201, 409]


@pytest.mark.parametrize("word", ["ignore", "use_existing"])
def test_an_ignored_one_is_200_with_the_first(api: Api, word: str) -> None:
    policy = {**ARGS, "on_conflict": word}
    first, again = push(api, unique=policy), push(api, unique=policy)
    assert (first.status, again.status) == (201, 200)
    assert again.body["deduplicated"] is True
    assert again.body["job"] == first.body["job"]
    assert again.headers["Location"].endswith(first.body["id"])


def test_a_replacing_one_is_201_and_cancels_the_first(api: Api) -> None:
    policy = {"on_conflict": "replace"}
    first, again = push(api, [1], policy), push(api, [2], policy)
    assert (first.status, again.status) == (201, 201)
    assert api.get(f"/jobs/{first.body['id']}").body["job"]["state"] == "cancelled"


def test_a_kept_schedule_is_shown_as_it_was_written(api: Api, frozen: FrozenClock) -> None:
    policy = {"on_conflict": "replace_except_schedule"}
    first, later = "2026-01-01T00:01:00+00:00", "2026-01-01T09:00:00Z"
    push(api, [1], policy, scheduled_at=first)
    made = push(api, [2], policy, scheduled_at=later).body["job"]
    assert (made["state"], made["scheduled_at"]) == ("scheduled", first)
    frozen.advance(60)
    assert [job["scheduled_at"] for job in fetch(api)] == [first]


def test_both_spellings_of_the_keys_are_returned(api: Api) -> None:
    assert push(api).body["job"]["unique"] == {**ARGS, "key": ["type", "args"]}
    go = push(api, [{"user_id": 1, "x": 1}], {"key": ["user_id"], "period_ms": 500})
    assert go.body["job"]["unique"]["key"] == ["user_id"]
    text = push(api, [2], {"key": "order-7"})
    assert text.body["job"]["unique"] == {"key": "order-7"}


def test_names_of_arguments_choose_from_the_first_object(api: Api) -> None:
    for policy in ({"key": ["user_id"]}, {"keys": ["type", "args"], "args_keys": ["user_id"]}):
        Job.objects.all().delete()
        assert push(api, [{"user_id": 1, "x": 1}], policy).status == 201
        assert push(api, [{"x": 2, "user_id": 1}], policy).status == 409
        assert push(api, [{"user_id": 2, "x": 1}], policy).status == 201


@pytest.mark.parametrize(
    ("policy", "field"),
    [
        ([], "unique"),
        ("type", "unique"),
        ({"keys": ["bogus"]}, "unique.keys"),
        ({"keys": "type"}, "unique.keys"),
        ({"keys": []}, "unique.keys"),
        ({"keys": ["Type"]}, "unique.keys"),
        ({"keys": ["type", "type"]}, "unique.keys"),
        ({"keys": ["meta"]}, "unique.meta_keys"),
        ({"keys": ["meta"], "meta_keys": []}, "unique.meta_keys"),
        ({"keys": ["type"], "args_keys": ["a"]}, "unique.args_keys"),
        ({"keys": ["args"], "args_keys": ["absent"]}, "unique.args_keys"),
        ({"keys": ["args"], "args_keys": [1]}, "unique.args_keys"),
        ({"keys": ["meta"], "meta_keys": ["absent"]}, "unique.meta_keys"),
        ({"key": ["absent"]}, "unique.args_keys"),
        ({"key": ""}, "unique.key"),
        ({"key": 5}, "unique.key"),
        ({"period": "nonsense"}, "unique.period"),
        ({"period": "PT0S"}, "unique.period"),
        ({"period_ms": -1}, "unique.period_ms"),
        ({"states": ["x"]}, "unique.states"),
        ({"states": []}, "unique.states"),
        ({"states": ["active", "active"]}, "unique.states"),
        ({"on_conflict": "what"}, "unique.on_conflict"),
        ({"on_conflict": []}, "unique.on_conflict"),
        ({"debounce_ms": 5}, "unique.debounce_ms"),
    ],
)
def test_what_could_not_be_meant_is_refused(api: Api, policy: Any, field: str) -> None:
    refused_field(push(api, [{"a": 1}], policy), field)
    body = {"type": TYPE, "args": [{"a": 1}], "options": {"unique": policy}}
    refused_field(api.post("/jobs", body), field)
    assert not Job.objects.exists()


def test_encoded_arguments_need_a_key_of_the_client(api: Api) -> None:
    meta = {"ojs_encoded": True}
    refused_field(push(api, ["x"], meta=meta), "unique.key")
    assert push(api, ["x"], meta={**meta, "unique_key": "k"}).status == 201
    assert push(api, ["y"], meta={**meta, "unique_key": "k"}).status == 409
    assert push(api, ["y"], {"key": "other"}, meta=meta).status == 201


def test_null_is_not_given(api: Api) -> None:
    assert [push(api, unique=None).status for _ in range(2)] == [201, 201]
    nulls = {"keys": ["type", "args"], "args_keys": None, "period": None, "states": None}
    assert [push(api, [2], nulls).status for _ in range(2)] == [201, 409]


def test_a_batch_is_refused_whole_with_the_index(api: Api) -> None:
    job = {"type": TYPE, "args": [1], "unique": ARGS}
    answer = api.post("/jobs/batch", {"jobs": [{**job, "unique": None}, job, job]})
    assert (answer.status, answer.body["error"]["details"]["index"]) == (409, 2)
    assert not Job.objects.exists()


def test_an_ignored_one_of_a_batch_is_the_existing_job(api: Api) -> None:
    job = {"type": TYPE, "args": [1], "unique": {**ARGS, "on_conflict": "ignore"}}
    answer = api.post("/jobs/batch", {"jobs": [job, {**job, "args": [2]}, job]})
    assert (answer.status, answer.body["count"]) == (201, 3)
    ids = [one["id"] for one in answer.body["jobs"]]
    assert ids[0] == ids[2] != ids[1]


def test_a_key_is_free_when_the_job_has_ended(api: Api) -> None:
    push(api)
    (job,) = fetch(api)
    api.post("/workers/ack", {"job_id": job["id"], "lease_id": job["lease"]["id"]})
    assert push(api).status == 201


def test_a_retry_that_would_collide_says_with_what(api: Api) -> None:
    first = push(api, retry={"max_attempts": 1}).body["id"]
    (job,) = fetch(api)
    api.post("/workers/nack", {"job_id": job["id"], "lease_id": job["lease"]["id"], "error": "no"})
    second = push(api).body["id"]
    answer = api.post(f"/jobs/{first}/retry")
    assert (answer.status, answer.code) == (409, "duplicate")
    assert answer.body["error"]["details"]["existing_job_id"] == second
    refused_field(api.post(f"/jobs/{first}/retry", {"allow_duplicate": "yes"}), "allow_duplicate")
    assert api.post(f"/jobs/{first}/retry", {"allow_duplicate": True}).status == 200


def test_a_running_member_of_a_workflow_is_not_replaced(api: Api) -> None:
    policy = {"on_conflict": "replace"}
    step = {"type": TYPE, "args": [], "unique": policy}
    assert api.post("/workflows", {"type": "chain", "steps": [step]}).status == 201
    (job,) = fetch(api)
    answer = push(api, unique=policy)
    assert (answer.status, answer.code) == (409, "duplicate")
    assert answer.body["error"]["details"]["existing_job_id"] == job["id"]


def test_a_foreign_queue_is_not_revealed(tenants: tuple[Api, Api]) -> None:
    """A key without the queue is shared by all queues, also by those that a token does not see."""
    mine, everything = tenants
    hidden = push(everything, ["secret"], {"keys": ["type"]}, queue="q2", meta={"of": "them"}).body
    refused = push(mine, [2], {"keys": ["type"]}, queue="q1")
    assert (refused.status, refused.code) == (409, "duplicate")
    assert refused.body["error"]["details"].keys() == {"unique_key"}
    assert hidden["id"] not in refused.raw.decode()
    ignored = push(mine, [2], {"keys": ["type"], "on_conflict": "ignore"}, queue="q1")
    assert (ignored.status, ignored.body["deduplicated"]) == (200, True)
    assert ignored.body["id"] == hidden["id"]
    text = ignored.raw.decode()
    assert "secret" not in text
    assert "them" not in text
    assert "q2" not in text


def test_who_may_only_produce_learns_that_a_job_is_there(caller: Caller) -> None:
    policy = {**ARGS, "on_conflict": "ignore"}
    first = push(caller(), [1], policy, meta={"of": "them"}).body
    again = push(caller("produce"), [1], policy)
    assert (again.status, again.body["id"]) == (200, first["id"])
    assert again.body["job"]["args"] == []
    assert again.body["job"]["meta"] == {}


def test_a_foreign_job_is_not_replaced(tenants: tuple[Api, Api]) -> None:
    mine, everything = tenants
    policy = {"keys": ["type"], "on_conflict": "replace"}
    theirs = push(everything, [1], policy, queue="q2").body["id"]
    refused = push(mine, [2], policy, queue="q1")
    assert (refused.status, refused.code) == (409, "duplicate")
    assert theirs not in refused.raw.decode()
    assert everything.get(f"/jobs/{theirs}").body["job"]["state"] == "available"


def test_a_workflow_does_no_more_to_foreign_jobs(tenants: tuple[Api, Api]) -> None:
    mine, everything = tenants
    theirs = push(everything, [1], {"keys": ["type"]}, queue="q2").body["id"]
    for word in ("reject", "replace"):
        step = {"type": TYPE, "args": [], "options": {"queue": "q1"}}
        step["unique"] = {"keys": ["type"], "on_conflict": word}
        refused = mine.post("/workflows", {"type": "chain", "steps": [step]})
        assert (refused.status, refused.code) == (409, "duplicate")
        assert theirs not in refused.raw.decode()
    assert everything.get(f"/jobs/{theirs}").body["job"]["state"] == "available"
