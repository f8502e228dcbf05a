"""Reports of progress: data without a number, checkpoints, and what a new attempt begins with."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from django_ojs.clock import FrozenClock
from django_ojs.models import Job
from tests.http.refusing import refused
from tests.http.support import Api, enqueue, fetch, look

pytestmark = pytest.mark.every_database

RETRY = {"initial_interval": "PT1S", "jitter": False}


@pytest.fixture
def job(api: Api) -> dict[str, Any]:
    """A job that runs."""
    enqueue(api, retry=RETRY)
    return fetch(api)[0]


def report(api: Api, job: dict[str, Any], **body: Any) -> Any:
    return api("PUT", f"/jobs/{job['id']}/progress", {"lease_id": job["lease"]["id"], **body})


def again(api: Api, job: dict[str, Any], frozen: FrozenClock) -> dict[str, Any]:
    """The job in its next attempt."""
    failed = {"job_id": job["id"], "lease_id": job["lease"]["id"], "error": {"message": "no"}}
    assert api.post("/workers/nack", failed).status == 200
    frozen.advance(1)
    return fetch(api)[0]


def test_a_checkpoint_in_a_report_reaches_the_next_attempt(
    api: Api, job: dict[str, Any], frozen: FrozenClock
) -> None:
    """OJS progress 6.4."""
    state = {"last_processed_id": "row_14000", "batch_offset": 14000}
    assert report(api, job, progress=0.47, data={"rows": 1}, checkpoint=state).status == 200
    saved = api.get(f"/jobs/{job['id']}/checkpoint").body
    assert (saved["state"], saved["sequence"]) == (state, 1)
    assert report(api, job, progress=0.5, checkpoint=None).status == 200
    assert report(api, job, progress=0.6).status == 200
    assert again(api, job, frozen)["last_checkpoint"] == state


def test_a_checkpoint_is_saved_with_the_report_or_not_at_all(api: Api, job: dict[str, Any]) -> None:
    late = report(api, job, lease_id=str(uuid4()), progress=1, checkpoint=1)
    assert (late.status, late.code) == (409, "conflict")
    large = report(api, job, progress=0.5, checkpoint="x" * (1024 * 1024))
    refused(large, 413, "payload_too_large", "checkpoint")
    row = Job.objects.get(pk=job["id"])
    assert (row.progress, row.checkpoint, row.checkpoint_seq) == (None, None, 0)
    waiting = enqueue(api, queue="waiting")
    told = api("PUT", f"/jobs/{waiting['id']}/progress", {"progress": 0.5, "checkpoint": 1})
    assert (told.status, told.body["progress"]) == (200, None), "ignored, as OJS progress 6.1 says"
    assert "last_checkpoint" not in look(api, waiting)


def test_data_without_a_number(api: Api, job: dict[str, Any]) -> None:
    """OJS progress 5.2: one of the two must be there."""
    told = report(api, job, data={"phase": "reading"})
    assert (told.status, told.body["progress"], told.body["data"]) == (200, 0, {"phase": "reading"})
    report(api, job, progress=0.4)
    told = report(api, job, data={"phase": "writing"})
    assert (told.body["progress"], told.body["data"]) == (0.4, {"phase": "writing"})
    for nothing in ({}, {"message": "so far"}, {"data": None}, {"checkpoint": 1}):
        refused(report(api, job, **nothing), 400, "invalid_request", "progress")


def test_a_new_attempt_has_reported_nothing_yet(
    api: Api, job: dict[str, Any], frozen: FrozenClock
) -> None:
    """OJS progress 5.3 and 7.1; the data of the last attempt is its job's ``progress_data``."""
    report(api, job, progress=0.5, message="half", data={"row": 41})
    later = again(api, job, frozen)
    assert later["progress_data"] == {"row": 41}
    shown = api.get(f"/jobs/{job['id']}/progress").body
    assert (shown["progress"], shown["message"], shown["data"]) == (None, None, None)
    assert report(api, later, progress=0.1, data=[1]).body["data"] == [1]
