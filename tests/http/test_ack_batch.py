"""Many acks in one request, each answered for itself."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connections
from django.test.utils import CaptureQueriesContext

from django_ojs.api import get
from django_ojs.clock import FrozenClock
from django_ojs.models import Attempt
from django_ojs.services.reap import reap
from tests.http.conftest import Caller
from tests.http.support import Answer, Api, enqueue, fetch, look

pytestmark = pytest.mark.every_database

NOBODY = "01890a5d-ac96-774b-bcce-b302099a8057"


def report(job: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"job_id": job["id"], "lease_id": job["lease"]["id"], **more}


def ack(api: Api, *reports: Any) -> Answer:
    return api.post("/workers/ack/batch", {"jobs": list(reports)})


def fetched(api: Api, count: int) -> list[dict[str, Any]]:
    for _ in range(count):
        enqueue(api)
    jobs = fetch(api, count=count)
    assert len(jobs) == count
    return jobs


def test_each_job_ends_with_its_own_result(api: Api) -> None:
    jobs = fetched(api, 3)
    answer = ack(api, *(report(job, result={"n": n}) for n, job in enumerate(jobs)))
    assert (answer.status, answer.body["acknowledged"], answer.body["count"]) == (200, True, 3)
    for n, (job, result) in enumerate(zip(jobs, answer.body["results"], strict=True)):
        assert (result["id"], result["job_id"]) == (job["id"], job["id"])
        assert (result["acknowledged"], result["state"], result["attempt"]) == (True, "completed", 1)
        found = look(api, job)
        assert (found["result"], found["completed_at"]) == ({"n": n}, result["completed_at"])


def test_the_other_spellings(api: Api) -> None:
    (job,) = fetched(api, 1)
    answer = ack(api, {"id": job["id"], "lease": {"id": job["lease"]["id"]}})
    assert answer.body["acknowledged"] is True


def test_a_refusal_holds_up_no_other_report(api: Api, caller: Caller, frozen: FrozenClock) -> None:
    enqueue(api, timeout=600)
    stale = fetch(api, visibility_timeout_ms=1000)[0]
    frozen.advance(1.5)
    assert reap().counts == {"visibility": 1}
    current = fetch(api, worker="w2")[0]
    assert current["id"] == stale["id"]
    (mine,) = fetched(api, 1)
    enqueue(api, queue="other")
    (foreign,) = fetch(caller(name="other"), "other", worker="w9")
    nobody = {"job_id": NOBODY, "lease_id": NOBODY}
    answer = ack(api, report(stale), report(foreign), nobody, report(mine))
    assert (answer.status, answer.body["acknowledged"]) == (200, False)
    lost, theirs, missing, done = answer.body["results"]
    assert [item["acknowledged"] for item in answer.body["results"]] == [False, False, False, True]
    for refused in (lost, theirs):
        assert refused["error"]["code"] == "conflict"
        assert refused["error"]["details"]["reason"] == "lease_lost"
        assert refused["error"]["request_id"] == answer.headers["X-Request-Id"]
    assert missing["error"]["code"] == "not_found"
    assert done["state"] == "completed"
    assert [get(job["id"]).state for job in (current, foreign, mine)] == [
        "active",
        "active",
        "completed",
    ]
    assert Attempt.objects.get(job_id=stale["id"], lease_seq=1).late_report is not None


def test_a_job_that_has_ended_otherwise(api: Api) -> None:
    (job,) = fetched(api, 1)
    assert api.post(f"/jobs/{job['id']}/cancel").status == 200
    (result,) = ack(api, report(job)).body["results"]
    assert result["error"]["details"]["reason"] == "not_active"


def test_the_same_reports_again_are_answered_as_the_first_time(api: Api) -> None:
    jobs = fetched(api, 2)
    first = ack(api, *map(report, jobs))
    assert ack(api, *map(report, jobs)).body == first.body
    assert Attempt.objects.filter(job_id__in=[job["id"] for job in jobs]).count() == 2


def test_reports_repeated_by_another_client_are_refused(api: Api, caller: Caller) -> None:
    (job,) = fetched(api, 1)
    assert ack(api, report(job)).body["acknowledged"] is True
    (refused,) = ack(caller(name="other"), report(job)).body["results"]
    assert (refused["acknowledged"], "state" in refused) == (False, False)
    assert refused["error"]["details"]["reason"] == "not_active"


def test_one_job_twice_in_a_batch_counts_once(api: Api) -> None:
    (job,) = fetched(api, 1)
    answer = ack(api, report(job, result=1), report(job, result=2))
    assert answer.body["acknowledged"] is True
    assert look(api, job)["result"] == 1
    assert Attempt.objects.filter(job_id=job["id"]).count() == 1


def test_foreign_queues_do_not_exist(api: Api, caller: Caller) -> None:
    enqueue(api, queue="secret")
    (job,) = fetch(api, "secret")
    narrow = caller("work", name="narrow", queues=["mail*"])
    (result,) = ack(narrow, report(job)).body["results"]
    unknown = ack(narrow, {"job_id": NOBODY, "lease_id": NOBODY}).body["results"][0]
    assert result["error"]["code"] == unknown["error"]["code"] == "not_found"
    assert get(job["id"]).state == "active"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("jobs", "field"),
    [
        (None, "jobs"),
        ([], "jobs"),
        ({}, "jobs"),
        ([{}] * 101, "jobs"),
        (["x"], "job"),
        ([{"lease_id": NOBODY}], "job_id"),
        ([{"job_id": 1, "lease_id": NOBODY}], "job_id"),
        ([{"job_id": "x", "lease_id": NOBODY}], "job_id"),
        ([{"job_id": NOBODY}], "lease_id"),
        ([{"job_id": NOBODY, "lease_id": "x"}], "lease_id"),
        ([{"job_id": NOBODY, "lease": "x"}], "lease_id"),
    ],
)
def test_what_is_no_batch(api: Api, jobs: Any, field: str) -> None:
    answer = api.post("/workers/ack/batch", {"jobs": jobs})
    assert (answer.status, answer.code) == (400, "invalid_request")
    assert answer.body["error"]["details"]["field"] == field


def test_a_malformed_report_stops_the_whole_batch(api: Api) -> None:
    (job,) = fetched(api, 1)
    answer = ack(api, report(job), {"job_id": job["id"]})
    assert (answer.status, answer.body["error"]["details"]["index"]) == (400, 1)
    assert get(job["id"]).state == "active"


def test_a_report_that_comes_twice_in_a_batch_is_acknowledged_twice(api: Api) -> None:
    first, second = fetched(api, 2)
    answer = ack(api, report(first, result=1), report(second), report(first, result=2))
    assert [one["state"] for one in answer.body["results"]] == ["completed"] * 3
    assert [one["id"] for one in answer.body["results"]] == [first["id"], second["id"], first["id"]]
    assert look(api, first)["result"] == 1
    assert Attempt.objects.count() == 2


def test_a_batch_costs_as_many_statements_as_one_report(api: Api, settings: Any) -> None:
    settings.OJS = {**settings.OJS, "EVENTS": "problems"}

    def statements(count: int) -> int:
        jobs = fetched(api, count)
        with CaptureQueriesContext(connections["default"]) as captured:
            assert ack(api, *map(report, jobs)).body["acknowledged"] is True
        return len(captured)

    assert statements(1) == statements(12)
    if connections["default"].vendor == "postgresql":
        assert statements(12) == 3, "the token, what holds, and that it has ended"
