"""Bad input over HTTP: an error envelope that names the field, never a 5xx, and nothing written."""

from __future__ import annotations

import gzip
import io
import json
import tracemalloc
import zlib
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote
from uuid import UUID

import pytest
from django.core.cache import cache
from django.test import Client, override_settings
from django.urls import get_resolver

from django_ojs.clock import FrozenClock
from django_ojs.domain.errors import OJSError
from django_ojs.domain.jsonvalue import MAX_ARGS_BYTES, MAX_ENVELOPE_BYTES, MAX_META_BYTES
from django_ojs.domain.limits import NAMES
from django_ojs.http.body import check_depth, parse
from django_ojs.http.routing import slices
from django_ojs.models import Event, Job, Worker
from django_ojs.services.operate import discard
from tests.http.support import MEDIA, Answer, Api, enqueue, fetch, look

MISSING = "019539a4-b68c-7def-8000-1a2b3c4d5e6f"
NUL, LONE = "a\x00b", "a\ud800b"
ENVELOPE = {
    "code",
    "type",
    "message",
    "retryable",
    "details",
    "request_id",
    "hint",
    "docs_url",
    "doc_url",
}


@pytest.fixture(autouse=True)
def fresh_counters() -> None:
    """Rates are counted in the cache, by the names of credentials that tests share."""
    cache.clear()


def error_of(answer: Answer) -> dict[str, Any]:
    """The error object, complete."""
    assert 400 <= answer.status < 500, answer.raw[:500]
    body = answer.body
    assert set(body) == {"error"}
    error: dict[str, Any] = body["error"]
    assert set(error) == ENVELOPE
    for name in ("code", "type", "message", "request_id", "hint", "docs_url"):
        assert isinstance(error[name], str) and error[name], name
    assert type(error["retryable"]) is bool
    assert isinstance(error["details"], dict)
    assert error["docs_url"].endswith(f"/errors/{error['code']}")
    assert answer.headers["X-Request-Id"] == error["request_id"]
    return error


def refused(answer: Answer, status: int, code: str, field: str | None = None) -> dict[str, Any]:
    """The error object, with this status, code and field."""
    error = error_of(answer)
    assert (answer.status, error["code"]) == (status, code), answer.raw[:500]
    if field is not None:
        assert error["details"]["field"] == field, answer.raw[:500]
    return error


def push(api: Api, **body: Any) -> Answer:
    return api.post("/jobs", {"type": "test.job", "args": [], **body})


def nested(depth: int) -> list[Any]:
    """An array that is so deep."""
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


def row(job: Mapping[str, Any]) -> dict[str, Any]:
    return dict(Job.objects.filter(pk=job["id"]).values().get())


# Nesting


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"a":'])
@pytest.mark.fault("F108", "S14")
def test_a_hundred_thousand_brackets(api: Api, opening: bytes) -> None:
    for head in (b"", b'{"type":"test.job","args":'):
        refused(api.post("/jobs", head + opening * 100_000), 400, "invalid_request", "body")
    assert not Job.objects.exists()


@pytest.mark.fault("F108", "S14")
def test_the_depth_is_known_before_anything_is_parsed() -> None:
    for text in (b"[" * 36, b'{"a":' * 36, b'["[",' * 36, b'"\\"' + b"[" * 36 + b'"' + b"[" * 36):
        with pytest.raises(OJSError):
            check_depth(text)
    for text in (
        b"[" * 35,
        b"[]" * 1000,
        b'"' + b"[" * 1000,
        b'"\\"' + b"[" * 1000 + b'"',
        b"]" * 1000,
    ):
        check_depth(text)


def test_brackets_in_strings_do_not_count(api: Api) -> None:
    text = '[{"' * 30_000 + "\\" * 3
    job = enqueue(api, args=[text], meta={text[:300]: "]}" * 100})
    assert look(api, job)["args"] == [text]


def test_siblings_do_not_count(api: Api) -> None:
    value: list[Any] = [[{"a": []}] for _ in range(2000)]
    assert look(api, enqueue(api, args=value))["args"] == value


@pytest.mark.parametrize("depth", [31, 32, 35, 36, 101, 10_001])
@pytest.mark.fault("F108")
def test_deeper_than_thirty_is_refused(api: Api, depth: int) -> None:
    args = b"[" * depth + b"]" * depth
    answer = api.post("/jobs", b'{"type":"test.job","args":' + args + b"}")
    assert "30" in refused(answer, 400, "invalid_request")["message"]
    meta = b'{"a":' * depth + b"1" + b"}" * depth
    answer = api.post("/jobs", b'{"type":"test.job","args":[],"meta":' + meta + b"}")
    refused(answer, 400, "invalid_request")
    job = b'{"type":"test.job","args":' + args + b"}"
    refused(api.post("/jobs/batch", b'{"jobs":[' + job + b"]}"), 400, "invalid_request")
    assert not Job.objects.exists()


@pytest.mark.fault("F109")
def test_thirty_deep_is_stored_everywhere(api: Api) -> None:
    """On this database: args, meta, unknown fields, checkpoint, progress data, result, error."""
    deep = nested(30)
    meta = {"a": nested(29)}
    job = enqueue(api, args=deep, meta=meta, x_deep=nested(29))
    claimed = fetch(api)[0]
    lease = claimed["lease"]["id"]
    path = f"/jobs/{job['id']}"
    assert api("PUT", f"{path}/checkpoint", {"state": deep, "lease_id": lease}).status == 200
    said = api.post(f"{path}/progress", {"progress": 1, "data": deep, "lease_id": lease})
    assert said.status == 200, said.raw
    refused(
        api("PUT", f"{path}/checkpoint", {"state": nested(31), "lease_id": lease}),
        400,
        "invalid_request",
    )
    refused(api.post(f"{path}/ack", {"result": nested(31), "lease_id": lease}), 400, "invalid_request")
    assert api.post(f"{path}/ack", {"result": deep, "lease_id": lease}).status == 200
    found = look(api, job)
    assert (found["args"], found["meta"], found["result"]) == (deep, meta, deep)
    assert (found["x_deep"], found["progress_data"]) == (nested(29), deep)
    assert found["checkpoint"]["state"] == deep


def test_error_details_are_never_too_deep(api: Api) -> None:
    enqueue(api)
    job = fetch(api)[0]
    answer = api.post(f"/jobs/{job['id']}/nack", {"error": {"details": {"x": nested(32)}}})
    assert answer.status == 200, answer.raw
    assert look(api, job)["error"]["details"] == {"x": "(list)"}


@pytest.mark.timeout(30)
@pytest.mark.parametrize("piece", [b'\\"', b'"', b"\\", b'\\\\"', b'"\\', b'","', b'[{"', b'"[', b"]["])
def test_a_depth_scan_looks_at_every_byte_once(piece: bytes) -> None:
    """What would take hours with a second look at each: no limit on the time but the test's own."""
    for head in (b"[" * 20 + b'"' + b"[" * 20, b"[]" * 20):
        raw = head + piece * 200_000
        with pytest.raises(OJSError) as refusal:
            check_depth(raw)
            parse(raw)
        assert refusal.value.code in ("invalid_request", "invalid_payload")


# Text that not every database stores


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


# Numbers


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity", b"1e400", b"-1e400", b"1e99999"])
@pytest.mark.fault("F112")
def test_numbers_that_are_not_finite(api: Api, number: bytes) -> None:
    for body in (
        b'{"type":"test.job","args":[%b]}',
        b'{"type":"test.job","args":[],"meta":{"a":%b}}',
        b'{"type":"test.job","args":[],"timeout":%b}',
        b'{"type":"test.job","args":[],"x_own":%b}',
        b"[%b]",
        b"%b",
    ):
        assert error_of(api.post("/jobs", body % number))["code"] in (
            "invalid_payload",
            "invalid_request",
        )
    enqueue(api)
    job = fetch(api)[0]
    path = f"/jobs/{job['id']}"
    for way, body in ((f"{path}/ack", b'{"result":%b}'), (f"{path}/progress", b'{"progress":%b}')):
        assert api.post(way, body % number).status == 400
    assert look(api, job)["state"] == "active"


@pytest.mark.parametrize("digits", [4301, 5000, 100_000])
@pytest.mark.fault("F114", "S15")
def test_integers_of_too_many_digits(api: Api, digits: int) -> None:
    number = b"9" * digits
    for body in (
        b'{"type":"test.job","args":[%b]}',
        b'{"type":"test.job","args":[-%b]}',
        b'{"type":"test.job","args":[],"priority":%b}',
        b'{"type":"test.job","args":[],"timeout":%b}',
        b'{"type":"test.job","args":[],"retry":{"max_attempts":%b}}',
    ):
        refused(api.post("/jobs", body % number), 400, "invalid_request")


@pytest.mark.fault("F113")
def test_numbers_come_back_as_they_were(api: Api) -> None:
    numbers = [
        2**53 + 1,
        -(2**53) - 1,
        2**63,
        2**64,
        10**22,
        int("9" * 4299),
        0.1,
        1e-300,
        5e-324,
        -0.5,
    ]
    job = enqueue(api, args=numbers, meta={"n": 2**53 + 1}, x_n=2**63)
    found = look(api, job)
    assert found["args"] == numbers
    assert [type(n) for n in found["args"]] == [type(n) for n in numbers]
    assert (found["meta"], found["x_n"]) == ({"n": 2**53 + 1}, 2**63)
    claimed = fetch(api)[0]
    assert claimed["args"] == numbers
    done = {"result": numbers, "lease_id": claimed["lease"]["id"]}
    assert api.post(f"/jobs/{job['id']}/ack", done).status == 200
    assert look(api, job)["result"] == numbers


@pytest.mark.parametrize("number", [10**9, -(10**9), 2**31, 2**63, 10**22, 10**4000, 101, -101])
@pytest.mark.fault("F117")
def test_priorities_out_of_range(api: Api, number: int) -> None:
    refused(push(api, priority=number), 400, "invalid_request", "priority")
    refused(push(api, options={"priority": number}), 400, "invalid_request", "options.priority")
    job = enqueue(api, priority=100)
    refused(
        api("PATCH", f"/jobs/{job['id']}", {"priority": number}), 400, "invalid_request", "priority"
    )
    assert look(api, job)["priority"] == 100


@pytest.mark.parametrize("value", [1.0, True, "1", " HIGH", "", [], {}])
def test_priorities_that_are_no_integers(api: Api, value: Any) -> None:
    refused(push(api, priority=value), 400, "invalid_request", "priority")


@pytest.mark.parametrize("number", [2**31, 2**63, 10**22, 10**4000])
@pytest.mark.fault("F114")
def test_huge_numbers(api: Api, number: int) -> None:
    enqueue(api)
    for name in ("pid", "concurrency"):
        for path in ("/workers/register", "/workers/heartbeat", "/workers/fetch"):
            body = {"worker_id": "w1", "queues": ["default"], name: number}
            refused(api.post(path, body), 400, "invalid_request", name)
    beat = {"worker_id": "w1", "active_jobs": number}
    refused(api.post("/workers/heartbeat", beat), 400, "invalid_request", "active_jobs")
    refused(push(api, retry={"max_attempts": number}), 422, "validation_error", "retry.max_attempts")
    if number > 2**31:
        for name in ("visibility_timeout", "visibility_timeout_ms"):
            asked = {"queues": ["default"], name: number}
            refused(api.post("/workers/fetch", asked), 400, "invalid_request", name)
    job = fetch(api, count=number, wait_ms=number)[0]
    path, lease = f"/jobs/{job['id']}", {"lease_id": job["lease"]["id"]}
    if number > 2**31:
        for name in ("extend_timeout", "extend_timeout_ms"):
            body = {**lease, name: number}
            refused(api.post(f"{path}/extend", body), 400, "invalid_request", name)
            body = {**body, "progress": 0.1}
            refused(api.post(f"{path}/progress", body), 400, "invalid_request", name)
    assert api.post(f"{path}/ack", {"attempt": number}).status == 409
    assert api.post(f"{path}/nack", {"attempt": number}).status == 409
    assert api.post(f"{path}/progress", {**lease, "progress": number}).body["progress"] == 1
    assert api.post(f"{path}/progress", {**lease, "percentage": -number}).status == 200
    assert look(api, job)["progress"] == 1


@pytest.mark.parametrize("value", [True, 1.5, "1", " 1 ", "٣", "1_000", 1e3, -1, [], {}])
@pytest.mark.fault("F115")
def test_integers_are_strict(api: Api, value: Any) -> None:
    enqueue(api)
    for name in ("count", "max_jobs", "limit", "wait_ms"):
        asked = api.post("/workers/fetch", {"queues": ["default"], name: value})
        refused(asked, 400, "invalid_request", name)
    refused(
        api.post("/workers/fetch", {"queues": ["default"], "count": 0}), 400, "invalid_request", "count"
    )
    for name in ("pid", "concurrency"):
        body = {"worker_id": "w1", name: value}
        refused(api.post("/workers/register", body), 400, "invalid_request", name)
    if value != []:
        body = {"worker_id": "w1", "active_jobs": value}
        refused(api.post("/workers/heartbeat", body), 400, "invalid_request", "active_jobs")
    job = fetch(api)[0]
    for verb in ("ack", "nack"):
        answer = api.post(f"/jobs/{job['id']}/{verb}", {"attempt": value})
        refused(answer, 400, "invalid_request", "attempt")
    assert look(api, job)["state"] == "active"


# Limits

BAD = {
    "true": "true",
    "float": "1.5",
    "whole float": "5.0",
    "exponent": "1e3",
    "unit": '"5x"',
    "blanks": '" 5 "',
    "newline": r'"5\n"',
    "arabic": '"٣"',
    "full width": '"\uff15"',
    "superscript": '"²"',
    "underscore": '"1_000"',
    "decimal": '"1.5"',
    "exponent text": '"1e3"',
    "negative": "-1",
    "negative text": '"-1"',
    "plus": '"+5"',
    "negative iso": '"-PT5S"',
    "year": '"P1Y"',
    "bare": '"P"',
    "bare time": '"PT"',
    "zero": "0",
    "zero text": '"0"',
    "zero duration": '"PT0S"',
    "empty": '""',
    "array": "[5]",
    "object": '{"seconds":5}',
    "eleven years": str(11 * 366 * 86400),
    "huge": "1" + "0" * 22,
    "huge text": '"99999999999999999999"',
    "long text": '"' + "5" * 5000 + '"',
}
ZEROS = {"zero", "zero text", "zero duration"}
BAD_MS = ("true", "1.5", "5.0", "1e3", '"5"', '"PT5S"', "-1", "[5]", "{}", "1" + "0" * 22, '""')


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.fault("F106", "F115", "F116")
def test_every_limit_in_every_bad_form(api: Api, name: str) -> None:
    """400, naming the field as it was written; at the top level, in options, in a batch, in PATCH."""
    job = enqueue(api)
    before = row(job)
    for kind, text in BAD.items():
        if name == "grace_period" and kind in ZEROS:
            continue
        _limit_is_refused(api, job, name, text)
    for text in BAD_MS:
        _limit_is_refused(api, job, f"{name}_ms", text)
    assert row(job) == before
    assert Job.objects.count() == 1


def _limit_is_refused(api: Api, job: Mapping[str, Any], name: str, text: str) -> None:
    body = f'{{"type":"test.job","args":[],"{name}":{text}}}'
    refused(api.post("/jobs", body.encode()), 400, "invalid_request", name)
    inside = f'{{"type":"test.job","args":[],"options":{{"{name}":{text}}}}}'
    refused(api.post("/jobs", inside.encode()), 400, "invalid_request", f"options.{name}")
    batch = f'{{"jobs":[{{"type":"test.job","args":[]}},{body}]}}'
    error = refused(api.post("/jobs/batch", batch.encode()), 400, "invalid_request", name)
    assert error["details"]["index"] == 1
    patch = f'{{"{name}":{text}}}'
    refused(api("PATCH", f"/jobs/{job['id']}", patch.encode()), 400, "invalid_request", name)


@pytest.mark.parametrize("name", NAMES)
def test_every_limit_in_its_good_forms(api: Api, name: str) -> None:
    plain = row(enqueue(api))
    body: dict[str, Any]
    for body in ({name: None}, {f"{name}_ms": None}, {f"{name}_ms": 0}, {"options": {name: None}}):
        assert row(enqueue(api, **body))[f"{name}_ms"] == plain[f"{name}_ms"], body
    for value in (5, "5", "5s", "5000ms", "PT5S", "PT5.0S"):
        for body in ({name: value}, {"options": {name: value}}):
            assert row(enqueue(api, **body))[f"{name}_ms"] == 5000, body
    assert row(enqueue(api, **{f"{name}_ms": 1}))[f"{name}_ms"] == 1
    if name == "grace_period":
        assert row(enqueue(api, grace_period=0))["grace_period_ms"] == 0


@pytest.mark.fault("F116")
def test_total_below_timeout(api: Api) -> None:
    for body in (
        {"timeout": 10, "total_timeout": 9},
        {"timeout_ms": 10_001, "total_timeout": 10},
        {"options": {"timeout": "PT1H"}, "total_timeout": "59m"},
    ):
        error = refused(push(api, **body), 400, "invalid_request", "total_timeout")
        assert "timeout" in error["details"]["rule"]
    assert push(api, timeout=10, total_timeout=10).status == 201
    assert push(api, total_timeout=5).status == 201, "below the default is no contradiction"


@pytest.mark.parametrize("name", ["visibility_timeout", "visibility_timeout_ms", "visibility_ms"])
def test_visibility_in_every_bad_form(api: Api, name: str) -> None:
    enqueue(api)
    texts = BAD_MS if name.endswith("_ms") else BAD.values()
    for text in texts:
        asked = f'{{"queues":["default"],"worker_id":"w1","{name}":{text}}}'
        for path in ("/workers/fetch", "/workers/heartbeat"):
            refused(api.post(path, asked.encode()), 400, "invalid_request", name)
    assert not Worker.objects.exists()
    assert fetch(api), "nothing was claimed"


@pytest.mark.parametrize("name", ["extend_timeout", "by", "timeout"])
def test_extensions_in_every_bad_form(api: Api, name: str) -> None:
    enqueue(api)
    job = fetch(api)[0]
    before = row(job)
    for text in BAD.values():
        body = f'{{"{name}":{text}}}'
        refused(api.post(f"/jobs/{job['id']}/extend", body.encode()), 400, "invalid_request", name)
    for text in (*BAD_MS, "0"):
        body = f'{{"{name}_ms":{text}}}'
        answer = api.post(f"/jobs/{job['id']}/extend", body.encode())
        refused(answer, 400, "invalid_request", f"{name}_ms")
    refused(api.post(f"/jobs/{job['id']}/extend", {}), 400, "invalid_request", "extend_timeout")
    assert row(job) == before


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
    ({"queue": "q_x"}, "queue"),
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


def test_retry_policies(api: Api) -> None:
    for policy, field in POLICIES:
        refused(push(api, retry=policy), 422, "validation_error", field)
        refused(push(api, options={"retry": policy}), 422, "validation_error", field)
        job = {"type": "test.job", "args": [], "retry": policy}
        answer = api.post("/jobs/batch", {"jobs": [job]})
        assert refused(answer, 422, "validation_error", field)["details"]["index"] == 0
    assert not Job.objects.exists()


def test_of_two_intervals_that_contradict_each_other_the_initial_one_is_capped(api: Api) -> None:
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


# The body as a whole


def raw(api: Api, data: bytes, length: str | None, **environ: Any) -> Answer:
    """A request whose Content-Length is what it is; ``None`` is none."""
    more: dict[str, Any] = {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": "/ojs/v1/jobs",
        "CONTENT_TYPE": MEDIA,
        "HTTP_AUTHORIZATION": f"Bearer {api.token}",
        "wsgi.input": io.BytesIO(data),
        **environ,
    }
    if length is not None:
        more["CONTENT_LENGTH"] = length
    response = Client(raise_request_exception=False).request(**more)
    return Answer(response.status_code, dict(response.items()), response.content)


GOOD = b'{"type":"test.job","args":[]}'


@pytest.mark.fault("F120", "S13")
def test_a_body_that_declares_too_much_is_not_read(api: Api) -> None:
    class Untouched(io.BytesIO):
        def read(self, *args: Any) -> bytes:
            raise AssertionError("read")

    for length in (MAX_ENVELOPE_BYTES + 1, 50 << 20, 10**40):
        answer = raw(api, b"", str(length), **{"wsgi.input": Untouched()})
        error = refused(answer, 413, "payload_too_large")
        assert error["details"]["max_bytes"] == MAX_ENVELOPE_BYTES


@pytest.mark.fault("F120", "S13")
def test_a_body_that_is_too_large(api: Api) -> None:
    exact = GOOD + b" " * (MAX_ENVELOPE_BYTES - len(GOOD))
    assert api.post("/jobs", exact).status == 201
    refused(api.post("/jobs", exact + b" "), 413, "payload_too_large")
    with override_settings(OJS={"HTTP": {"MAX_BODY_BYTES": 100}}):
        refused(api.post("/jobs", GOOD + b" " * 100), 413, "payload_too_large")
        assert api.post("/jobs", GOOD).status == 201


@pytest.mark.parametrize("length", ["x", "", "-5", "1e3", " ", "\u0665", "0x10", "+"])
def test_a_content_length_that_is_no_number(api: Api, length: str) -> None:
    refused(raw(api, GOOD, length), 400, "invalid_payload")


def test_a_content_length_that_lies(api: Api) -> None:
    refused(raw(api, GOOD, None), 400, "invalid_payload")
    refused(raw(api, GOOD, "0"), 400, "invalid_payload")
    refused(raw(api, GOOD, "10"), 400, "invalid_payload")
    assert not Job.objects.exists()
    assert raw(api, GOOD, "1000").status == 201, "what came is a whole job"
    refused(raw(api, GOOD[:-1], "1000"), 400, "invalid_payload")


def test_a_client_that_hangs_up_is_no_error_of_ours(api: Api) -> None:
    class Broken(io.BytesIO):
        def read(self, *args: Any) -> bytes:
            raise ConnectionResetError("gone")

    refused(raw(api, b"", "100", **{"wsgi.input": Broken()}), 400, "invalid_payload")


@pytest.mark.parametrize(
    "squeeze", [gzip.compress, zlib.compress, lambda data: gzip.compress(data, compresslevel=0)]
)
def test_compressed_bodies(api: Api, squeeze: Any) -> None:
    for encoding in ("gzip", "deflate", "x-gzip", " GZIP "):
        assert api.post("/jobs", squeeze(GOOD), Content_Encoding=encoding).status == 201
    assert api.post("/jobs", GOOD, Content_Encoding="identity").status == 201


def bomb(megabytes: int) -> bytes:
    """Zeros, compressed a thousandfold."""
    squeeze = zlib.compressobj(9, wbits=31)
    parts = [squeeze.compress(bytes(1 << 20)) for _ in range(megabytes)]
    return b"".join([*parts, squeeze.flush()])


@pytest.mark.fault("F120", "S13")
def test_a_gzip_bomb_is_not_inflated(api: Api) -> None:
    data = bomb(300)
    assert len(data) < MAX_ENVELOPE_BYTES
    tracemalloc.start()
    try:
        answer = api.post("/jobs", data, Content_Encoding="gzip")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    refused(answer, 413, "payload_too_large")
    assert peak < 20 << 20


def test_broken_compression(api: Api) -> None:
    good = gzip.compress(GOOD)
    for data in (
        GOOD,
        good[:-1],
        good[:12],
        good[:2],
        good + b"x",
        good + good,
        good[:15] + b"\xff" * 10 + good[25:],
        good[:-8] + bytes(8),
        b"\x1f\x8b",
        b"\x00",
    ):
        refused(api.post("/jobs", data, Content_Encoding="gzip"), 400, "invalid_payload")
    refused(api.post("/jobs", good), 400, "invalid_payload")
    twice = gzip.compress(good)
    refused(api.post("/jobs", twice, Content_Encoding="gzip"), 400, "invalid_payload")
    assert not Job.objects.exists()


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", "gzip;q=1", "chunked", "x" * 5000])
def test_unknown_encodings(api: Api, encoding: str) -> None:
    answer = api.post("/jobs", GOOD, Content_Encoding=encoding)
    refused(answer, 400, "invalid_request", "Content-Encoding")


@pytest.mark.parametrize(
    "media",
    [
        "text/plain",
        "application/xml",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "multipart/form-data; boundary=x",
        "application/json-seq",
        "*/*",
        "x",
        "application/json/x",
    ],
)
def test_unknown_content_types(api: Api, media: str) -> None:
    refused(api.post("/jobs", GOOD, Content_Type=media), 400, "invalid_request", "Content-Type")


@pytest.mark.parametrize(
    "media",
    [
        "application/json",
        "application/openjobspec+json",
        "APPLICATION/JSON",
        "application/json; charset=utf-8",
        'application/openjobspec+json; profile="x"',
        "application/json;",
    ],
)
def test_known_content_types(api: Api, media: str) -> None:
    assert api.post("/jobs", GOOD, Content_Type=media).status == 201


def test_no_content_type(api: Api) -> None:
    assert raw(api, GOOD, str(len(GOOD)), CONTENT_TYPE="").status == 201


@pytest.mark.fault("F121")
def test_sizes_of_the_parts(api: Api) -> None:
    refused(push(api, meta={"a": "x" * MAX_META_BYTES}), 413, "metadata_too_large", "meta")
    split = {"metadata": {"a": "x" * 40_000}, "meta": {"b": "x" * 40_000}}
    refused(push(api, **split), 413, "metadata_too_large", "meta")
    refused(push(api, args=["x" * MAX_ARGS_BYTES]), 413, "payload_too_large", "args")
    assert not Job.objects.exists()
    fits = {"a": "é" * ((MAX_META_BYTES - 8) // 2)}
    job = enqueue(api, meta=fits, args=["x" * (MAX_ARGS_BYTES - 4)])
    assert look(api, job)["meta"] == fits
    claimed = fetch(api)[0]
    lease = {"lease_id": claimed["lease"]["id"]}
    path = f"/jobs/{job['id']}"
    large = "x" * MAX_ARGS_BYTES
    refused(api.post(f"{path}/ack", {**lease, "result": large}), 413, "payload_too_large", "result")
    refused(
        api.post(f"{path}/checkpoint", {**lease, "state": large}), 413, "payload_too_large", "state"
    )
    body = {**lease, "progress": 0.5, "data": "x" * MAX_META_BYTES}
    refused(api.post(f"{path}/progress", body), 413, "payload_too_large", "data")
    labels = {"worker_id": "w1", "labels": {"a": "x" * MAX_META_BYTES}}
    refused(api.post("/workers/register", labels), 413, "payload_too_large", "labels")
    assert look(api, job)["state"] == "active"


# Batches


@pytest.mark.parametrize("jobs", [None, [], {}, "x", 5, True, {"0": {}}])
@pytest.mark.fault("F122")
def test_batches_that_are_none(api: Api, jobs: Any) -> None:
    refused(api.post("/jobs/batch", {"jobs": jobs}), 400, "invalid_request", "jobs")


@pytest.mark.fault("F122")
def test_the_size_of_a_batch(api: Api) -> None:
    one = {"type": "test.job", "args": []}
    refused(api.post("/jobs/batch", {"jobs": [one] * 1001}), 400, "invalid_request", "jobs")
    assert not Job.objects.exists()
    assert api.post("/jobs/batch", {"jobs": [one] * 1000}).body["count"] == 1000


@pytest.mark.parametrize(
    ("bad", "status", "code"),
    [
        ({"args": []}, 400, "invalid_request"),
        ({"type": "test.job", "args": [NUL]}, 400, "invalid_request"),
        ({"type": "test.job", "args": [], "queue": "No"}, 400, "invalid_request"),
        ({"type": "test.job", "args": [], "meta": {"a": "x" * 70_000}}, 413, "metadata_too_large"),
        ({"type": "test.job", "args": [], "specversion": "2.0"}, 422, "unsupported"),
        (None, 400, "invalid_request"),
        ([], 400, "invalid_request"),
        ("x", 400, "invalid_request"),
    ],
)
@pytest.mark.fault("F122")
def test_one_bad_job_of_many(api: Api, bad: Any, status: int, code: str) -> None:
    good = {"type": "test.job", "args": []}
    for index in (0, 57, 99):
        jobs: list[Any] = [good] * 100
        jobs[index] = bad
        error = refused(api.post("/jobs/batch", {"jobs": jobs}), status, code)
        assert error["details"]["index"] == index
        assert f"jobs[{index}]" in error["message"]
    assert not Job.objects.exists()
    assert not Event.objects.exists()


def test_a_batch_with_an_id_that_is_taken(api: Api) -> None:
    taken = enqueue(api, id=MISSING, args=[1])
    jobs = [{"type": "test.job", "args": []}, {"type": "test.job", "args": [2], "id": MISSING}]
    refused(api.post("/jobs/batch", {"jobs": jobs}), 409, "duplicate")
    assert Job.objects.count() == 1
    assert look(api, taken)["args"] == [1]


# What clients may not write


def evil() -> dict[str, Any]:
    """A value for every column of a job."""
    values: dict[str, Any] = {
        "UUIDField": "019539a4-b68c-7def-8000-ffffffffffff",
        "DateTimeField": "2031-01-01T00:00:00Z",
        "BooleanField": True,
        "FloatField": 0.99,
        "JSONField": {"evil": 1},
        "SmallIntegerField": 99,
        "IntegerField": 99,
        "BigIntegerField": 99,
    }
    found = {f.attname: values.get(f.get_internal_type(), "evil") for f in Job._meta.concrete_fields}
    assert len(found) > 40 and {"state", "lease_id", "lease_principal", "digest"} <= set(found)
    return found


LIMIT_COLUMNS = {f"{name}_ms" for name in NAMES}


def without(names: set[str]) -> dict[str, Any]:
    return {key: value for key, value in evil().items() if key not in names}


def differ(one: Mapping[str, Any], other: Mapping[str, Any]) -> set[str]:
    """The columns in which two jobs differ."""
    left, right = row(one), row(other)
    return {name for name in left if left[name] != right[name]}


@pytest.mark.fault("F123", "S7")
def test_no_column_is_written_by_an_enqueue(api: Api, frozen: FrozenClock) -> None:
    own = {"id", "type", "queue", "priority", "args", "meta", "tags", "retry"}
    own |= {"scheduled_at", "expires_at"} | LIMIT_COLUMNS
    plain = enqueue(api)
    tried = enqueue(api, **without(own))
    assert differ(plain, tried) <= {"id", "extra"}
    assert {"digest", "lease_id", "state", "error"}.isdisjoint(row(tried)["extra"])
    assert look(api, tried)["state"] == "available"
    inside = enqueue(api, options=without(own))
    assert differ(plain, inside) <= {"id"}
    batch = api.post("/jobs/batch", {"jobs": [{"type": "test.job", "args": [], **without(own)}]})
    assert differ(plain, batch.body["jobs"][0]) <= {"id", "extra"}


@pytest.mark.fault("F123", "S7")
def test_no_column_is_written_by_a_change(api: Api, frozen: FrozenClock) -> None:
    plain, tried = enqueue(api), enqueue(api)
    own = {"priority", "queue"} | LIMIT_COLUMNS
    refused(api("PATCH", f"/jobs/{tried['id']}", without(own)), 400, "invalid_request", "body")
    assert differ(plain, tried) == {"id"}
    assert api("PATCH", f"/jobs/{tried['id']}", {"priority": 5, **without(own)}).status == 200
    assert api("PATCH", f"/jobs/{plain['id']}", {"priority": 5}).status == 200
    assert differ(plain, tried) == {"id"}
    for path in ("cancel", "retry", "activate", "extend"):
        api.post(f"/jobs/{tried['id']}/{path}", {**without(set()), "expires_at": None})
        if path == "cancel":
            api.post(f"/jobs/{plain['id']}/cancel")
    assert differ(plain, tried) == {"id"}


@pytest.mark.fault("F123", "S7")
def test_no_column_is_written_by_a_worker(api: Api, frozen: FrozenClock) -> None:
    body = {"retry": {"jitter": False}, "timeout": 600}
    plain, tried = enqueue(api, queue="a", **body), enqueue(api, queue="b", **body)
    claimed = fetch(api, "a")[0]
    asked = {**without({"queue"}), "queues": ["b"], "worker_id": "w1", "visibility_timeout_ms": None}
    answer = api.post("/workers/fetch", asked)
    assert answer.status == 200, answer.raw
    taken = answer.body["jobs"][0]
    assert taken["id"] == tried["id"]
    same = {"id", "queue", "lease_id"}
    assert differ(plain, tried) == same
    frozen.advance(1)
    beat = {"worker_id": "w1", "active_jobs": [plain["id"]]}
    assert api.post("/workers/heartbeat", beat).body["jobs_extended"] == [plain["id"]]
    beat = {**asked, "active_jobs": [tried["id"]], "state": "running"}
    assert api.post("/workers/heartbeat", beat).body["jobs_extended"] == [tried["id"]]
    assert differ(plain, tried) == same
    evidence = {"worker_id", "attempt", "lease_id", "id"}
    said = {"progress": 0.5, "lease_id": claimed["lease"]["id"]}
    assert api.post(f"/jobs/{plain['id']}/progress", said).status == 200
    said = {**without(evidence), "progress": 0.5, "lease_id": taken["lease"]["id"]}
    assert api.post(f"/jobs/{tried['id']}/progress", said).status == 200
    assert differ(plain, tried) == same
    failed = {"job_id": plain["id"], "error": "boom"}
    assert api.post("/workers/nack", failed).status == 200
    failed = {**without(evidence), "job_id": tried["id"], "error": "boom"}
    assert api.post("/workers/nack", failed).status == 200
    assert differ(plain, tried) == {"id", "queue"}
    frozen.advance(60)
    fetch(api, "a", "b", count=2)
    assert api.post(f"/jobs/{plain['id']}/ack", {"result": 1}).status == 200
    done = {**without(evidence), "result": 1}
    assert api.post(f"/jobs/{tried['id']}/ack", done).status == 200
    assert differ(plain, tried) == {"id", "queue"}
    assert row(tried)["state"] == "completed"


def test_unknown_fields_are_kept_and_returned(api: Api) -> None:
    unknown = {"x_own": {"a": [1, None, "é😀"]}, "ext_x": 5, "Ünï": True, "sys": None, "__class__": "x"}
    job = enqueue(api, **unknown)
    found, claimed = look(api, job), fetch(api)[0]
    assert {name: found[name] for name in unknown} == unknown
    assert {name: claimed[name] for name in unknown} == unknown
    listed = api.get("/jobs").body["jobs"][0]
    assert {name: listed[name] for name in unknown} == unknown


def test_unknown_fields_do_not_shadow_ours(api: Api) -> None:
    job = enqueue(api, job={"id": "x"}, lease={"id": "x"}, errors=["x"], total_attempts=9, digest="x")
    found = look(api, job)
    assert found["id"] == job["id"]
    assert not {"lease", "errors", "digest"} & set(found)


# Queries and paths

INJECTIONS = (
    "' or 1=1 --",
    "id;drop table ojs_job",
    "1) union select secret_hash from ojs_apitoken--",
    '"; select pg_sleep(5)--',
    "%",
    "\\",
    "args__x__regex=.*",
    "-id,args",
    "../../etc/passwd",
    "${7*7}{{7*7}}%s%(a)s",
    "x\x00y",
    "\x00",
    "\u202e😀",
    "x" * 6000,
    "٣",
    "-1",
    "1_000",
    "NaN",
)
FREE = {"queue", "queues", "worker_id", "error_type"}
"""Any text is a name here; of one that nobody uses, nothing is found."""
PARAMETERS = {
    "/jobs": (
        "state",
        "queue",
        "type",
        "worker_id",
        "dead_letter",
        "error_type",
        "since",
        "until",
        "order",
        "sort",
    ),
    "/admin/jobs": ("state", "queue", "type", "order"),
    "/dead-letter": ("queue", "type", "error_type"),
    "/events": ("types", "type", "queues", "queue", "job_id", "after", "since"),
    "/workers": (),
    "/queues": (),
}
PAGING = ("limit", "offset", "page", "per_page", "cursor")


@pytest.fixture
def something(api: Api) -> dict[str, Any]:
    """A dead job, a worker and events: something that a list could show."""
    enqueue(api, retry={"max_attempts": 1, "on_exhaustion": "dead_letter"})
    job = fetch(api)[0]
    api.post("/workers/nack", {"job_id": job["id"], "error": "x"})
    return job


@pytest.mark.parametrize("path", PARAMETERS)
@pytest.mark.fault("F124", "S17")
def test_injections_in_query_parameters(api: Api, something: dict[str, Any], path: str) -> None:
    assert api.get(path).body["items"]
    for name in (*PARAMETERS[path], *PAGING):
        if path in ("/workers", "/queues") and name == "cursor":
            continue
        for text in INJECTIONS:
            answer = api.get(f"{path}?{name}={quote(text)}")
            if name in FREE and "\x00" not in text:
                assert answer.status in (200, 400), (name, text, answer.raw[:300])
                assert answer.status == 400 or answer.body["items"] == [], (name, text)
            else:
                assert answer.status in (400, 404), (name, text, answer.status, answer.raw[:300])
                error_of(answer)


@pytest.mark.parametrize("path", PARAMETERS)
@pytest.mark.parametrize(
    "name", ["search", "args__x__regex", "' or 1=1", "order_by", "id", "x" * 3000, "\x00", "q[]"]
)
@pytest.mark.fault("F125", "S16")
def test_parameters_that_do_not_exist(api: Api, path: str, name: str) -> None:
    answer = api.get(f"{path}?{quote(name)}=1")
    assert answer.status in (400, 404), answer.raw[:200]
    error_of(answer)


@pytest.mark.parametrize(
    "order", ["args", "-args", "id", "priority", "created_at desc", "asc,desc", "ASC"]
)
@pytest.mark.fault("F125", "S16")
def test_orders_without_an_index(api: Api, order: str) -> None:
    refused(api.get(f"/jobs?order={quote(order)}"), 400, "invalid_request", "order")
    refused(api.get(f"/jobs?sort={quote(order)}"), 400, "invalid_request", "sort")


@pytest.mark.fault("F124")
def test_cursors_are_signed(api: Api) -> None:
    for _ in range(3):
        enqueue(api)
    cursor = api.get("/jobs?limit=1").body["pagination"]["next_cursor"]
    assert api.get(f"/jobs?limit=1&cursor={cursor}").status == 200
    forged = (
        cursor[:-1] + ("a" if cursor[-1] != "a" else "b"),
        cursor.replace(cursor[:8], "00000000", 1),
        cursor.partition(":")[0],
        f"' or 1=1{cursor}",
        cursor + "x",
        ":",
        "~",
    )
    for text in forged:
        refused(api.get(f"/jobs?cursor={quote(text)}"), 400, "invalid_request", "cursor")
    refused(api.get(f"/dead-letter?cursor={quote(cursor)}"), 400, "invalid_request", "cursor")


@pytest.mark.fault("S16")
def test_limits_of_lists(api: Api) -> None:
    enqueue(api)
    assert api.get("/jobs?limit=999999999").body["pagination"]["limit"] == 200
    for name in ("limit", "per_page", "page"):
        refused(api.get(f"/jobs?{name}=0"), 400, "invalid_request", name)
    refused(api.get("/jobs?offset=10001"), 400, "invalid_request", "offset")
    refused(api.get("/jobs?page=999999999"), 400, "invalid_request", "offset")


@pytest.mark.parametrize(
    "text", ["job:", "queue:", "job", "everything", "' or 1=1", "job:x\x00", "queue:Q!", "queue:\x00"]
)
def test_channels_of_the_stream(api: Api, text: str) -> None:
    error_of(api.get(f"/events/stream?channel={quote(text)}"))


@pytest.mark.parametrize("text", [*INJECTIONS[:12], "evt_", "evt_x"])
def test_places_in_the_stream(api: Api, text: str) -> None:
    answer = api.get("/events/stream", Last_Event_ID=quote(text))
    refused(answer, 400, "invalid_request", "Last-Event-ID")
    error_of(api.get(f"/events/stream?types={quote(text)}"))


def odd_ids(real: str) -> tuple[str, ...]:
    return (
        real.upper(),
        f"{{{real}}}",
        f"urn:uuid:{real}",
        real.replace("-", ""),
        f" {real}",
        f"{real} ",
        f"{real}\n",
        f"{real}\x00",
        " " * 36,
        "x" * 6000,
        "0" * 36,
        "' or 1=1 --",
        "٣" * 32,
        "\x00",
        "null",
        "-1",
        "..%2f",
        real[:-1],
        real + "0",
        MISSING,
    )


@pytest.mark.fault("F126")
def test_odd_ids_are_not_found(api: Api) -> None:
    job = enqueue(api)
    before = row(job)
    gets = ("", "/result", "/progress", "/checkpoint", "/events")
    posts = ("/cancel", "/activate", "/retry", "/ack", "/nack", "/fail")
    for text in odd_ids(job["id"]):
        place = f"/jobs/{quote(text, safe='')}"
        for path in gets:
            refused(api.get(place + path), 404, "not_found")
        for path in posts:
            refused(api.post(place + path), 404, "not_found")
        refused(api("DELETE", place), 404, "not_found")
        refused(api("PATCH", place, {"priority": 5}), 404, "not_found")
        refused(api.post(f"{place}/extend", {"by": 5}), 404, "not_found")
        refused(api.post(f"{place}/progress", {"progress": 0.5}), 404, "not_found")
        refused(api.post(f"{place}/checkpoint", {"state": 1}), 404, "not_found")
        for path in (
            f"/dead-letter/{quote(text, safe='')}",
            f"/admin/dead-letter/{quote(text, safe='')}",
        ):
            refused(api.get(path), 404, "not_found")
            refused(api("DELETE", path), 404, "not_found")
        for path in ("/workers/ack", "/workers/nack"):
            refused(api.post(path, {"job_id": text}), 404, "not_found")
    assert row(job) == before


@pytest.mark.parametrize("text", [NUL, "\x00", "x" * 6000, "' or 1=1", "😀", " ", "%", "\\"], ids=ascii)
def test_odd_names_in_paths(api: Api, text: str) -> None:
    """Queues exist by being named, so a strange name may be one that is empty; never more."""
    name = quote(text, safe="")
    for path in (f"/workers/{name}", f"/workers/{name}/health", f"/admin/workers/{name}"):
        refused(api.get(path), 404, "not_found")
    for verb in ("quiet", "terminate", "resume"):
        refused(api.post(f"/workers/{name}/{verb}"), 404, "not_found")
    refused(api("DELETE", f"/workers/{name}"), 404, "not_found")
    for path in (f"/queues/{name}", f"/queues/{name}/stats"):
        answer = api.get(path)
        assert answer.status in (200, 400, 404), answer.raw[:300]
    for path in (f"/queues/{name}/pause", f"/queues/{name}/resume"):
        assert error_of(api.post(path))["code"] in ("invalid_request", "not_found")
    assert error_of(api.get(f"/queues/{name}/events"))["code"] in ("invalid_request", "not_found")
    refused(api.get(f"/errors/{name}"), 404, "not_found")
    refused(api.get(f"/{name}"), 404, "not_found")
    error_of(api.get(f"/admin/schemas/{name}"))
    error_of(api.get(f"/admin/schemas/{name}/1"))
    error_of(api("DELETE", f"/admin/schemas/{name}/1"))
    error_of(api("PUT", f"/admin/schemas/{name}/1", {"schema": {"type": "array"}}))
    assert api.get(f"/admin/schemas/{name}/versions").status in (200, 400, 404)


@pytest.mark.parametrize(
    "text", ["x", "", "' or 1=1", MISSING[:-1], "\u0663" * 32, "x" * 5000, 5, [], {}, True]
)
def test_odd_lease_ids(api: Api, text: Any) -> None:
    enqueue(api)
    job = fetch(api)[0]
    for verb in ("ack", "nack", "fail"):
        answer = api.post(f"/jobs/{job['id']}/{verb}", {"lease_id": text})
        assert answer.status in (400, 409), answer.raw
        error_of(answer)
        if isinstance(text, str) and text.isascii() and text:
            refused(api.post(f"/jobs/{job['id']}/{verb}", None, OJS_Lease=text), 400, "invalid_request")
    beat = {"worker_id": "w1", "leases": [{"job_id": job["id"], "lease_id": text}]}
    answer = api.post("/workers/heartbeat", beat)
    assert answer.status == 400 or answer.body["jobs_extended"] == []
    assert look(api, job)["state"] == "active"


# Every route

BODIES: dict[str, bytes] = {
    "empty": b"",
    "null": b"null",
    "array": b"[]",
    "string": b'"x"',
    "number": b"1",
    "true": b"true",
    "half": b'{"a":',
    "two": b"{}{}",
    "single quotes": b"{'a': 1}",
    "comma": b'{"a":1,}',
    "text": b"hello",
    "blank": b"   ",
    "invalid utf-8": b'{"a":"\xff\xfe"}',
    "cut utf-8": b'{"a":"\xc3',
    "overlong": b'{"a":"\xc0\x80"}',
    "utf-16": '{"a":1}'.encode("utf-16"),
    "byte order mark": b"\xef\xbb\xbf{}",
    "control character": b'{"a":"\x01"}',
    "brackets": b"[" * 100_000,
    "objects": b'{"a":' * 100_000,
    "nan": b'{"a":NaN}',
    "digits": b'{"a":' + b"9" * 5000 + b"}",
}


def with_body(*, aliases: bool = True) -> Iterator[tuple[str, str]]:
    """Every path of every method that has a body."""
    assert get_resolver().url_patterns
    for part in slices():
        for route in part.routes:
            for method in route.actions:
                if method in ("post", "put", "patch"):
                    yield route.path, method
                    yield from ((path, method) for path in route.aliases if aliases)


def test_the_walk_is_complete() -> None:
    walk = list(with_body())
    assert len(walk) > 40
    assert {"jobs", "jobs/batch", "workers/fetch", "workers/beat"} <= {path for path, _ in walk}


@pytest.mark.parametrize("kind", BODIES)
def test_every_route_answers_a_bad_body_with_the_envelope(api: Api, kind: str) -> None:
    waiting, active = enqueue(api, queue="waiting"), enqueue(api, queue="active")
    fetch(api, "active")
    dead = enqueue(api, queue="dead")
    discard([UUID(dead["id"])])
    before = list(Job.objects.order_by("pk").values())
    workers = list(Worker.objects.values())
    for template, method in with_body():
        for job in (waiting, active, dead):
            path = template.format(
                job_id=job["id"], worker_id="w1", name="waiting", type="t", version="1"
            )
            place = f"/{path}"
            if kind == "empty":
                if _acts_without_a_body(template):
                    continue
                refused_or_conflict(api(method.upper(), place), place)
                continue
            answer = api(method.upper(), place, BODIES[kind])
            if template.endswith("/activate"):
                assert answer.status == 409
            else:
                error = error_of(answer)
                assert (answer.status, error["code"]) in {
                    (400, "invalid_payload"),
                    (400, "invalid_request"),
                }, (method, path, answer.raw[:200])
            if "{job_id}" not in template:
                break
    assert list(Job.objects.order_by("pk").values()) == before
    assert list(Worker.objects.values()) == workers


def _acts_without_a_body(template: str) -> bool:
    last = template.rsplit("/", 1)[-1]
    return last in {
        "cancel",
        "retry",
        "ack",
        "nack",
        "fail",
        "pause",
        "resume",
        "quiet",
        "terminate",
    } and ("{" in template)


def refused_or_conflict(answer: Answer, where: str) -> None:
    assert answer.status in (400, 409), (where, answer.raw[:200])
    error_of(answer)


def test_every_route_survives_bodies_of_the_wrong_shape(api: Api) -> None:
    """Every field that any endpoint reads, at every endpoint: 4xx or done, never a 5xx.

    Each with a value of one type: which, goes by a hash of route and field, so that it is the same
    every time, and every field meets every type somewhere.
    """
    names = [
        "type",
        "args",
        "id",
        "queue",
        "priority",
        "meta",
        "tags",
        "retry",
        "timeout",
        "scheduled_at",
        "expires_at",
        "options",
        "jobs",
        "name",
        "job_id",
        "worker_id",
        "lease",
        "lease_id",
        "attempt",
        "result",
        "error",
        "requeue",
        "directive",
        "response_code",
        "queues",
        "count",
        "wait_ms",
        "visibility_timeout",
        "active_jobs",
        "active_job_ids",
        "leases",
        "state",
        "shutdown",
        "labels",
        "pid",
        "hostname",
        "progress",
        "percentage",
        "message",
        "data",
        "extend_timeout",
        "metadata",
        "step_index",
        "reason",
        "schema",
        "by",
    ]
    values: tuple[Any, ...] = (True, 10**30, LONE, [None], {"a": {}})
    met: dict[str, set[int]] = {name: set() for name in names}
    job = enqueue(api)
    fetch(api)
    for template, method in with_body(aliases=False):
        path = template.format(job_id=job["id"], worker_id="w1", name="other", type="t", version="1")
        base: dict[str, Any] = {"worker_id": "w1", "job_id": MISSING, "queues": ["none"]}
        if "{job_id}" in template and template.rsplit("/", 1)[-1] not in ("progress", "checkpoint"):
            path = path.replace(job["id"], MISSING)
        if template in ("jobs", "jobs/batch"):
            base |= {"type": "test.job", "args": [], "queue": "other"}
        if template == "workers/fetch":
            base["wait_ms"] = 0
        for name in names:
            chosen = zlib.crc32(f"{method} {template} {name}".encode()) % len(values)
            if (name, values[chosen]) == ("wait_ms", 10**30):
                chosen = 0
            met[name].add(chosen)
            answer = api(method.upper(), f"/{path}", {**base, name: values[chosen]})
            where = (method, path, name, values[chosen])
            assert answer.status < 500, (where, answer.raw[:300])
            if answer.status >= 400:
                error_of(answer)
    everything = set(range(len(values)))
    assert {name for name in names if met[name] != everything} == {"wait_ms"}
    assert look(api, job)["state"] == "active"
