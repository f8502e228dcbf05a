"""Odd ids and names in paths and bodies."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from tests.http.conftest import Caller
from tests.http.refusing import MISSING, NUL, error_of, refused, row
from tests.http.support import Api, enqueue, fetch, look


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


@pytest.mark.slow
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


def test_a_queue_with_an_underscore_is_reached_by_every_way(caller: Caller) -> None:
    api = caller()
    one = enqueue(api, queue="queue_1")
    enqueue(api, queue="queuex1")
    assert api.get("/queues/queue_1/stats").body["stats"]["available"] == 1
    assert [job["id"] for job in api.get("/jobs?queue=queue_1").body["jobs"]] == [one["id"]]
    assert api.post("/queues/queue_1/pause").body["paused"] is True
    assert api.post("/queues/queue_1/resume").body["paused"] is False
    some = caller(name="some", queues=["queue_*"])
    assert [queue["name"] for queue in some.get("/queues").body["queues"]] == ["queue_1"]
    assert [job["id"] for job in some.get("/jobs").body["jobs"]] == [one["id"]]
    assert [job["id"] for job in fetch(some, "queue_1")] == [one["id"]]
    assert some.post("/workers/fetch", {"queues": ["queuex1"], "worker_id": "w"}).status == 403


@pytest.mark.parametrize("path", ["/ojs", "/ojs/", "/ojs/metrics", "/ojs/v2/jobs", "/ojs/v1/nowhere"])
def test_unknown_paths_below_the_prefix_are_problems(api: Api, path: str) -> None:
    refused(api.get(f"/{path}"), 404, "not_found")
    refused(Api(None).get(f"/{path}"), 401, "unauthenticated")
