"""Text that not every database stores: refused where it means something, else cleaned."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote
from uuid import UUID

import pytest

from django_ojs.models import Job, Worker
from django_ojs.services.operate import discard
from tests.http.refusing import LONE, NUL, push, refused
from tests.http.support import Api, enqueue, fetch, look


@pytest.mark.parametrize(
    ("place", "field", "code"),
    [
        ({"args": ["?"]}, "args[0]", "invalid_request"),
        ({"args": [{"a": ["?"]}]}, "args[0].a[0]", "invalid_request"),
        ({"args": [{"?": 1}]}, "args[0].<key>", "invalid_request"),
        ({"meta": {"k": "?"}}, "meta.k", "invalid_request"),
        ({"meta": {"?": 1}}, "meta.<key>", "invalid_request"),
        ({"options": {"metadata": {"k": "?"}}}, "meta.k", "invalid_request"),
        ({"type": "?"}, "type", "invalid_request"),
        ({"queue": "?"}, "queue", "invalid_request"),
        ({"id": "?"}, "id", "invalid_request"),
        ({"tags": ["?"]}, "tags[0]", "invalid_request"),
        ({"options": {"tags": ["?"]}}, "options.tags[0]", "invalid_request"),
        ({"priority": "?"}, "priority", "invalid_request"),
        ({"timeout": "?"}, "timeout", "invalid_request"),
        ({"scheduled_at": "?"}, "scheduled_at", "invalid_request"),
        ({"expires_at": "?"}, "expires_at", "invalid_request"),
        ({"x_own": "?"}, "body.x_own", "invalid_request"),
        ({"?": "x"}, "body.<key>", "invalid_request"),
        ({"schema": "?"}, "body.schema", "invalid_request"),
        ({"unique": {"keys": ["?"]}}, "body.unique.keys[0]", "invalid_request"),
        ({"specversion": "?"}, "specversion", "unsupported"),
        (
            {"retry": {"non_retryable_errors": ["?"]}},
            "retry.non_retryable_errors[0]",
            "validation_error",
        ),
        ({"retry": {"on_exhaustion": "?"}}, "retry.on_exhaustion", "validation_error"),
        ({"retry": {"initial_interval": "?"}}, "retry.initial_interval", "validation_error"),
    ],
)
@pytest.mark.fault("F110", "F111")
def test_text_that_cannot_be_stored_is_refused(
    api: Api, place: dict[str, Any], field: str, code: str
) -> None:
    for text in (NUL, LONE, "\udfff", "\x00"):
        body = json.loads(json.dumps(place).replace('"?"', json.dumps(text)))
        refused(push(api, **body), 400 if code == "invalid_request" else 422, code, field)
    assert not Job.objects.exists()


@pytest.mark.parametrize("text", [NUL, LONE], ids=ascii)
def test_a_retry_policy_with_an_odd_unknown_key(api: Api, text: str) -> None:
    """It is named as far as it can be."""
    answer = push(api, retry={text: text, "max_attempts": 2})
    assert (answer.status, answer.code) == (422, "validation_error")
    assert answer.body["error"]["details"]["field"].startswith("retry.")


@pytest.mark.parametrize("text", [NUL, LONE], ids=ascii)
def test_text_of_workers_that_cannot_be_stored_is_refused(api: Api, text: str) -> None:
    enqueue(api)
    for path in ("/workers/register", "/workers/heartbeat", "/workers/fetch"):
        for name in ("worker_id", "hostname", "version"):
            body = {"worker_id": "w1", "queues": ["default"], name: text}
            refused(api.post(path, body), 400, "invalid_request", name)
        bad: tuple[Any, ...] = ({"k": text}, {text: 1}, [text])
        for labels in bad:
            body = {"worker_id": "w1", "queues": ["default"], "labels": labels}
            error = refused(api.post(path, body), 400, "invalid_request")
            assert error["details"]["field"].startswith("labels")
    refused(api.post("/workers/fetch", {"queues": [text]}), 400, "invalid_request", "queues")
    refused(api.post("/workers/deregister", {"worker_id": text}), 400, "invalid_request", "worker_id")
    refused(api.post("/queues", {"name": text}), 400, "invalid_request", "name")
    assert not Worker.objects.exists()
    job = fetch(api)[0]
    lease = {"job_id": job["id"], "lease_id": job["lease"]["id"]}
    for result in (text, [text], {text: 1}):
        error = refused(api.post("/workers/ack", {**lease, "result": result}), 400, "invalid_request")
        assert error["details"]["field"].startswith("result")
    for name in ("lease_id", "worker_id"):
        for path in ("/workers/ack", "/workers/nack"):
            refused(api.post(path, {**lease, name: text}), 400, "invalid_request", name)
    for state in (text, {text: 1}):
        saved = api.post(f"/jobs/{job['id']}/checkpoint", {**lease, "state": state})
        refused(saved, 400, "invalid_request")
    saved = api.post(f"/jobs/{job['id']}/checkpoint", {**lease, "state": 1, "metadata": {"a": text}})
    refused(saved, 400, "invalid_request")
    said = api.post("/workers/progress", {**lease, "progress": 0.5, "data": [text]})
    refused(said, 400, "invalid_request")
    assert look(api, job)["state"] == "active"


@pytest.mark.parametrize("text", [NUL, LONE], ids=ascii)
@pytest.mark.parametrize("path", ["/workers/ack", "/workers/nack", "/workers/progress"])
def test_a_job_id_that_is_no_text_for_a_database_is_not_found(api: Api, path: str, text: str) -> None:
    error = refused(api.post(path, {"job_id": text, "progress": 0.5}), 404, "not_found")
    assert error["details"]["resource_type"] == "job"
    refused(
        api.post("/workers/heartbeat", {"worker_id": "w1", "active_jobs": [text]}),
        400,
        "invalid_request",
        "active_jobs",
    )


@pytest.mark.parametrize("text", [NUL, LONE], ids=ascii)
@pytest.mark.fault("F110")
def test_error_text_is_cleaned_and_never_refused(api: Api, text: str) -> None:
    enqueue(api, retry={"max_attempts": 1})
    job = fetch(api)[0]
    error = {
        "type": text,
        "code": text,
        "message": text * 10_000,
        "details": {text: text, "error_class": text, "list": [text]},
        "backtrace": [text] * 500,
    }
    answer = api.post("/workers/nack", {"job_id": job["id"], "error": error})
    assert answer.status == 200, answer.raw
    stored = look(api, job)["error"]
    assert stored["type"] == stored["code"] == "a�b"
    assert stored["message"].startswith("a�b") and len(stored["message"].encode()) <= 8192
    assert stored["details"]["a�b"] == "a�b"
    assert stored["backtrace"][0] == "a�b" and len(stored["backtrace"]) <= 100
    assert api.get("/dead-letter").status == 200
    assert api.get("/events").status == 200


@pytest.mark.parametrize("text", [NUL, LONE], ids=ascii)
def test_an_error_that_is_a_string(api: Api, text: str) -> None:
    enqueue(api)
    job = fetch(api)[0]
    assert api.post("/workers/nack", {"job_id": job["id"], "error": text}).status == 200
    assert look(api, job)["error"]["message"] == "a�b"


@pytest.mark.parametrize("text", [NUL, LONE], ids=ascii)
def test_a_progress_message_is_cleaned_and_never_refused(api: Api, text: str) -> None:
    enqueue(api)
    job = fetch(api)[0]
    answer = api.post(
        f"/jobs/{job['id']}/progress",
        {"progress": 0.5, "message": text * 2000, "lease_id": job["lease"]["id"]},
    )
    assert answer.status == 200, answer.raw
    message = look(api, job)["progress_message"]
    assert message.startswith("a�b") and len(message.encode()) <= 1024


@pytest.mark.parametrize("text", [NUL, LONE], ids=ascii)
def test_a_reason_is_cleaned_and_never_refused(api: Api, text: str) -> None:
    """``reason`` goes into events and into the queue's row."""
    reason = {"reason": text}
    job = enqueue(api)
    assert api("PATCH", f"/jobs/{job['id']}", {"priority": 3, **reason}).status == 200
    assert api.post(f"/jobs/{job['id']}/cancel", reason).status == 200
    other = enqueue(api)
    assert api("DELETE", f"/jobs/{other['id']}?reason={quote(text, errors='replace')}").status == 200
    for verb in ("pause", "resume"):
        assert api.post(f"/queues/default/{verb}", reason).status == 200
    api.post("/workers/register", {"worker_id": "w1"})
    for verb in ("quiet", "terminate", "resume"):
        assert api.post(f"/workers/w1/{verb}", reason).status == 200
    third = enqueue(api)
    discard([UUID(third["id"])])
    assert api.post(f"/jobs/{third['id']}/retry", reason).status == 200
    events = api.get("/events")
    assert events.status == 200
    assert "a�b" in {event["data"].get("reason") for event in events.body["events"]}
