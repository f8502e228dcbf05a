"""``ojs cron``: what people see of schedules in a shell, and do to them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from django_ojs.clock import FrozenClock
from django_ojs.domain import schedule
from django_ojs.domain.envelope import from_call
from django_ojs.models import AuditEntry, Job, Schedule
from django_ojs.services.schedules import declared, fire, operate
from tests.management.test_commands import run
from tests.support import not_none

pytestmark = [pytest.mark.usefixtures("ojs_db"), pytest.mark.every_database]
START = datetime(2026, 3, 27, 10, 0, 30, tzinfo=UTC)


@pytest.fixture(autouse=True)
def at_start(frozen: FrozenClock, monkeypatch: pytest.MonkeyPatch) -> None:
    frozen.time = START
    monkeypatch.setattr(declared, "_declared", {})


def make(name: str = "report", expression: str = "30 2 * * *", **options: Any) -> Schedule:
    envelope = from_call("report.make", [], now=START)
    spec = schedule.make(name, expression, envelope, {"timezone": "Europe/Berlin", **options})
    return operate.put(spec, source=schedule.ScheduleSource.ADMIN)[0]


def read(*arguments: str) -> Any:
    return json.loads(run("ojs", "cron", *arguments, "--format", "json"))


def test_the_list_has_what_the_code_declares_too() -> None:
    assert "no schedules" in run("ojs", "cron", "list")
    make()
    envelope = from_call("nightly", [], now=START)
    declared.declare(schedule.make("nightly", "@daily", envelope))
    listed = read("list")
    assert [(one["name"], one["source"]) for one in listed] == [
        ("nightly", "code"),
        ("report", "admin"),
    ]
    text = run("ojs", "cron", "list")
    assert "2026-03-28T01:30:00.000Z" in text
    assert "never" in text


def test_the_list_has_a_schedule_whose_zone_is_not_known_here() -> None:
    make()
    Schedule.objects.update(timezone="Mars/Base")
    assert [(one["timezone"], one["next_run_at"]) for one in read("list")] == [("Mars/Base", None)]


def test_the_times_ahead_with_the_change_of_the_clocks() -> None:
    make()
    lines = run("ojs", "cron", "next", "report", "-n", "4").splitlines()
    assert lines[0] == "Sat 2026-03-28 02:30:00 CET  2026-03-28T01:30:00.000Z"
    assert lines[1].endswith("left out: there is no such time on that day")
    assert lines[2] == (
        "Mon 2026-03-30 02:30:00 CEST  2026-03-30T00:30:00.000Z  the clocks go forward before"
    )
    assert lines[3] == "Tue 2026-03-31 02:30:00 CEST  2026-03-31T00:30:00.000Z"
    assert [one["skipped"] for one in read("next", "report", "-n", "4")] == [False, True, False, False]
    with pytest.raises(CommandError, match="-n: must be from 1 to 1000"):
        call_command("ojs", "cron", "next", "report", "-n", "0")


def test_an_interval_goes_on_from_its_next_tick(frozen: FrozenClock) -> None:
    make(expression="@every 1h", timezone="UTC")
    frozen.advance(600)
    assert read("next", "report", "-n", "2")[0]["at"] == "2026-03-27T11:00:30.000Z"


@pytest.mark.slow
def test_run_pause_resume_delete(frozen: FrozenClock) -> None:
    make()
    ran = read("run", "report", "--reason", "asked for")
    assert ran["outcome"] == "fired"
    assert str(Job.objects.get().id) == ran["job_id"]
    assert run("ojs", "cron", "pause", "report", "--reason", "month end").strip() == "report paused"
    shown = read("show", "report")
    assert (shown["status"], shown["pause_reason"], shown["next_run_at"]) == (
        "paused",
        "month end",
        None,
    )
    assert shown["runs"][0]["job_id"] == ran["job_id"]
    assert "month end" in run("ojs", "cron", "show", "report")
    assert run("ojs", "cron", "pause", "report").strip() == "report was already paused"
    ends = "next 2026-03-28T01:30:00.000Z"
    assert run("ojs", "cron", "resume", "report").strip() == f"report resumed; {ends}"
    assert run("ojs", "cron", "resume", "report").strip() == f"report was not paused; {ends}"
    assert run("ojs", "cron", "delete", "report").strip() == "report deleted"
    for verb in ("show", "next", "run", "pause", "resume", "delete"):
        with pytest.raises(CommandError, match="no schedule is named 'report'"):
            call_command("ojs", "cron", verb, "report")


def test_jitter_spreads_ticks_and_delays_nothing_that_a_person_orders(frozen: FrozenClock) -> None:
    make(expression="@hourly", timezone="UTC", jitter="50m")
    assert read("list")[0]["next_run_at"] == "2026-03-27T11:00:00.000Z"
    assert read("next", "report", "-n", "1")[0]["at"] == "2026-03-27T11:00:00.000Z"
    assert read("show", "report")["jitter"] == "PT50M"
    ran = read("run", "report")
    assert Job.objects.get(pk=ran["job_id"]).state == "available"
    frozen.time = datetime(2026, 3, 27, 11, 0, 10, tzinfo=UTC)
    period = ("--from", "2026-03-27T11:00:00Z", "--to", "now")
    (filled,) = read("backfill", "report", *period)
    assert Job.objects.get(pk=filled["job_id"]).state == "available"


def test_a_late_schedule_is_called_so(frozen: FrozenClock) -> None:
    row = make()
    frozen.time = not_none(row.due_at) + timedelta(seconds=90)
    assert read("list")[0]["status"] == "late"
    fire.fire_due(using="default")
    assert read("list")[0]["last_outcome"] == "fired"


@pytest.mark.slow
def test_backfill_says_first_and_then_does(frozen: FrozenClock) -> None:
    make(expression="@hourly", timezone="UTC", catch_up="none")
    frozen.advance(4 * 3600)
    fire.fire_due(using="default")
    period = ("--from", "2026-03-27T11:00:00Z", "--to", "2026-03-27T13:00:00Z")
    text = run("ojs", "cron", "backfill", "report", *period, "--dry-run")
    assert text.splitlines() == [
        "2026-03-27T11:00:00.000Z",
        "2026-03-27T12:00:00.000Z",
        "2 jobs to enqueue",
    ]
    assert not Job.objects.exists()
    why = ("--reason", "after the outage")
    assert run("ojs", "cron", "backfill", "report", *period, *why).splitlines()[-1] == "2 jobs enqueued"
    entries = AuditEntry.objects.filter(action="schedule.backfilled").order_by("pk")
    assert [(entry.target_id, entry.reason, entry.data["tick"]) for entry in entries] == [
        ("report", "after the outage", "2026-03-27T11:00:00.000Z"),
        ("report", "after the outage", "2026-03-27T12:00:00.000Z"),
    ]
    assert run("ojs", "cron", "backfill", "report", *period).strip() == "0 jobs enqueued"
    with pytest.raises(CommandError, match="to: must be after from"):
        call_command("ojs", "cron", "backfill", "report", period[0], period[3], "--to", period[1])


def test_the_durations_of_a_backfill_are_ago(frozen: FrozenClock) -> None:
    make(expression="0 0 * * *", timezone="UTC", catch_up="none")
    frozen.advance(5 * 86400)
    said = run("ojs", "cron", "backfill", "report", "--from", "2d", "--to", "12h", "--dry-run")
    assert said.splitlines() == [
        "2026-03-31T00:00:00.000Z",
        "1 job to enqueue",
    ]
    with pytest.raises(CommandError) as caught:
        call_command("ojs", "cron", "backfill", "report", "--from", "monday", "--to", "now")
    assert str(caught.value) == (
        "--from: must be an RFC 3339 time, or how long ago, such as 2d, 12h or PT12H"
    )


def test_what_the_code_declares_is_deleted_there() -> None:
    declared.declare(schedule.make("nightly", "@daily", from_call("nightly", [], now=START)))
    with pytest.raises(CommandError, match="declared in code: change it there"):
        call_command("ojs", "cron", "delete", "nightly")
