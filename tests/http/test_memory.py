"""No small request makes a process hold much, whatever the jobs that it names hold."""

from __future__ import annotations

import tracemalloc
from functools import partial
from uuid import uuid4

import pytest

from django_ojs.api import enqueue
from django_ojs.models import Job, Worker
from django_ojs.services.claim import claim, sources
from tests.http.support import Answer, Api

pytestmark = [pytest.mark.usefixtures("ojs_db"), pytest.mark.every_database]
JOBS, MEGABYTE = 40, "x" * 1_000_000
BOUND = 64 << 20


def fill(queue: str) -> list[str]:
    """Forty jobs of a megabyte each."""
    return [str(enqueue("large.job", [MEGABYTE], queue=queue).id) for _ in range(JOBS)]


def lightly(ask: partial[Answer]) -> Answer:
    """The answer to a request that holds no more than the bound at any time."""
    tracemalloc.start()
    try:
        answer = ask()
        assert tracemalloc.get_traced_memory()[1] < BOUND
        return answer
    finally:
        tracemalloc.stop()


@pytest.mark.long
def test_requests_about_large_jobs(api: Api) -> None:
    ids = fill("large")
    wanted = {"queues": ["large"], "count": 100, "worker_id": "w"}
    fetched = lightly(partial(api.post, "/workers/fetch", wanted)).body["jobs"]
    assert 1 <= len(fetched) <= 8
    rest = claim(sources(["large"]), limit=JOBS, worker_id="w2", beats=True)
    assert len(rest) + len(fetched) == JOBS
    alive = {"worker_id": "w", "active_jobs": ids}
    beat = lightly(partial(api.post, "/workers/heartbeat", alive)).body
    assert sorted(beat["jobs_extended"]) == sorted(job["id"] for job in fetched)
    for path in ("/jobs?limit=200", "/jobs?limit=200&state=active"):
        page = lightly(partial(api.get, path)).body
        assert page["pagination"]["has_more"] and page["pagination"]["total"] == JOBS
        assert 1 <= len(page["jobs"]) <= 8
    reports = [{"job_id": job_id, "lease_id": str(uuid4())} for job_id in ids]
    refused = lightly(partial(api.post, "/workers/ack/batch", {"jobs": reports}))
    assert refused.status == 200 and not refused.body["acknowledged"]


@pytest.mark.long
def test_a_batch_of_reports_about_large_jobs(api: Api) -> None:
    fill("large")
    wanted = {"queues": ["large"], "count": 100}
    reports = []
    while got := api.post("/workers/fetch", wanted).body["jobs"]:
        reports += [{"job_id": job["id"], "lease_id": job["lease"]["id"]} for job in got]
    assert len(reports) == JOBS
    settled = lightly(partial(api.post, "/workers/ack/batch", {"jobs": reports})).body
    assert settled["acknowledged"] and settled["count"] == JOBS
    assert Job.objects.filter(state="completed").count() == JOBS


@pytest.mark.long
def test_pages_of_large_rows_lead_to_all_of_them(api: Api) -> None:
    names = [f"w{number:03}" for number in range(200)]
    for name in names:
        api.post("/workers/register", {"worker_id": name, "labels": {"note": "x" * 60_000}})
    assert Worker.objects.count() == len(names)
    seen: list[str] = []
    pages, query = 0, ""
    while True:
        page = lightly(partial(api.get, f"/workers?limit=200{query}")).body
        seen += [row["id"] for row in page["workers"]]
        pages += 1
        if not page["pagination"]["has_more"]:
            break
        query = f"&cursor={page['pagination']['next_cursor']}"
    assert seen == names and pages == 2


@pytest.mark.slow
@pytest.mark.parametrize("queues", [["mixed"], ["mixed", "other"]])
def test_a_fetch_gives_what_fits_in_the_order_of_service(api: Api, queues: list[str]) -> None:
    sizes = [MEGABYTE] * 3 + ["small"] * 3 + [MEGABYTE] * 12
    ids = [str(enqueue("large.job", [size], queue="mixed").id) for size in sizes]
    first = api.post("/workers/fetch", {"queues": queues, "count": 100}).body["jobs"]
    assert [job["id"] for job in first] == ids[: len(first)]
    assert [job["args"] for job in first] == [[size] for size in sizes[: len(first)]]
    assert 6 < len(first) < 12
    then = api.post("/workers/fetch", {"queues": queues, "count": 100}).body["jobs"]
    assert [job["id"] for job in then] == ids[len(first) : len(first) + len(then)]
