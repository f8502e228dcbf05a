"""Adversarial patterns and names."""

from __future__ import annotations

import sys
from urllib.parse import quote

import pytest

from tests.http.guarding import error
from tests.http.support import Api, enqueue, fetch, look

pytestmark = pytest.mark.usefixtures("one_window")


@pytest.mark.timeout(30)
@pytest.mark.fault("S15")
def test_patterns_are_not_regular_expressions(api: Api) -> None:
    evil = ["(a+)+$", "(.*)*x", ".*", "a" * 255, "[", "(?P<x>", "a.*"]
    enqueue(api, retry={"non_retryable_errors": evil, "jitter": False})
    job = fetch(api)[0]
    failure = {"type": "a" * 200_000 + "!", "message": "aaaa", "code": "ab"}
    answer = api.post("/workers/nack", {"job_id": job["id"], "error": failure})
    assert answer.body["state"] in ("retryable", "discarded")
    enqueue(api, queue="two", retry={"non_retryable_errors": ["(a+)+$", "b.*"], "jitter": False})
    job = fetch(api, "two")[0]
    answer = api.post("/workers/nack", {"job_id": job["id"], "error": {"type": "aaaa"}})
    assert answer.body["state"] == "retryable"


@pytest.mark.timeout(30)
@pytest.mark.parametrize("unit", ["a.", "a-", "a", "-", ".", "1", "P", "T1", "1h", "0"])
@pytest.mark.fault("S15")
def test_names_and_times_are_matched_in_linear_time(api: Api, unit: str) -> None:
    long = unit * 300_000
    for name in ("type", "queue", "id", "timeout", "scheduled_at", "specversion"):
        body = {"type": "test.job", "args": [], name: long + "!"}
        assert api.post("/jobs", body).status in (400, 422), name
    for path in ("/jobs?cursor=", "/jobs?since=", "/jobs?type=", "/events?after="):
        assert api.get(path + quote(long[:5000] + "!")).status == 400, path
    assert api.get("/health", X_Request_Id=long[:5000]).status == 200
    assert api.get("/jobs", OJS_Version=long[:5000] + "!").status == 422
    assert Api(long[:5000]).get("/jobs").status in (401, 429)


@pytest.mark.fault("S20")
def test_a_type_is_a_name_and_nothing_is_imported(api: Api) -> None:
    for name in ("this", "antigravity"):
        assert name not in sys.modules
    enqueue(api)
    api.get("/jobs")
    fetch(api, "none")
    before = set(sys.modules)
    for kind in ("os.system", "this.s", "antigravity.fly", "subprocess.popen", "builtins.eval", "this"):
        job = enqueue(api, type=kind, args=["echo pwned"])
        assert look(api, job)["type"] == kind
    for kind in ("subprocess.Popen", "../../x", "os:system", "__main__.x", "this\x00"):
        error(api.post("/jobs", {"type": kind, "args": []}), 400, "invalid_request")
    assert len(fetch(api, count=10)) == 7
    assert set(sys.modules) == before
