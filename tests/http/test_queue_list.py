"""The list of queues costs the same for a few and for many."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_ojs.api import enqueue
from django_ojs.services.claim import claim, sources
from tests.http.support import Api

pytestmark = [pytest.mark.usefixtures("ojs_db"), pytest.mark.every_database]


def statements(api: Api, path: str) -> int:
    """How many statements a request makes."""
    with CaptureQueriesContext(connection) as queries:
        assert api.get(path).status == 200
    return len(queries)


@pytest.mark.slow
def test_its_statements_are_as_many_for_any_number_of_queues(api: Api) -> None:
    enqueue("test.job", [], queue="q-000")
    assert api.get("/queues").status == 200
    few = statements(api, "/queues?limit=200")
    for number in range(1, 60):
        enqueue("test.job", [], queue=f"q-{number:03}")
    assert statements(api, "/queues?limit=200") == few <= 8


def test_it_counts_the_jobs_of_each_queue(api: Api) -> None:
    for queue, waiting in (("a", 3), ("b", 1)):
        for number in range(waiting):
            enqueue("test.job", [number], queue=queue)
    enqueue("test.job", [], queue="b", delay=60)
    claim(sources(["a"], ["test.job"]), limit=1, worker_id="w", beats=True)
    listed = {row["name"]: row["counts"] for row in api.get("/queues").body["queues"]}
    none = dict.fromkeys(api.get("/queues/a").body["counts"], 0)
    assert listed == {
        "a": {**none, "available": 2, "active": 1},
        "b": {**none, "available": 1, "scheduled": 1},
        "default": none,
    }
    for name, counts in listed.items():
        assert api.get(f"/queues/{name}").body["counts"] == counts
