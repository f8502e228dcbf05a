"""Batches: what is none, how large one may be, one bad job of many."""

from __future__ import annotations

from typing import Any

import pytest

from django_ojs.models import Event, Job
from tests.http.refusing import MISSING, NUL, refused
from tests.http.support import Api, enqueue, look


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
    details = refused(api.post("/jobs/batch", {"jobs": jobs}), 409, "duplicate")["details"]
    assert (details["existing_job_id"], details["index"]) == (MISSING, 1)
    assert Job.objects.count() == 1
    assert look(api, taken)["args"] == [1]
    alone = refused(api.post("/jobs", jobs[1]), 409, "duplicate")["details"]
    assert "index" not in alone
