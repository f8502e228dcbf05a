"""Pending jobs, and when they were activated (OJS core ACTIVATE)."""

from __future__ import annotations

import pytest

from django_ojs.clock import FrozenClock
from tests.http.support import Api, enqueue, look

pytestmark = pytest.mark.every_database


@pytest.mark.parametrize(
    ("start", "state", "is_enqueued"), [(None, "available", True), ("PT1M", "scheduled", False)]
)
def test_a_job_is_activated_now(
    api: Api, frozen: FrozenClock, start: str | None, state: str, is_enqueued: bool
) -> None:
    made = enqueue(api, pending=True, **({"scheduled_at": start} if start else {}))
    frozen.advance(5)
    answer = api.post(f"/jobs/{made['id']}/activate")
    assert answer.status == 200
    job = answer.body["job"]
    assert (job["state"], job["previous_state"]) == (state, "pending")
    assert job["activated_at"] == "2026-01-01T00:00:05.000Z"
    assert ("enqueued_at" in look(api, made)) is is_enqueued
    again = api.post(f"/jobs/{made['id']}/activate")
    assert (again.status, again.code) == (409, "conflict")
