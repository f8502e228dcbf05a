"""Lists: pages by cursor and offset, bounds by number and by weight, dead letter."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest

from django_ojs.api import enqueue
from django_ojs.http import listing
from django_ojs.models import Queue
from tests.http.support import Api, refused_field
from tests.services.support import fail, make, take

pytestmark = pytest.mark.every_database


def pages(api: Api, path: str) -> list[list[str]]:
    """The ids of every page, following ``next_cursor``."""
    found: list[list[str]] = []
    cursor = ""
    while True:
        answer = api.get(f"{path}{'&' if '?' in path else '?'}cursor={cursor}")
        assert answer.status == 200, answer.raw
        found.append([job["id"] for job in answer.body["jobs"]])
        assert len(found) < 50
        if not answer.body["pagination"]["has_more"]:
            return found
        cursor = answer.body["pagination"]["next_cursor"]


def flat(found: list[list[str]]) -> list[str]:
    """The ids of all pages in order."""
    return list(chain.from_iterable(found))


def test_every_job_is_on_one_page(api: Api) -> None:
    jobs = [str(job.id) for job in make(7)]
    found = pages(api, "/jobs?limit=3")
    assert [len(page) for page in found] == [3, 3, 1]
    assert flat(found) == jobs[::-1]
    assert flat(pages(api, "/jobs?limit=3&order=asc")) == jobs


def test_offset_and_page(api: Api) -> None:
    jobs = [str(job.id) for job in make(5)][::-1]
    second = api.get("/jobs?page=2&per_page=2").body
    assert [job["id"] for job in second["items"]] == jobs[2:4]
    expected: dict[str, Any] = {"total": 5, "limit": 2, "offset": 2, "has_more": True, "page": 2}
    assert {key: second["pagination"][key] for key in expected} == expected
    assert [job["id"] for job in api.get("/jobs?offset=4").body["jobs"]] == jobs[4:]


def test_a_duration_is_before_now(api: Api) -> None:
    """Of a list of what has been nothing lies ahead."""
    jobs = [str(job.id) for job in make(2)][::-1]
    assert [job["id"] for job in api.get("/jobs?since=1h").body["jobs"]] == jobs
    assert api.get("/jobs?until=1h").body["jobs"] == []
    assert {event["subject"] for event in api.get("/events?since=1h").body["events"]} == set(jobs)


def test_the_dead_letter_is_paged_too(api: Api) -> None:
    make(5, retry={"max_attempts": 1, "on_exhaustion": "dead_letter"})
    fail(*take(5))
    make(retry={"max_attempts": 1})
    fail(*take())
    found = pages(api, "/dead-letter?limit=2")
    assert [len(page) for page in found] == [2, 2, 1]
    assert len(set(flat(found))) == 5


def test_a_page_ends_by_weight_and_loses_nothing(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "MAX_BYTES", 2500)
    jobs = [str(enqueue("big.job", ["x" * 1000]).id) for _ in range(5)]
    found = pages(api, "/jobs?limit=5")
    assert [len(page) for page in found] == [2, 2, 1]
    assert flat(found) == jobs[::-1]


def test_a_single_heavy_job_is_shown(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "MAX_BYTES", 10)
    enqueue("big.job", ["x" * 1000])
    assert [len(page) for page in pages(api, "/jobs")] == [1]


@pytest.mark.parametrize("name", ["page", "offset", "per_page"])
def test_events_are_paged_by_cursor_only(api: Api, name: str) -> None:
    refused_field(api.get(f"/events?limit=1&{name}=2"), name)


def pages_of(api: Api, path: str, name: str) -> list[Any]:
    """The rows of every page of a small table, following ``next_cursor``."""
    found: list[Any] = []
    cursor = ""
    while True:
        answer = api.get(f"{path}?limit=2&cursor={cursor}")
        assert answer.status == 200, answer.raw
        assert answer.body["items"] == answer.body[name]
        found += answer.body["items"]
        if not answer.body["pagination"]["has_more"]:
            assert "next_cursor" not in answer.body["pagination"]
            return found
        assert len(found) < 50
        cursor = answer.body["pagination"]["next_cursor"]


@pytest.mark.slow
def test_small_tables_are_paged_by_cursor_too(api: Api) -> None:
    for name in ("q_1", "q-1", "q.1", "a", "zz"):
        Queue.objects.create(name=name)
        assert api.post("/workers/register", {"worker_id": f"w ~{name}:"}).status == 200
        for version in (10, 9):
            schema = {"schema": {"type": "array"}}
            assert api("PUT", f"/admin/schemas/t.{name[0]}/{version}", schema).status < 300
    queues = pages_of(api, "/queues", "queues")
    assert sorted(queue["name"] for queue in queues) == ["a", "default", "q-1", "q.1", "q_1", "zz"]
    workers = pages_of(api, "/workers", "workers")
    assert len({worker["id"] for worker in workers}) == len(workers) == 5
    schemas = [(row["type"], row["version"]) for row in pages_of(api, "/admin/schemas", "schemas")]
    assert schemas == [(f"t.{letter}", version) for letter in "aqz" for version in (9, 10)]


@pytest.mark.parametrize("path", ["/queues", "/workers", "/admin/queues", "/admin/schemas"])
def test_small_tables_are_paged_by_number(api: Api, path: str) -> None:
    refused_field(api.get(f"{path}?cursor=x"), "cursor")
    refused_field(api.get(f"{path}?nothing=x"), "nothing")
    assert api.get(f"{path}?limit=1&offset=0").status == 200
    assert api.get(f"{path}?per_page=1&page=1").status == 200


def test_a_cursor_is_for_its_list_only(api: Api) -> None:
    Queue.objects.create(name="a")
    cursor = api.get("/queues?limit=1").body["pagination"]["next_cursor"]
    refused_field(api.get(f"/workers?cursor={cursor}"), "cursor")
    refused_field(api.get(f"/queues?cursor={cursor}x"), "cursor")
    make(2)
    cursor = api.get("/jobs?limit=1").body["pagination"]["next_cursor"]
    refused_field(api.get(f"/queues?cursor={cursor}"), "cursor")


def test_what_no_offset_reaches_is_reached_by_cursor(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "MAX_OFFSET", 2)
    Queue.objects.bulk_create(Queue(name=f"q{n}") for n in range(5))
    page = api.get("/queues?limit=2&offset=2").body["pagination"]
    assert page["has_more"] is True
    refused_field(api.get("/queues?limit=2&offset=4"), "offset")
    rest = api.get(f"/queues?cursor={page['next_cursor']}").body
    assert [queue["name"] for queue in rest["queues"]] == ["q3", "q4"]
