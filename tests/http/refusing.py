"""Bad input over HTTP: an error envelope that names the field, never a 5xx, and nothing written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django_ojs.models import Job
from tests.http.support import Answer, Api

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
