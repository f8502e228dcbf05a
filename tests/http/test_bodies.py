"""The body as a whole: its length, its encoding, its type and its size."""

from __future__ import annotations

import gzip
import io
import tracemalloc
import zlib
from typing import Any

import pytest
from django.test import Client, override_settings

from django_ojs.domain.jsonvalue import MAX_ARGS_BYTES, MAX_ENVELOPE_BYTES, MAX_META_BYTES
from django_ojs.models import Job
from tests.http.refusing import push, refused
from tests.http.support import MEDIA, Answer, Api, enqueue, fetch, look


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


@pytest.mark.slow
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
