"""The fields of events that say who acted (OJS events 4.1 and 4.2)."""

from __future__ import annotations

import pytest

from django_ojs.models import AuditEntry
from tests.http.conftest import Caller
from tests.http.support import Api, enqueue
from tests.http.timed import events

ACTIONS = [("pause", "paused_by"), ("resume", "resumed_by")]


@pytest.mark.parametrize(("verb", "field"), ACTIONS)
def test_who_paused_and_who_resumed_a_queue(api: Api, caller: Caller, verb: str, field: str) -> None:
    boss = caller("administer", "inspect", name="boss")
    if verb == "resume":
        assert api.post("/queues/mail/pause").status == 200
    assert boss.post(f"/queues/mail/{verb}").status == 200
    (event,) = api.get(f"/events?types=queue.{verb}d").body["events"]
    assert event["data"][field] == event["data"]["actor"] == "boss"
    entry = AuditEntry.objects.get(action=f"queue.{verb}d")
    assert (entry.actor, entry.data) == ("boss", {"queue": "mail"}), "once"


def test_who_cancelled_a_job(api: Api, caller: Caller) -> None:
    job = enqueue(api)
    boss = caller("administer", name="boss")
    assert boss.post(f"/jobs/{job['id']}/cancel", {"reason": "late"}).status == 200
    event = events(api, job)[-1]
    assert event["type"] == "job.cancelled"
    assert event["data"]["cancelled_by"] == "boss"
    assert event["data"]["reason"] == "late"
    assert "cancelled_by" not in AuditEntry.objects.get(action="job.cancelled").data
