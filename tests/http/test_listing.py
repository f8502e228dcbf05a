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


@pytest.mark.parametrize("path", ["/queues", "/workers", "/admin/queues", "/admin/schemas"])
def test_small_tables_are_paged_by_number_only(
    api: Api, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused_field(api.get(f"{path}?cursor=x"), "cursor")
    refused_field(api.get(f"{path}?nothing=x"), "nothing")
    assert api.get(f"{path}?limit=1&offset=0").status == 200
    assert api.get(f"{path}?per_page=1&page=1").status == 200


def test_more_is_promised_only_where_it_can_be_fetched(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "MAX_OFFSET", 2)
    Queue.objects.bulk_create(Queue(name=f"q{n}") for n in range(5))
    found, offset = [], 0
    while True:
        page = api.get(f"/queues?limit=2&offset={offset}")
        assert page.status == 200, page.raw
        found += [queue["name"] for queue in page.body["queues"]]
        if not page.body["pagination"]["has_more"]:
            break
        offset += 2
    assert found == ["default", "q0", "q1", "q2"]
