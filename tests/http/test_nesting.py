"""How deep JSON may be: known before anything is parsed."""

from __future__ import annotations

from typing import Any

import pytest

from django_ojs.domain.errors import OJSError
from django_ojs.http.body import check_depth, parse
from django_ojs.models import Job
from tests.http.refusing import nested, refused
from tests.http.support import Api, enqueue, fetch, look


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


@pytest.mark.slow
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


@pytest.mark.slow
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
