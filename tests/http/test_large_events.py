"""Events are given in pages that fit, however much is in them, and none is lost for it."""

from __future__ import annotations

from uuid import UUID

import pytest

from django_ojs import clock
from django_ojs.domain.ids import uuid7
from django_ojs.http.principal import DEVELOPER
from django_ojs.http.views import events
from django_ojs.models import Event
from django_ojs.services.stream import Wanted
from tests.http.support import Api, enqueue
from tests.http.test_stream import FakeTime

pytestmark = pytest.mark.every_database
EVENTS, SIZE = 120, 100_000


def large(job: dict[str, str]) -> list[str]:
    """The ids of many events about a job, made after its own."""
    now = clock.now("default")
    made = [
        Event(
            id=uuid7(int(now.timestamp() * 1000) + 1, number),
            kind="job.failed",
            created_at=now,
            job_id=UUID(job["id"]),
            job_type=job["type"],
            queue=job["queue"],
            data={"job_id": job["id"], "note": "x" * SIZE},
        )
        for number in range(EVENTS)
    ]
    Event.objects.bulk_create(made)
    return [f"evt_{event.pk}" for event in made]


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/events", "/events?job_id={id}", "/jobs/{id}/events"])
def test_pages_of_large_events_lead_to_all_of_them(api: Api, path: str) -> None:
    """A page ends before its limit, and says that there is more."""
    job = enqueue(api)
    ids = large(job)
    address = path.format(**job)
    seen: list[str] = []
    pages, query = 0, ""
    while True:
        mark = "&" if "?" in address else "?"
        answer = api.get(f"{address}{mark}limit=200{query}", Accept="application/json")
        page = answer.body
        assert 0 < sum(len(str(event)) for event in page["events"]) < 9 << 20
        seen += [event["id"] for event in page["events"] if event["type"] == "job.failed"]
        pages += 1
        if not page["has_more"]:
            break
        query = f"&cursor={page['pagination']['next_cursor']}"
    assert (seen, pages) == (ids, 2)


@pytest.mark.slow
def test_a_stream_of_large_events_leaves_none_out(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "clock", FakeTime())
    monkeypatch.setattr(events, "STREAM_SECONDS", 2.0)
    ids = large(enqueue(api))
    wanted = Wanted(kinds=["job.failed"])
    said = list(events._follow(DEVELOPER, wanted, 0, "default"))
    assert [chunk.split()[1].decode() for chunk in said if chunk.startswith(b"id:")] == ids
