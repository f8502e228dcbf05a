"""Moments, fields and retry policies in bad forms."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from django_ojs.models import Job
from django_ojs.services.operate import discard
from tests.http.refusing import MISSING, push, refused
from tests.http.support import Api, enqueue, fetch, look

MOMENTS: tuple[Any, ...] = (
    True,
    5,
    1.5,
    "",
    "soon",
    "2026-01-01",
    "2026-01-01T00:00:00",
    "2026-13-01T00:00:00Z",
    [],
    {},
    "2026-02-30T00:00:00Z",
    "9999-12-31T23:59:59Z",
    "0001-01-01T00:00:00Z",
    "1969-12-31T23:59:59Z",
    "2026-01-01T00:00:00+99:99",
    "٢٠٢٦-01-01T00:00:00Z",
    "9" * 5000,
    "-PT5S",
    "P1Y",
)


@pytest.mark.parametrize("name", ["scheduled_at", "delay_until", "expires_at"])
@pytest.mark.fault("F107", "F106")
def test_moments_in_bad_forms(api: Api, name: str) -> None:
    for value in MOMENTS:
        refused(push(api, **{name: value}), 400, "invalid_request", name)
        refused(push(api, options={name: value}), 400, "invalid_request", f"options.{name}")
    dead = enqueue(api)
    discard([UUID(dead["id"])])
    for value in MOMENTS:
        answer = api.post(f"/jobs/{dead['id']}/retry", {"expires_at": value})
        refused(answer, 400, "invalid_request", "expires_at")


FIELDS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"type": None}, "type"),
    ({"type": 5}, "type"),
    ({"type": ""}, "type"),
    ({"type": "Upper"}, "type"),
    ({"type": "ünï.type"}, "type"),
    ({"type": "a..b"}, "type"),
    ({"type": ".a"}, "type"),
    ({"type": "a b"}, "type"),
    ({"type": "a\n"}, "type"),
    ({"type": "a" * 256}, "type"),
    ({"type": "\u0440\u0430ypal.job"}, "type"),
    ({"type": "a\u202eb"}, "type"),
    ({"type": "../../x"}, "type"),
    ({"type": ["a"]}, "type"),
    ({"type": {"a": 1}}, "type"),
    ({"type": True}, "type"),
    ({"args": None}, "args"),
    ({"args": {}}, "args"),
    ({"args": "x"}, "args"),
    ({"args": 1}, "args"),
    ({"queue": "Queue"}, "queue"),
    ({"queue": "q "}, "queue"),
    ({"queue": " q"}, "queue"),
    ({"queue": "_q"}, "queue"),
    ({"queue": "-q"}, "queue"),
    ({"queue": ""}, "queue"),
    ({"queue": "q" * 256}, "queue"),
    ({"queue": 5}, "queue"),
    ({"queue": ["q"]}, "queue"),
    ({"queue": "q\n"}, "queue"),
    ({"queue": "😀"}, "queue"),
    ({"queue": "q*"}, "queue"),
    ({"meta": []}, "meta"),
    ({"meta": "x"}, "meta"),
    ({"meta": 1}, "meta"),
    ({"meta": False}, "meta"),
    ({"meta": {"a\nb": 1}}, "meta.<key>"),
    ({"meta": {"\x1b[2J": 1}}, "meta.<key>"),
    ({"meta": {"_ojs_lease": 1}}, "meta.<key>"),
    ({"meta": {"retried_from": "x"}}, "meta.retried_from"),
    ({"metadata": {"retried_from": "x"}}, "meta.retried_from"),
    ({"tags": "x"}, "tags"),
    ({"tags": [1]}, "tags"),
    ({"tags": [""]}, "tags"),
    ({"tags": {}}, "tags"),
    ({"tags": ["x"] * 51}, "tags"),
    ({"tags": ["x" * 256]}, "tags"),
    ({"tags": [None]}, "tags"),
    ({"options": []}, "options"),
    ({"options": "x"}, "options"),
    ({"options": False}, "options"),
    ({"pending": 1}, "pending"),
    ({"pending": "true"}, "pending"),
    ({"id": ""}, "id"),
    ({"id": 5}, "id"),
    ({"id": MISSING.upper()}, "id"),
    ({"id": [MISSING]}, "id"),
    ({"id": "6ba7b810-9dad-41d1-80b4-00c04fd430c8"}, "id"),
    ({"id": f"{{{MISSING}}}"}, "id"),
    ({"id": f"{MISSING}\n"}, "id"),
    ({"id": MISSING.replace("-", "")}, "id"),
    ({"unique": []}, "unique"),
    ({"rate_limit": "x"}, "rate_limit"),
    ({"schema": 1}, "schema"),
    ({"version": 1.5}, "version"),
    ({"version": True}, "version"),
)


@pytest.mark.fault("F118", "F121")
def test_fields_of_a_job(api: Api) -> None:
    for body, field in FIELDS:
        refused(push(api, **body), 400, "invalid_request", field)
    assert not Job.objects.exists()


POLICIES: tuple[tuple[Any, str], ...] = (
    ([], "retry"),
    ("x", "retry"),
    (5, "retry"),
    ({"max_attempts": -1}, "retry.max_attempts"),
    ({"max_attempts": True}, "retry.max_attempts"),
    ({"max_attempts": 1.0}, "retry.max_attempts"),
    ({"max_attempts": "3"}, "retry.max_attempts"),
    ({"initial_interval": 0}, "retry.initial_interval"),
    ({"initial_interval": "P1Y"}, "retry.initial_interval"),
    ({"initial_interval_ms": "5"}, "retry.initial_interval_ms"),
    ({"max_attempt": 9}, "retry.max_attempt"),
    ({"enabled": None}, "retry.enabled"),
    ({"backoff_coefficient": 0.5}, "retry.backoff_coefficient"),
    ({"backoff_coefficient": 1e300}, "retry.backoff_coefficient"),
    ({"backoff_coefficient": 10**400}, "retry.backoff_coefficient"),
    ({"backoff_coefficient": True}, "retry.backoff_coefficient"),
    ({"jitter": "yes"}, "retry.jitter"),
    ({"jitter": 1}, "retry.jitter"),
    ({"non_retryable_errors": "x"}, "retry.non_retryable_errors"),
    ({"non_retryable_errors": ["x"] * 101}, "retry.non_retryable_errors"),
    ({"non_retryable_errors": ["x" * 256]}, "retry.non_retryable_errors"),
    ({"non_retryable_errors": [1]}, "retry.non_retryable_errors"),
    ({"on_exhaustion": "explode"}, "retry.on_exhaustion"),
    ({"on_exhaustion": []}, "retry.on_exhaustion"),
    ({"backoff_strategy": "magic"}, "retry.backoff_strategy"),
)


@pytest.mark.slow
def test_retry_policies(api: Api) -> None:
    for policy, field in POLICIES:
        refused(push(api, retry=policy), 422, "validation_error", field)
        refused(push(api, options={"retry": policy}), 422, "validation_error", field)
        job = {"type": "test.job", "args": [], "retry": policy}
        answer = api.post("/jobs/batch", {"jobs": [job]})
        assert refused(answer, 422, "validation_error", field)["details"]["index"] == 0
    assert not Job.objects.exists()


def test_null_is_no_limit_of_attempts(api: Api) -> None:
    """What is returned may be sent again."""
    kept = push(api, retry={"maxAttempts": None}).body["job"]
    assert kept["max_attempts"] == kept["retry"]["max_attempts"] == 2147483647
    again = push(api, retry=kept["retry"])
    assert (again.status, again.body["job"]["max_attempts"]) == (201, 2147483647)
    assert push(api, retry={"jitter": None}).body["job"]["max_attempts"] == 3


def test_a_retry_policy_that_contradicts_itself_is_refused(api: Api) -> None:
    policy = {"initial_interval": "PT10S", "max_interval": "PT5S"}
    refused(push(api, retry=policy), 422, "validation_error", "retry.max_interval")
    job = {"type": "test.job", "args": [], "retry": policy}
    batch = api.post("/jobs/batch", {"jobs": [{**job, "retry": {}}, job]})
    error = refused(batch, 422, "validation_error", "retry.max_interval")
    assert error["details"]["index"] == 1


def test_an_initial_interval_above_the_longest_of_the_defaults_is_capped(api: Api) -> None:
    policy = {"initial_interval": "PT6M"}
    answer = push(api, retry=policy, id="019539a4-b68c-7def-8000-1a2b3c4d5e6f")
    assert answer.status == 201
    kept = answer.body["job"]["retry"]
    assert (kept["initial_interval"], kept["max_interval"]) == ("PT5M", "PT5M")
    (warning,) = answer.body["warnings"]
    assert warning["field"] == "retry.initial_interval"
    assert "PT6M" in warning["message"]
    again = push(api, retry=policy, id="019539a4-b68c-7def-8000-1a2b3c4d5e6f")
    assert (again.status, again.body["warnings"]) == (200, [warning])
    jobs = [{"type": "test.job", "args": [], "retry": one} for one in ({}, {"max_interval": "500ms"})]
    batch = api.post("/jobs/batch", {"jobs": jobs})
    assert batch.status == 201
    assert [job["retry"]["initial_interval"] for job in batch.body["jobs"]] == ["PT1S", "PT0.5S"]
    assert [(one["index"], one["field"]) for one in batch.body["warnings"]] == [
        (1, "retry.initial_interval")
    ]
    assert "warnings" not in push(api, retry={"initial_interval": "PT5M"}).body


@pytest.mark.fault("F119")
def test_names_of_255_bytes_are_stored_and_told_apart(api: Api) -> None:
    for name in ("q", "q-", "q.", "q" * 255):
        job = enqueue(api, queue=name, type="t" * 255)
        found = look(api, job)
        assert (found["queue"], found["type"]) == (name, "t" * 255)
        assert [one["id"] for one in fetch(api, name)] == [job["id"]]


@pytest.mark.parametrize("value", [{}, [], True, 5], ids=repr)
def test_a_reason_that_is_no_text(api: Api, value: Any) -> None:
    """Whoever gives one wants it kept: it was dropped, and the audit had none."""
    dead, waiting = enqueue(api), enqueue(api)
    discard([UUID(dead["id"])])
    api.post("/workers/register", {"worker_id": "w1"})
    paths = (
        ("POST", f"/jobs/{waiting['id']}/cancel"),
        ("POST", f"/jobs/{waiting['id']}/activate"),
        ("PATCH", f"/jobs/{waiting['id']}"),
        ("POST", f"/jobs/{dead['id']}/retry"),
        ("POST", "/queues/default/pause"),
        ("POST", "/queues/default/resume"),
        ("POST", "/workers/w1/quiet"),
        ("POST", "/workers/w1/terminate"),
        ("POST", "/workers/w1/resume"),
    )
    for method, path in paths:
        answer = api(method, path, {"reason": value, "priority": 3})
        refused(answer, 400, "invalid_request", "reason")
    assert api.get(f"/jobs/{waiting['id']}").body["state"] == "available"
    assert api.get(f"/jobs/{dead['id']}").body["state"] == "discarded"
    for said in (None, "", "x" * 5000, "\x00\ud800"):
        assert api.post("/queues/default/pause", {"reason": said}).status == 200
