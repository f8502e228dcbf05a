"""Health and figures: what degrades them, and what of them a restricted caller sees."""

from __future__ import annotations

from datetime import timedelta

from django.utils import translation

from django_ojs.clock import FrozenClock
from django_ojs.models import MaintenanceRun
from django_ojs.services import reaper
from tests.http.conftest import Caller
from tests.http.support import Api, enqueue, fetch


def health(api: Api) -> tuple[str, int]:
    """The status and how many troubles are told."""
    body = api.get("/health").body
    return body["status"], len(body["troubles"])


def test_a_reaper_that_never_ran_degrades_health_while_something_runs(api: Api) -> None:
    assert MaintenanceRun.objects.count() == 0
    enqueue(api, heartbeat_timeout=1, timeout=3600)
    assert health(api) == ("ok", 0), "nothing runs, no deadline has passed"
    job = fetch(api)[0]
    assert health(api) == ("degraded", 1)
    assert Api(None).get("/health").body["status"] == "degraded"
    reaper.scan(cadence=None, ran_by="test")
    assert health(api) == ("ok", 0)
    ended = {"job_id": job["id"], "lease_id": job["lease"]["id"]}
    assert api.post("/workers/ack", ended).status == 200
    MaintenanceRun.objects.all().delete()
    assert health(api) == ("ok", 0)


def test_a_reaper_that_died_degrades_health_while_something_runs(api: Api, frozen: FrozenClock) -> None:
    enqueue(api, heartbeat_timeout=1, timeout=3600)
    reaper.scan(cadence=timedelta(seconds=1), ran_by="test")
    fetch(api)
    frozen.advance(60)
    assert health(api) == ("ok", 0)
    frozen.advance(61)
    assert health(api) == ("degraded", 1)


def test_problems_are_worded_in_english_whatever_the_reader_speaks(api: Api) -> None:
    enqueue(api, heartbeat_timeout=1, timeout=3600)
    fetch(api)
    with translation.override("de"):
        (problem,) = api.get("/health").body["troubles"]
    assert problem.startswith("The reaper has never run")


def test_the_figures_are_of_the_queues_that_one_sees(api: Api, caller: Caller) -> None:
    for queue in ("mine", "foreign", "foreign"):
        enqueue(api, queue=queue)
    fetch(api, "foreign", worker="w-foreign")
    some = caller("inspect", queues=["mine"]).get("/admin/stats").body
    assert (some["queues"], some["workers"]) == (1, 0)
    assert (some["jobs"]["available"], some["jobs"]["active"]) == (1, 0)
    everything = api.get("/admin/stats").body
    assert (everything["queues"], everything["workers"]) == (2, 1)
    assert (everything["jobs"]["available"], everything["jobs"]["active"]) == (2, 1)


def test_health_tells_a_restricted_caller_nothing_of_the_others(api: Api, caller: Caller) -> None:
    enqueue(api, queue="foreign")
    found = caller("inspect", queues=["mine"]).get("/health").body
    assert (found["queues"], found["workers"]) == ({}, {})
    assert api.get("/health").body["queues"] == {"total": 1}
