"""Schedules over HTTP: what clients and SDKs send and receive (OJS cron 8)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from django_ojs.clock import FrozenClock
from django_ojs.models import AuditEntry, Schedule
from django_ojs.services.schedules import fire
from tests.http.conftest import Caller
from tests.http.guarding import error
from tests.http.support import Api, fetch, refused_field

pytestmark = pytest.mark.every_database

TEMPLATE = {"type": "report.make", "args": ["eu"], "meta": {"a": 1}, "options": {"queue": "reports"}}


def register(api: Api, status: int = 201, **more: Any) -> dict[str, Any]:
    body = {"name": "daily", "expression": "0 9 * * *", "job_template": TEMPLATE, **more}
    answer = api.post("/cron", body)
    assert answer.status == status, answer.body
    assert answer.body["cron"] == answer.body["cron_job"]
    found: dict[str, Any] = answer.body["cron"]
    return found


def test_a_schedule_is_registered_and_shown(api: Api, frozen: FrozenClock) -> None:
    made = register(api, timezone="America/New_York", description="to all")
    wanted = {
        "name": "daily",
        "expression": "0 9 * * *",
        "cron": "0 9 * * *",
        "schedule": "0 9 * * *",
        "timezone": "America/New_York",
        "type": "report.make",
        "args": ["eu"],
        "meta": {"a": 1},
        "options": {"queue": "reports"},
        "queue": "reports",
        "overlap_policy": "skip",
        "enabled": True,
        "status": "active",
        "description": "to all",
        "run_count": 0,
        "last_run_at": None,
        "next_run_at": "2026-01-01T14:00:00.000Z",
    }
    assert wanted.items() <= made.items()
    assert made["job_template"] == TEMPLATE
    assert api.get("/cron/daily").body["cron"] == made
    listed = api.get("/crons").body
    assert listed["crons"] == listed["cron_jobs"] == listed["items"] == [made]
    assert listed["count"] == 1


@pytest.mark.parametrize(
    ("limits", "grace"),
    [
        ({"timeout": 300, "total_timeout": 900}, 30_000),
        ({"timeout_ms": 300_000, "enqueue_ttl_ms": 1500}, 0),
        ({"timeout_ms": 300_000, "grace_period": 5}, 5000),
    ],
    ids=str,
)
def test_limits_are_shown_as_they_were_given_and_mean_the_same_when_sent_back(
    api: Api, limits: dict[str, Any], grace: int
) -> None:
    """Milliseconds and seconds differ in the grace period (decision T3)."""
    made = register(api, job_template={**TEMPLATE, "options": {"queue": "reports", **limits}})
    shown = made["job_template"]["options"]
    assert limits.items() <= shown.items()
    assert ("timeout" in shown) is ("timeout" in limits)
    assert "timeout_given_in_ms" not in shown
    assert register(api, 200, job_template=made["job_template"])["options"] == shown
    assert api.post("/cron/daily/trigger").status == 200
    assert fetch(api, "reports")[0]["grace_period_ms"] == grace


@pytest.mark.parametrize(
    "body",
    [
        {
            "cron": "0 9 * * *",
            "type": "report.make",
            "args": ["eu"],
            "options": {"queue": "q", "tags": ["a"]},
        },
        {"schedule": "0 9 * * *", "type": "report.make", "args": [], "meta": {"b": 2}},
        {"expression": "@every 1h", "job_template": {"type": "report.make"}},
    ],
)
def test_the_dialects_of_the_sdks(api: Api, body: dict[str, Any]) -> None:
    answer = api.post("/cron", {"name": "daily", **body})
    assert answer.status == 201
    assert answer.headers["Location"] == "/ojs/v1/cron/daily"
    shown = answer.body["cron_job"]
    assert shown["expression"] in body.values()
    assert shown["type"] == "report.make"


def test_registering_again_updates(api: Api, frozen: FrozenClock) -> None:
    first = register(api, expression="@every 1h")
    frozen.advance(60)
    again = register(api, 200, expression="@every 1h", description="new")
    assert again["next_run_at"] == first["next_run_at"]
    assert again["created_at"] == first["created_at"]
    assert again["description"] == "new"


def test_a_tick_makes_a_job_that_can_be_fetched(api: Api, frozen: FrozenClock) -> None:
    register(api, expression="* * * * *")
    frozen.advance(60)
    fire.fire_due(using="default")
    (job,) = fetch(api, queues=["reports"])
    assert (job["type"], job["args"], job["meta"]["cron_name"]) == ("report.make", ["eu"], "daily")
    shown = api.get("/cron/daily").body["cron"]
    assert (shown["run_count"], shown["last_job_id"]) == (1, job["id"])
    (run,) = api.get("/cron/daily/runs").body["runs"]
    assert (run["outcome"], run["job_id"], run["reason"]) == ("fired", job["id"], None)


def test_pause_resume_trigger_delete(api: Api) -> None:
    register(api)
    paused = api.post("/cron/daily/pause", {"reason": "month end"}).body["cron"]
    assert (paused["enabled"], paused["status"], paused["next_run_at"]) == (False, "paused", None)
    assert Schedule.objects.get().pause_reason == "month end"
    assert api.get("/cron?enabled=true").body["items"] == []
    assert len(api.get("/cron?enabled=false").body["items"]) == 1
    assert api.post("/cron/daily/resume", {}).body["cron"]["status"] == "active"
    triggered = api.post("/cron/daily/trigger", {}).body
    assert triggered["run"]["outcome"] == "fired"
    assert api.get(f"/jobs/{triggered['job_id']}").body["job"]["state"] == "available"
    deleted = api("DELETE", "/cron/daily").body
    assert (deleted["deleted"], deleted["name"], deleted["cron"]["name"]) == (True, "daily", "daily")
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/pause"), ("POST", "/trigger")):
        details = error(api(method, f"/cron/daily{path}", {}), 404, "not_found")["details"]
        assert details["resource_type"] == "cron"
    actions = AuditEntry.objects.filter(action__startswith="schedule.").order_by("id")
    verbs = [action.removeprefix("schedule.") for action in actions.values_list("action", flat=True)]
    assert verbs == ["made", "paused", "resumed", "triggered", "deleted"]


def test_an_event_is_about_its_schedule(api: Api, frozen: FrozenClock) -> None:
    register(api, expression="* * * * *")
    for _ in range(2):
        frozen.advance(60)
        fire.fire_due(using="default")
    events = api.get("/events?types=cron.*").body["events"]
    assert [event["type"] for event in events] == ["cron.triggered", "cron.skipped"]
    assert [event["subject"] for event in events] == ["daily", "daily"]


def test_patch_changes_what_it_names(api: Api) -> None:
    register(api, overlap_policy="allow", jitter="30s")
    answer = api("PATCH", "/cron/daily", {"cron": "@hourly", "job_template": {"args": ["us"]}})
    shown = answer.body["cron"]
    assert (shown["expression"], shown["args"], shown["type"]) == ("@hourly", ["us"], "report.make")
    assert (shown["overlap_policy"], shown["jitter"]) == ("allow", "PT30S")
    assert api("PATCH", "/cron/daily", {"enabled": False}).body["cron"]["enabled"] is False
    assert api("PATCH", "/cron/daily", {"overlap": "cancel"}).body["cron"]["status"] == "paused"
    shown = api("PATCH", "/cron/daily", {"enabled": True}).body["cron"]
    assert (shown["enabled"], shown["overlap_policy"]) == (True, "cancel_previous")
    shown = api("PUT", "/cron/daily", {"expression": "@daily", "job_template": TEMPLATE}).body["cron"]
    assert (shown["overlap_policy"], shown["jitter"]) == ("skip", "PT0S")


@pytest.mark.parametrize(
    ("change", "options", "meta"),
    [
        ({"job_template": {"queue": "slow"}}, {"queue": "slow", "priority": 5}, {"a": 1}),
        ({"job_template": {"queue": None}}, {"queue": "default", "priority": 5}, {"a": 1}),
        ({"options": {"priority": 7}}, {"queue": "reports", "priority": 7}, {"a": 1}),
        ({"options": None}, {"queue": "default"}, {"a": 1}),
        ({"metadata": {"b": 2}}, {"queue": "reports", "priority": 5}, {"b": 2}),
        ({"job_template": {"metadata": {"a": 2}}}, {"queue": "reports", "priority": 5}, {"a": 2}),
    ],
)
def test_patch_changes_the_job_wherever_it_is_written(
    api: Api, change: Any, options: dict[str, Any], meta: dict[str, Any]
) -> None:
    register(api, job_template=TEMPLATE | {"options": {"queue": "reports", "priority": 5}})
    shown = api("PATCH", "/cron/daily", change).body["cron"]
    assert {"priority": None, **options}.items() <= {"priority": None, **shown["options"]}.items()
    assert (shown["queue"], shown["meta"], shown["args"]) == (options["queue"], meta, ["eu"])


@pytest.mark.parametrize(
    ("change", "field"),
    [({"job_template": 5}, "job_template"), ({"options": 5}, "job_template.options")],
)
def test_patch_refuses_what_is_no_object(api: Api, change: Any, field: str) -> None:
    register(api)
    refused_field(api("PATCH", "/cron/daily", change), field)


def test_patch_in_another_unit_replaces_the_limit(api: Api) -> None:
    register(api, job_template=TEMPLATE | {"options": {"timeout": 60}})
    shown = api("PATCH", "/cron/daily", {"job_template": {"timeout_ms": 1500}}).body["cron"]
    assert (shown["options"]["timeout_ms"], "timeout" in shown["options"]) == (1500, False)
    shown = api("PATCH", "/cron/daily", {"options": {"timeout": 20}}).body["cron"]
    assert (shown["options"]["timeout"], "timeout_ms" in shown["options"]) == (20, False)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"expression": "99 25 32 13 8"}, "expression"),
        ({"expression": None, "cron": "* * * * * * *"}, "cron"),
        ({"expression": ""}, "expression"),
        ({"expression": None}, "expression"),
        ({"expression": 5}, "expression"),
        ({"name": None}, "name"),
        ({"name": "No Spaces"}, "name"),
        ({"timezone": "+05:00"}, "timezone"),
        ({"timezone": "EST"}, "timezone"),
        ({"overlap_policy": "never"}, "overlap_policy"),
        ({"catch_up": "all"}, "catch_up"),
        ({"jitter": "soon"}, "jitter"),
        ({"enabled": "yes"}, "enabled"),
        ({"job_template": 5}, "job_template"),
        ({"job_template": {"type": "Bad Type"}}, "job_template.type"),
        ({"job_template": {"type": "a", "args": 5}}, "job_template.args"),
        ({"job_template": {"type": "a", "options": {"queue": "No"}}}, "job_template.options.queue"),
        (
            {"job_template": {"type": "a", "scheduled_at": "2026-01-01T00:00:00Z"}},
            "job_template.scheduled_at",
        ),
        ({"job_template": {"type": "a", "delay_until": "PT5M"}}, "job_template.delay_until"),
        (
            {"job_template": {"type": "a", "options": {"delay_until": "PT5M"}}},
            "job_template.options.delay_until",
        ),
        (
            {"job_template": {"type": "a", "id": "019539a4-b68c-7def-8000-1a2b3c4d5e6f"}},
            "job_template.id",
        ),
        ({"job_template": {"type": "a", "id": "x"}}, "job_template.id"),
        ({"job_template": {"type": "a", "pending": True}}, "job_template.pending"),
        ({"job_template": None, "type": "a", "options": {"expires_at": "PT1H"}}, "options.expires_at"),
        ({"job_template": None}, "type"),
    ],
)
def test_what_is_refused_names_the_field(api: Api, change: dict[str, Any], field: str) -> None:
    body = {"name": "daily", "expression": "0 9 * * *", "job_template": TEMPLATE, **change}
    found = error(api.post("/cron", body), 400, "invalid_request")
    assert found["details"]["field"] == field
    assert not Schedule.objects.exists()


@pytest.mark.parametrize(
    ("job", "field"),
    [
        ({"retry": 5}, "job_template.retry"),
        ({"retry_policy": {"jitter": 5}}, "job_template.retry_policy.jitter"),
        ({"options": {"retry": {"jitter": 5}}}, "job_template.options.retry.jitter"),
    ],
)
def test_a_refused_retry_policy_is_named_where_it_is(api: Api, job: dict[str, Any], field: str) -> None:
    body = {"name": "daily", "expression": "0 9 * * *", "job_template": {"type": "a", **job}}
    found = error(api.post("/cron", body), 422, "validation_error")
    assert found["details"]["field"] == field
    assert found["message"].startswith(f"{field}: ")


def test_other_bad_requests(api: Api) -> None:
    register(api)
    error(api("PUT", "/cron/daily", {"name": "other", "cron": "@daily"}), 400, "invalid_request")
    error(api("PATCH", "/cron/daily", {"enabled": 1}), 400, "invalid_request")
    error(api.get("/cron?enabled=maybe"), 400, "invalid_request")
    error(api("PATCH", "/cron/nobody", {"enabled": True}), 404, "not_found")


def test_what_the_code_declares_is_changed_there(api: Api) -> None:
    register(api)
    Schedule.objects.update(source="code")
    for method, path, body in (
        ("POST", "/cron", {"name": "daily", "cron": "@daily", "job_template": TEMPLATE}),
        ("DELETE", "/cron/daily", {}),
    ):
        assert error(api(method, path, body), 409, "conflict")["message"].startswith(
            "the schedule 'daily'"
        )
    assert api.post("/cron/daily/pause", {}).status == 200


def test_what_no_code_declares_any_more_gives_its_name_up(api: Api, frozen: FrozenClock) -> None:
    register(api)
    Schedule.objects.update(source="code")
    frozen.advance(2 * 86400)
    fire.fire_due(using="default")
    assert register(api, 200)["next_run_at"] is not None
    assert Schedule.objects.get().source == "http"
    assert api("DELETE", "/cron/daily", {}).status == 200


def test_a_caller_sees_the_schedules_of_its_queues(caller: Caller, api: Api) -> None:
    register(api)
    register(api, name="mine", job_template={"type": "a", "options": {"queue": "mine"}})
    mine = caller("produce", "inspect", "administer", queues=["mine"])
    assert [item["name"] for item in mine.get("/cron").body["items"]] == ["mine"]
    error(mine.get("/cron/daily"), 404, "not_found")
    error(mine("DELETE", "/cron/daily"), 404, "not_found")
    body = {"name": "daily", "cron": "@daily", "type": "a", "args": [], "options": {"queue": "mine"}}
    refused = mine.post("/cron", body)
    error(refused, 403, "permission_denied")
    assert "reports" not in refused.raw.decode(), "whose it is, is not for this caller"
    body["options"] = {"queue": "reports"}
    error(mine.post("/cron", {**body, "name": "third"}), 403, "permission_denied")
    assert Schedule.objects.count() == 2


def test_the_total_of_what_a_caller_sees_says_where_it_ends(caller: Caller, api: Api) -> None:
    for name in "abc":
        register(api, name=name, job_template={"type": "a", "options": {"queue": "mine"}})
    mine = caller("inspect", queues=["mine"])
    pages = [mine.get(f"/cron?limit={limit}").body["pagination"] for limit in (1, 3)]
    assert [page["total_is_capped"] for page in pages] == [True, False]
    assert [page["has_more"] for page in pages] == [True, False]


@pytest.mark.parametrize("word", ["replace", "reject"])
def test_jobs_of_a_schedule_meet_none_that_its_author_does_not_see(
    caller: Caller, api: Api, word: str
) -> None:
    """At its ticks nobody asks for rights (decision L13)."""
    mine = caller("produce", "administer", queues=["mine"])
    unique: dict[str, Any] = {"keys": ["type"], "on_conflict": word}
    job = {"type": "a", "args": [], "options": {"queue": "mine"}, "unique": unique}
    body = {"name": "x", "expression": "@daily", "job_template": job}
    refused_field(mine.post("/cron", body), "unique")
    assert not Schedule.objects.exists()
    register(api, name="all", job_template=job)
    unique["keys"] = ["type", "queue"]
    assert mine.post("/cron", body).status == 201


def test_the_manifest_says_so(api: Api) -> None:
    shown = api("GET", "//ojs/manifest").body
    assert shown["capabilities"]["cron_jobs"] is True


def test_a_zone_that_is_not_known_here_hides_no_other_schedule(api: Api, frozen: FrozenClock) -> None:
    register(api)
    register(api, name="broken")
    Schedule.objects.filter(pk="broken").update(timezone="Mars/Base")
    listed = api.get("/cron")
    assert listed.status == 200
    assert {one["name"]: one["next_run_at"] is None for one in listed.body["items"]} == {
        "daily": False,
        "broken": True,
    }
    assert api.get("/cron/broken").body["cron"]["timezone"] == "Mars/Base"


def test_next_runs_follow_the_zone(api: Api, frozen: FrozenClock) -> None:
    frozen.time += timedelta(days=180)
    made = register(api, timezone="Asia/Tokyo")
    assert made["next_run_at"].endswith("T00:00:00.000Z")
    assert register(api, name="ny", timezone="America/New_York")["next_run_at"].endswith(
        "T13:00:00.000Z"
    )
