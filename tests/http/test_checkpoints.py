"""Checkpoints of a job whose lease was lost."""

from __future__ import annotations

from typing import Any

import pytest

from django_ojs.clock import FrozenClock
from django_ojs.services.reap import reap
from tests.http.support import Api, enqueue, fetch, look


@pytest.fixture
def lost(api: Api, frozen: FrozenClock) -> dict[str, Any]:
    """A job as its first worker got it, which has lost it since: it waits for its retry."""
    enqueue(api, timeout=10, grace_period=0)
    job = fetch(api)[0]
    saved = api("PUT", f"/jobs/{job['id']}/checkpoint", {"state": "right"})
    assert saved.status == 200
    frozen.advance(11)
    assert reap().counts == {"execution": 1}
    assert look(api, job)["state"] == "retryable"
    return job


def test_a_lost_lease_saves_no_checkpoint_of_a_waiting_job(api: Api, lost: dict[str, Any]) -> None:
    path = f"/jobs/{lost['id']}/checkpoint"
    late = api("PUT", path, {"state": "stale", "lease_id": lost["lease"]["id"]})
    assert (late.status, late.code) == (409, "conflict")
    assert late.body["error"]["details"]["current_state"] == "retryable"
    assert api.get(path).body["state"] == "right"
    assert api("PUT", path, {"state": "fresh"}).status == 200, "without evidence anybody may"


def test_a_lost_lease_clears_no_checkpoint_of_a_waiting_job(api: Api, lost: dict[str, Any]) -> None:
    path = f"/jobs/{lost['id']}/checkpoint"
    late = api("DELETE", path, None, OJS_Lease=lost["lease"]["id"])
    assert (late.status, late.code) == (409, "conflict")
    assert api.get(path).body["state"] == "right"
