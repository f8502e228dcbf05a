"""Enqueue middleware sees the jobs that come over HTTP."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from django_ojs import enqueue_middleware
from django_ojs.models import Job
from tests.http.support import Api
from tests.services.test_middleware import dropping, refusing


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    yield
    enqueue_middleware.reset()


def test_a_job_that_is_dropped_is_answered_with_200(api: Api) -> None:
    enqueue_middleware.add(dropping)
    answer = api.post("/jobs", {"type": "test.job", "args": ["drop"]})
    assert (answer.status, answer.body["job"]["state"]) == (200, "dropped")
    assert api.post("/jobs", {"type": "test.job", "args": []}).status == 201
    assert Job.objects.count() == 1


def test_a_refusal_is_a_400(api: Api) -> None:
    enqueue_middleware.add(refusing)
    answer = api.post("/jobs", {"type": "test.job", "args": ["bad"]})
    assert (answer.status, answer.code) == (400, "invalid_request")
    assert Job.objects.count() == 0
