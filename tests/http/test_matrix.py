"""Who may do what: every route and method, generated from the URL conf, against every role.

A route without an entry in ``MATRIX`` fails: access is decided here, by hand, and only compared with
what the viewsets say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pytest
from django.urls import URLPattern, URLResolver, get_resolver

from django_ojs.http.base import OPEN, OJSViewSet
from django_ojs.services.tokens import SCOPES
from tests.http.conftest import Caller
from tests.http.support import Api

PRODUCE, WORK, INSPECT, ADMINISTER, METRICS = SCOPES
ANY = frozenset(SCOPES)
MATRIX: dict[str, set[str]] = {
    "JobViewSet.create": {PRODUCE},
    "JobViewSet.batch": {PRODUCE},
    "JobViewSet.activate": {PRODUCE, ADMINISTER},
    "JobViewSet.list": {INSPECT},
    "JobViewSet.retrieve": {INSPECT},
    "JobViewSet.result": {INSPECT},
    "JobViewSet.cancel": {ADMINISTER},
    "JobViewSet.partial_update": {ADMINISTER},
    "JobViewSet.retry": {ADMINISTER},
    "JobViewSet.extend": {ADMINISTER, WORK},
    "FlatJobViewSet.retrieve": {INSPECT},
    "FlatJobViewSet.partial_update": {ADMINISTER},
    "WorkViewSet.fetch": {WORK},
    "WorkViewSet.ack": {WORK},
    "WorkViewSet.nack": {WORK},
    "WorkViewSet.beat": {WORK},
    "WorkViewSet.register": {WORK},
    "WorkViewSet.deregister": {WORK},
    "ReportViewSet.ack": {WORK},
    "WorkerViewSet.list": {INSPECT},
    "WorkerViewSet.retrieve": {INSPECT},
    "WorkerViewSet.health": {INSPECT, WORK},
    "WorkerViewSet.quiet": {ADMINISTER},
    "WorkerViewSet.terminate": {ADMINISTER},
    "WorkerViewSet.resume": {ADMINISTER},
    "WorkerViewSet.destroy": {ADMINISTER, WORK},
    "ProgressViewSet.report": {WORK},
    "ProgressViewSet.retrieve": {INSPECT, WORK},
    "CheckpointViewSet.save": {WORK},
    "CheckpointViewSet.retrieve": {INSPECT, WORK},
    "CheckpointViewSet.resume": {INSPECT, WORK},
    "CheckpointViewSet.destroy": {WORK},
    "QueueViewSet.list": {INSPECT},
    "QueueViewSet.create": {ADMINISTER},
    "QueueViewSet.retrieve": {INSPECT},
    "QueueViewSet.stats": {INSPECT},
    "QueueViewSet.pause": {ADMINISTER},
    "QueueViewSet.resume": {ADMINISTER},
    "DeadLetterViewSet.list": {INSPECT},
    "DeadLetterViewSet.stats": {INSPECT},
    "DeadLetterViewSet.retrieve": {INSPECT},
    "DeadLetterViewSet.retry": {ADMINISTER},
    "DeadLetterViewSet.destroy": {ADMINISTER},
    "BareDeadLetterViewSet.retrieve": {INSPECT},
    "BareDeadLetterViewSet.destroy": {ADMINISTER},
    "EventViewSet.list": {INSPECT},
    "EventViewSet.stream": {INSPECT},
    "EventViewSet.of_job": {INSPECT},
    "EventViewSet.of_queue": {INSPECT},
    "CronViewSet.create": {PRODUCE},
    "CronViewSet.list": {INSPECT},
    "CronViewSet.retrieve": {INSPECT},
    "CronViewSet.runs": {INSPECT},
    "CronViewSet.update": {ADMINISTER},
    "CronViewSet.partial_update": {ADMINISTER},
    "CronViewSet.destroy": {ADMINISTER},
    "CronViewSet.pause": {ADMINISTER},
    "CronViewSet.resume": {ADMINISTER},
    "CronViewSet.trigger": {ADMINISTER},
    "RateLimitViewSet.list": {INSPECT},
    "RateLimitViewSet.retrieve": {INSPECT},
    "RateLimitViewSet.update": {ADMINISTER},
    "RateLimitViewSet.update_queue": {ADMINISTER},
    "RateLimitViewSet.destroy_override": {ADMINISTER},
    "WorkflowViewSet.create": {PRODUCE},
    "WorkflowViewSet.list": {INSPECT},
    "WorkflowViewSet.retrieve": {INSPECT},
    "WorkflowViewSet.progress": {INSPECT},
    "WorkflowViewSet.results": {INSPECT, WORK},
    "WorkflowViewSet.cancel": {ADMINISTER},
    "WorkflowViewSet.resume": {ADMINISTER},
    "SchemaViewSet.list": {INSPECT},
    "SchemaViewSet.latest": {INSPECT},
    "SchemaViewSet.versions": {INSPECT},
    "SchemaViewSet.retrieve": {INSPECT},
    "SchemaViewSet.update": {ADMINISTER},
    "SchemaViewSet.destroy": {ADMINISTER},
    "SystemViewSet.health": {OPEN},
    "SystemViewSet.ready": {OPEN},
    "SystemViewSet.manifest": {OPEN},
    "SystemViewSet.problem": {OPEN},
    "SystemViewSet.stats": {INSPECT},
    "SystemViewSet.metrics": {METRICS, INSPECT},
    "SystemViewSet.nothing": set(SCOPES),
}


class Operation(NamedTuple):
    """One method of one path."""

    method: str
    path: str
    view: type[OJSViewSet]
    action: str

    @property
    def name(self) -> str:
        """How the matrix calls it."""
        return f"{self.view.__name__}.{self.action}"

    @property
    def allowed(self) -> set[str]:
        """The roles that may, ``open`` for everybody."""
        return MATRIX[self.name]


def operations() -> Iterator[Operation]:
    """Every method of every pattern of the URL conf that is ours, aliases included."""
    for pattern in _patterns(get_resolver().url_patterns):
        view = getattr(pattern.callback, "cls", None)
        if isinstance(view, type) and issubclass(view, OJSViewSet):
            for method, action in pattern.callback.actions.items():  # type: ignore[attr-defined]
                if method != "head":
                    yield Operation(method.upper(), _example(pattern), view, action)


def _patterns(found: Sequence[URLPattern | URLResolver]) -> Iterator[URLPattern]:
    for item in found:
        if isinstance(item, URLPattern):
            yield item
        elif "admin" not in str(item.pattern):
            yield from _patterns(item.url_patterns)


def _example(pattern: URLPattern) -> str:
    """A path that the pattern matches, of nothing that exists."""
    text = str(pattern.pattern).removeprefix("^").removesuffix(r"\Z").replace("/?", "")
    text = text.replace("(?:ojs/v1/)?", "").replace(r"(?:/(?P<rest>.*))?", "/nothing-here")
    text = re.sub(r"\(\?P<version>\[\^/\]\+\)", "77", text)
    text = re.sub(r"\(\?P<\w+>\[\^/\]\+\)", "019539a4-b68c-7def-8000-1a2b3c4d5e6f", text)
    return "/" + text.replace("\\", "")


ALL = sorted(set(operations()), key=lambda op: (op.path, op.method))


@pytest.mark.fault("S2")
def test_every_operation_is_in_the_matrix() -> None:
    assert {op.name for op in ALL} == set(MATRIX)
    assert len(ALL) > 80


def test_the_viewsets_say_the_same() -> None:
    declared = {op.name: set(op.view.scopes[op.action]) for op in ALL}
    assert declared == MATRIX


@pytest.mark.parametrize("role", [*SCOPES, "stranger"])
@pytest.mark.fault("S2")
def test_the_matrix_holds(caller: Caller, role: str) -> None:
    """Over all operations: 401 for strangers, 403 outside the role, anything else within it."""
    api = Api(None) if role == "stranger" else caller(role)
    for op in ALL:
        if op.action in ("stream", "of_queue") and role == INSPECT:
            continue
        answer = api(op.method, f"/{op.path}", {} if op.method != "GET" else None)
        where = f"{role} {op.method} {op.path}"
        if OPEN in op.allowed:
            assert answer.status in (200, 404), where
        elif role == "stranger":
            assert (answer.status, answer.code) == (401, "unauthenticated"), where
        elif role in op.allowed:
            assert answer.status not in (401, 403), where
            assert answer.status < 500, where
        else:
            assert (answer.status, answer.code) == (403, "permission_denied"), where


def test_an_action_without_scopes_is_for_nobody(caller: Caller) -> None:
    from rest_framework.test import APIRequestFactory

    class Forgotten(OJSViewSet):
        def list(self, request: object) -> object:
            raise AssertionError("reached")

    view = Forgotten.as_view({"get": "list"})
    token = caller().token
    request = APIRequestFactory().get("/", HTTP_AUTHORIZATION=f"Bearer {token}")
    assert view(request).status_code == 403
    assert view(APIRequestFactory().get("/")).status_code == 401


def test_a_method_that_is_not_there(api: Api) -> None:
    answer = api("DELETE", "/queues")
    assert (answer.status, answer.code) == (405, "invalid_request")
    assert answer.headers["Allow"]
    assert Api(None)("DELETE", "/queues").status == 401


@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_a_refused_method_is_not_named_among_those_allowed(api: Api, method: str) -> None:
    answer = api(method, "/workers/fetch")
    assert (answer.status, answer.code) == (405, "invalid_request")
    assert answer.headers["Allow"] == "POST"
    assert answer.body["error"]["message"] == f"{method} is not allowed here; allowed: POST"


def test_a_method_that_is_not_there_is_not_a_question_of_scopes(api: Api) -> None:
    answer = api("OPTIONS", "/jobs")
    assert (answer.status, answer.code) == (405, "invalid_request")
    assert "POST" in answer.headers["Allow"]
    assert Api(None)("OPTIONS", "/jobs").status == 401
