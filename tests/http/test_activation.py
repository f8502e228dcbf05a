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


def test_a_job_that_ends_while_pending_was_never_enqueued(api: Api, frozen: FrozenClock) -> None:
    cancelled, expired = enqueue(api, pending=True), enqueue(api, pending=True, enqueue_ttl=2)
    activated = enqueue(api, pending=True)
    assert api("DELETE", f"/jobs/{cancelled['id']}").status == 200
    frozen.advance(3)
    assert look(api, expired)["state"] == "discarded"
    assert api.post(f"/jobs/{activated['id']}/activate").status == 200
    assert api("DELETE", f"/jobs/{activated['id']}").status == 200
    shown = [look(api, job).get("enqueued_at") for job in (cancelled, expired, activated)]
    assert shown == [None, None, "2026-01-01T00:00:03.000Z"]
    told = api.get(f"/jobs/{cancelled['id']}/events", Accept="application/json").body["items"]
    assert [event["type"] for event in told] == ["job.cancelled"]
