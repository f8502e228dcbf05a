"""Where somebody came from is for the audit, not for the readers of events."""

from __future__ import annotations

from typing import Any

import pytest

from django_ojs.domain.job import Actor
from django_ojs.models import AuditEntry, Event
from django_ojs.services import operate, queues
from django_ojs.signals import job_cancelled
from tests.services.support import make

pytestmark = pytest.mark.usefixtures("ojs_db")
STAFF = Actor("admin", "adm", "by staff", "10.1.2.3")


def test_events_have_no_address() -> None:
    heard: list[dict[str, Any]] = []

    def receive(event: Any, **_: Any) -> None:
        heard.append(dict(event.data))

    job_cancelled.connect(receive)
    try:
        operate.cancel([make()[0].id], actor=STAFF)
    finally:
        job_cancelled.disconnect(receive)
    queues.pause(["default"], actor=STAFF)
    told = [row.data for row in Event.objects.filter(kind__in=["job.cancelled", "queue.paused"])]
    assert len(told) == 2
    for data in (*told, *heard):
        assert (data["actor"], data["reason"]) == ("adm", "by staff")
        assert "address" not in data
    assert set(AuditEntry.objects.values_list("address", flat=True)) == {"10.1.2.3"}
