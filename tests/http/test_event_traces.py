"""The trace of a job in its events (OJS events 8.3)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import override_settings

from django_ojs.services import derived
from tests.http.support import Api, enqueue, fetch
from tests.http.timed import events

pytestmark = pytest.mark.every_database

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


@pytest.mark.parametrize("setting", [{}, {"EVENTS": "all"}], ids=str)
@pytest.mark.parametrize(
    ("meta", "trace"),
    [
        ({"trace_id": "trace_abc"}, "trace_abc"),
        ({"traceparent": PARENT}, TRACE),
        ({"trace_id": "mine", "traceparent": PARENT}, "mine"),
        ({"trace_id": None, "traceparent": "nonsense"}, None),
        ({"trace_id": {"a": 1}}, None),
        ({"trace_id": "x" * 300}, None),
        ({}, None),
    ],
    ids=str,
)
def test_every_event_of_a_job_names_its_trace(
    api: Api,
    monkeypatch: pytest.MonkeyPatch,
    meta: dict[str, Any],
    trace: str | None,
    setting: dict[str, Any],
) -> None:
    monkeypatch.setattr(derived, "SETTLING", timedelta(0))
    with override_settings(OJS=setting):
        job = enqueue(api, meta=meta, retry={"max_attempts": 1, "on_exhaustion": "dead_letter"})
        enqueue(api, queue="other")
        claimed = fetch(api)[0]
        failed = {"job_id": job["id"], "lease_id": claimed["lease"]["id"], "error": {"message": "no"}}
        assert api.post("/workers/nack", failed).status == 200
        told = events(api, job)
        assert {"job.enqueued", "job.started", "job.failed", "job.discarded"} <= {
            event["type"] for event in told
        }
        assert [event["data"].get("trace_id") for event in told] == [trace] * len(told)
        listed = api.get("/events?types=job.*").body["events"]
    named = {event["subject"]: event["data"].get("trace_id") for event in listed}
    assert named.pop(job["id"]) == trace
    assert set(named.values()) == {None}
