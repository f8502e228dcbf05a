"""Headers: which are believed, which every answer has."""

from __future__ import annotations

import re

import pytest

from django_ojs.models import Job
from tests.http.guarding import MISSING, call, error
from tests.http.support import Api, enqueue, look
from tests.http.test_matrix import ALL

pytestmark = pytest.mark.usefixtures("one_window")


# Headers (S27, S28, S32)

SPOOFED = {
    "X-OJS-Tenant": "q2",
    "X-OJS-Tenant-ID": "q2",
    "X-Forwarded-For": "127.0.0.1",
    "X-Forwarded-Host": "evil.example",
    "X-Forwarded-Proto": "https",
    "X-Forwarded-User": "root",
    "X-Remote-User": "root",
    "Remote-User": "root",
    "X-User": "root",
    "X-HTTP-Method-Override": "DELETE",
    "X-Original-URL": "/ojs/v1/admin/stats",
    "Forwarded": "for=127.0.0.1;host=evil.example",
}


@pytest.mark.fault("S27")
def test_spoofed_headers_change_nothing(tenants: tuple[Api, Api]) -> None:
    mine, every = tenants
    job = enqueue(every, queue="q2")
    error(Api(None).get("/jobs", **SPOOFED), 401, "unauthenticated")
    error(mine.get(f"/jobs/{job['id']}", **SPOOFED), 404, "not_found")
    assert mine.get("/jobs", **SPOOFED).body["items"] == []
    body = {"type": "test.job", "args": [], "queue": "q1"}
    answer = mine.post("/jobs", body, **SPOOFED)
    assert answer.status == 201
    assert answer.headers["Location"] == f"/ojs/v1/jobs/{answer.body['id']}"
    assert b"evil" not in answer.raw
    assert look(every, job)["state"] == "available"


@pytest.mark.fault("S28")
def test_no_cross_origin_header_at_all(api: Api) -> None:
    asked = {
        "Origin": "https://evil.example",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization",
    }
    for client in (api, Api(None)):
        for method, path in (
            ("OPTIONS", "/jobs"),
            ("OPTIONS", f"/jobs/{MISSING}"),
            ("GET", "/jobs"),
            ("POST", "/jobs"),
            ("GET", "//health"),
            ("OPTIONS", "//health"),
            ("GET", "//ojs/manifest"),
            ("OPTIONS", "/nothing"),
        ):
            answer = client(method, path, None, **asked)
            assert not [name for name in answer.headers if name.lower().startswith("access-control")]
            if method == "OPTIONS":
                assert answer.status in (401, 403, 404, 405), (path, answer.status)


@pytest.mark.slow
@pytest.mark.fault("S32")
def test_headers_of_every_answer(api: Api) -> None:
    """Whatever the answer is: nothing to sniff, nothing to keep, an id and the version."""
    seen = set()
    for op in ALL:
        for client in (api, Api(None)):
            if client is api and op.action in ("stream", "of_job", "of_queue"):
                continue
            answer = call(op, client)
            seen.add(answer.status)
            headers = answer.headers
            assert headers["X-Content-Type-Options"] == "nosniff", op
            assert headers["Cache-Control"] == "no-store", op
            assert headers["OJS-Version"] == "1.0", op
            assert headers["X-Request-Id"].startswith("req_"), op
            assert int(headers["Content-Length"]) == len(answer.raw), op
            if (op.action, answer.status) == ("metrics", 200):
                assert headers["Content-Type"] == "text/plain"
            else:
                assert headers["Content-Type"].startswith("application/openjobspec+json"), op
    assert {200, 400, 401, 404} <= seen


@pytest.mark.parametrize("given", ["abc", "req_1", "x" * 255, "!~", "a,b;c=d", "<script>"])
def test_a_request_id_is_echoed(api: Api, given: str) -> None:
    for path in ("/jobs", f"/jobs/{MISSING}", "/nothing"):
        answer = api.get(path, X_Request_Id=given)
        assert answer.headers["X-Request-Id"] == given
        if answer.status >= 400:
            assert answer.body["error"]["request_id"] == given


@pytest.mark.parametrize(
    "given", ["", " ", "a b", "x" * 256, "é", "\x7f", "a\tb", "\x00", "a\x1b[31mb", "٣"]
)
def test_a_request_id_that_is_not_printable_is_replaced(api: Api, given: str) -> None:
    for path in ("/jobs", "/nothing"):
        answer = api.get(path, X_Request_Id=given)
        assert re.fullmatch(r"req_[0-9a-f-]{36}", answer.headers["X-Request-Id"])


@pytest.mark.parametrize(
    "version", ["2", "2.0", "0", "0.9", "x", "1.x", "11", "", "1.0; x", "1.0\x00", "-1", "1."]
)
def test_other_versions_are_unsupported(api: Api, version: str) -> None:
    found = error(api.get("/jobs", OJS_Version=version), 422, "unsupported")
    assert found["details"]["field"] == "OJS-Version"
    error(api.post("/jobs", {"type": "test.job", "args": []}, OJS_Version=version), 422, "unsupported")
    assert not Job.objects.exists()


@pytest.mark.parametrize("version", ["1", "1.0", "1.0.0", "1.0.0-rc.1", "1.7"])
def test_every_version_one_is_supported(api: Api, version: str) -> None:
    answer = api.get("/jobs", OJS_Version=version)
    assert (answer.status, answer.headers["OJS-Version"]) == (200, "1.0")
