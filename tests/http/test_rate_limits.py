"""Rate limits over HTTP: what clients send, what a fetch gets, what operators see and change."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

import pytest

from django_ojs.clock import FrozenClock
from tests.http.conftest import Caller
from tests.http.guarding import error
from tests.http.support import Api, fetch

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("one_window")]

ONE = {"key": "a", "concurrency": 1}


def push(api: Api, limit: Any, **more: Any) -> dict[str, Any]:
    """A job with this rate limit, which must be accepted."""
    answer = api.post("/jobs", {"type": "test.job", "args": [], "rate_limit": limit, **more})
    assert answer.status == 201, answer.body
    assert "OJS-Warnings" not in answer.headers
    job: dict[str, Any] = answer.body["job"]
    assert job["rate_limit"] == limit
    return job


def taken(api: Api, count: int = 9, queue: str = "default") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = fetch(api, queues=[queue], count=count)
    return found


def ack(api: Api, job: dict[str, Any]) -> None:
    body = {"job_id": job["id"], "lease_id": job["lease"]["id"]}
    assert api.post("/workers/ack", body).status == 200


def test_a_fetch_gets_no_more_than_the_limit(api: Api) -> None:
    first, second = push(api, ONE), push(api, ONE)
    (job,) = taken(api)
    assert job["id"] == first["id"]
    assert api.get(f"/jobs/{second['id']}").body["job"]["state"] == "available"
    ack(api, job)
    assert [job["id"] for job in taken(api)] == [second["id"]]


def test_limited_jobs_are_passed_over(api: Api) -> None:
    push(api, ONE, priority=10)
    held = push(api, ONE, priority=10)
    plain = api.post("/jobs", {"type": "test.job", "args": []}).body["job"]
    found = {job["id"] for job in taken(api)}
    assert plain["id"] in found
    assert held["id"] not in found


@pytest.mark.parametrize(
    ("limit", "number"),
    [
        ({"key": "a", "concurrency": 5, "on_limit": "wait"}, "5"),
        ({"key": "a", "rate": 1, "period": "second"}, "1"),
        ({"max_per_second": 2}, "2"),
        ({"max_per_day": 1e-308}, "1"),
        ({"key": "a", "rate": {"limit": 7, "period": "PT1M"}, "concurrency": 2}, "7"),
        ({"key": "a", "throttle": {"limit": 3, "period": "PT1S"}}, "3"),
    ],
)
def test_every_form_is_taken(api: Api, limit: Any, number: str) -> None:
    for body in ({"rate_limit": limit}, {"options": {"rate_limit": limit}}):
        answer = api.post("/jobs", {"type": "test.job", "args": [], **body})
        assert answer.status == 201, answer.body
        assert answer.headers["X-RateLimit-Limit"] == number
        assert "X-RateLimit-Remaining" not in answer.headers, "that is of the client's own rate"
        assert answer.body["job"]["rate_limit"] == limit


def test_a_queue_with_max_per_second_waits_a_second(api: Api, frozen: FrozenClock) -> None:
    for _ in range(2):
        push(api, {"max_per_second": 1})
    assert len(taken(api)) == 1
    assert taken(api) == []
    frozen.advance(0.9)
    assert taken(api) == []
    frozen.advance(0.2)
    assert len(taken(api)) == 1


def test_what_is_taken_and_who_waits(api: Api, frozen: FrozenClock) -> None:
    limit = {
        "key": "a:b",
        "concurrency": 2,
        "rate": {"limit": 100, "period": "PT1M"},
        "throttle": {"limit": 4, "period": "PT1S"},
    }
    for _ in range(3):
        push(api, limit)
    taken(api)
    found = api.get("/rate-limits/a:b").body
    assert found["concurrency"] == {"limit": 2, "active": 1, "admitted": 0, "available": 1}
    assert found["rate"] == {
        "limit": 100,
        "period": "PT1M",
        "current_count": 1,
        "window_resets_at": "2026-01-01T00:01:00.000Z",
    }
    assert found["throttle"] == {
        "limit": 4,
        "period": "PT1S",
        "next_allowed_at": "2026-01-01T00:00:00.250Z",
    }
    assert found["waiting_count"] == 2
    assert found["next_opening_at"] == "2026-01-01T00:00:00.250Z"
    assert found["on_limit"] == "wait"
    listed = api.get("/rate-limits").body
    assert [item["key"] for item in listed["items"]] == ["a:b"]


@pytest.mark.parametrize("key", ["nobody", "-", "x%20y", "%C3%A9", "x" * 256])
def test_an_unknown_key_is_not_found(api: Api, key: str) -> None:
    for answer in (
        api.get(f"/rate-limits/{key}"),
        api("DELETE", f"/rate-limits/{key}/override"),
    ):
        details = error(answer, 404, "not_found")["details"]
        assert details == {"resource_type": "rate_limit", "resource_id": unquote(key)}


def test_an_override_of_what_cannot_be_a_key_is_not_found(api: Api) -> None:
    error(api("PUT", "/rate-limits/x%20y", {"concurrency": 1}), 404, "not_found")


@pytest.mark.slow
def test_an_operator_s_override_wins_until_it_ends(api: Api, frozen: FrozenClock) -> None:
    for _ in range(4):
        push(api, {"key": "a", "concurrency": 2})
    jobs = taken(api)
    body = {"concurrency": 0, "expires_at": "2026-01-01T00:10:00Z"}
    answer = api("PUT", "/rate-limits/a", body)
    assert answer.status == 200
    assert answer.body["concurrency"]["limit"] == 0
    assert answer.body["override"] == {"concurrency": 0, "expires_at": "2026-01-01T00:10:00.000Z"}
    for job in jobs:
        ack(api, job)
    assert taken(api) == []
    frozen.advance(601)
    assert len(taken(api)) == 2


def test_an_override_is_taken_back(api: Api) -> None:
    for _ in range(2):
        push(api, ONE)
    api("PUT", "/rate-limits/a", {"concurrency": 2})
    assert len(taken(api)) == 2
    answer = api("DELETE", "/rate-limits/a/override")
    assert answer.body["concurrency"]["limit"] == 1
    assert "override" not in answer.body


@pytest.mark.slow
def test_the_limit_of_a_queue_is_none_of_the_jobs_business(api: Api) -> None:
    for _ in range(2):
        api.post("/jobs", {"type": "test.job", "args": [], "queue": "mail"})
    push(api, {"key": "a", "concurrency": 9}, queue="mail")
    answer = api("PUT", "/admin/queues/mail/rate-limit", {"concurrency": 1})
    assert answer.status == 200
    assert answer.body["key"] == "queue:mail"
    for _ in range(3):
        (job,) = taken(api, queue="mail")
        ack(api, job)
    assert taken(api, queue="mail") == []


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "limits"),
        ({"concurrency": "x"}, "limits.concurrency"),
        ({"key": "b", "concurrency": 1}, "limits.key"),
        ({"concurrency": 1, "expires_at": "2020-01-01T00:00:00Z"}, "expires_at"),
        ({"concurrency": 1, "expires_at": "soon"}, "expires_at"),
    ],
)
def test_bad_overrides_are_refused(api: Api, body: Any, field: str) -> None:
    push(api, ONE)
    found = error(api("PUT", "/rate-limits/a", body), 400, "invalid_request")
    assert found["details"]["field"] == field


@pytest.mark.slow
def test_a_handler_may_block_its_key(api: Api, frozen: FrozenClock) -> None:
    for _ in range(2):
        push(api, ONE)
    (job,) = taken(api)
    until = "2026-01-01T00:05:00Z"
    failed = {"type": "RateLimitExceeded", "message": "429", "rate_limit_until": until}
    body = {"job_id": job["id"], "lease_id": job["lease"]["id"], "error": failed}
    assert api.post("/workers/nack", body).status == 200
    assert taken(api) == []
    assert api.get("/rate-limits/a").body["blocked_until"] == "2026-01-01T00:05:00.000Z"
    frozen.advance(301)
    assert len(taken(api)) == 1


def test_a_block_holds_also_those_who_were_let_in(api: Api, frozen: FrozenClock) -> None:
    first, second = (push(api, {"key": "a", "concurrency": 5}) for _ in range(2))
    (job,) = taken(api, count=1)
    failed = {"type": "RateLimitExceeded", "message": "429", "rate_limit_until": "+PT60S"}
    body = {"job_id": job["id"], "lease_id": job["lease"]["id"], "error": failed}
    assert api.post("/workers/nack", body).status == 200
    assert taken(api) == []
    assert api.get("/rate-limits/a").body["concurrency"]["admitted"] == 0
    frozen.advance(61)
    assert {job["id"] for job in taken(api)} == {first["id"], second["id"]}


def test_a_late_block_changes_nothing(api: Api, frozen: FrozenClock) -> None:
    push(api, ONE)
    (job,) = taken(api)
    ack(api, job)
    failed = {"message": "429", "rate_limit_until": "2026-01-01T00:05:00Z"}
    body = {"job_id": job["id"], "lease_id": job["lease"]["id"], "error": failed}
    error(api.post("/workers/nack", body), 409, "conflict")
    assert api.get("/rate-limits/a").body["blocked_until"] is None


def test_limits_of_keys_are_for_those_who_see_every_queue(caller: Caller) -> None:
    api = caller("inspect", "administer", "produce", queues=["mail"])
    whole = caller("inspect", "administer", "produce")
    push(whole, ONE)
    whole("PUT", "/admin/queues/mail/rate-limit", {"concurrency": 1})
    whole("PUT", "/admin/queues/other/rate-limit", {"concurrency": 1})
    assert [item["key"] for item in api.get("/rate-limits").body["items"]] == ["queue:mail"]
    assert api.get("/rate-limits/queue:mail").status == 200
    for key in ("a", "queue:other"):
        error(api.get(f"/rate-limits/{key}"), 404, "not_found")
        error(api("PUT", f"/rate-limits/{key}", {"concurrency": 1}), 404, "not_found")
    error(api("PUT", "/admin/queues/other/rate-limit", {"concurrency": 1}), 403, "permission_denied")
    assert len(whole.get("/rate-limits").body["items"]) == 3
