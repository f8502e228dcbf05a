"""Numbers that are not finite, too large or of the wrong kind."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.refusing import error_of, push, refused
from tests.http.support import Api, enqueue, fetch, look


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
        1e15,
        1e16,
        -1.5e22,
        1e308,
    ]
    job = enqueue(api, args=numbers, meta={"n": 2**53 + 1}, x_n=2**63)
    found = look(api, job)
    assert found["args"] == numbers
    assert [type(n) for n in found["args"]] == [type(n) for n in numbers]
    assert (found["meta"], found["x_n"]) == ({"n": 2**53 + 1}, 2**63)
    claimed = fetch(api)[0]
    assert claimed["args"] == numbers
    assert [type(n) for n in claimed["args"]] == [type(n) for n in numbers]
    done = {"result": numbers, "lease_id": claimed["lease"]["id"]}
    assert api.post(f"/jobs/{job['id']}/ack", done).status == 200
    result = look(api, job)["result"]
    assert result == numbers
    assert [type(n) for n in result] == [type(n) for n in numbers]


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
