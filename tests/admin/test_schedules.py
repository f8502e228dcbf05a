"""The schedules in the admin: the list, the page, run now, pause, and those that are made there."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from django_ojs.clock import FrozenClock
from django_ojs.domain import schedule
from django_ojs.domain.envelope import from_call
from django_ojs.models import AuditEntry, Job, Schedule
from django_ojs.services.schedules import fire, operate
from tests.admin.support import login, page
from tests.support import not_none

pytestmark = pytest.mark.usefixtures("no_users")
FORM = {
    "name": "nightly",
    "expression": "30 2 * * *",
    "timezone": "Europe/Berlin",
    "type": "report.make",
    "args": '["eu"]',
    "queue": "",
    "overlap": "skip",
    "catch_up": "one",
    "description": "to all",
    "template": "",
    "_confirmed": "1",
}
ALL = ("run", "pause", "change", "add", "delete", "view")


@pytest.fixture(autouse=True)
def at_start(frozen: FrozenClock) -> None:
    frozen.time = datetime(2026, 3, 28, 10, 0, 30, tzinfo=UTC)


def make(source: str = "admin", **options: Any) -> Schedule:
    envelope = from_call("report.make", ["eu", {"token": "s3cret"}], now=schedule.NO_TIME, priority=7)
    spec = schedule.make("report", "30 2 * * *", envelope, {"timezone": "Europe/Berlin", **options})
    return operate.put(spec, source=schedule.ScheduleSource(source))[0]


def operator(name: str = "ada", *more: str) -> Client:
    return login(*(f"{verb}_schedule" for verb in ALL), "view_args", "view_job", *more, name=name)


def do(browser: Client, operation: str, **fields: str) -> Any:
    path = f"/admin/django_ojs/schedule/report/do/{operation}/"
    return browser.post(path, {"_confirmed": "1", **fields})


def test_the_list_says_when_and_what_became_of_the_last(frozen: FrozenClock) -> None:
    row = make()
    browser = login("view_schedule")
    text = page(browser, "schedule/")
    assert "2026-03-30 00:30:00" in text, "the tick of the 29th is left out"
    assert "active" in text
    frozen.time = not_none(row.due_at) + timedelta(minutes=5)
    assert "late" in page(browser, "schedule/")
    fire.fire_due(using="default")
    assert "skipped" in page(browser, "schedule/")
    assert "report" in page(browser, "schedule/", q="rep")
    assert "/schedule/report/" not in page(browser, "schedule/", q="port")


def test_a_zone_that_is_not_known_here_hides_no_other_schedule() -> None:
    make()
    other = schedule.make("broken", "@hourly", from_call("a.b", [], now=schedule.NO_TIME))
    operate.put(other, source=schedule.ScheduleSource.ADMIN)
    Schedule.objects.filter(pk="broken").update(timezone="Mars/Base")
    browser = login("view_schedule")
    text = page(browser, "schedule/")
    assert "2026-03-30 00:30:00" in text
    assert "/schedule/broken/" in text
    assert "Mars/Base" in page(browser, "schedule/broken/change/")


def test_the_list_takes_no_statement_a_row() -> None:
    browser = login("view_schedule")
    counts = []
    for number in range(3):
        envelope = from_call("report.make", [], now=schedule.NO_TIME)
        spec = schedule.make(f"s{number}", "@daily", envelope)
        operate.put(spec, source=schedule.ScheduleSource.ADMIN)
        operate.run_now(spec.name)
        with CaptureQueriesContext(connection) as seen:
            page(browser, "schedule/")
        counts.append(len(seen))
    assert counts[0] == counts[-1] <= 12


def test_the_page_shows_the_times_ahead_and_the_history() -> None:
    make()
    operate.run_now("report")
    text = page(operator(), "schedule/report/change/")
    assert "left out: there is no such time on that day" in text
    assert "Mon 2026-03-30 02:30:00 CEST" in text
    assert str(Job.objects.get().id) in text
    assert "the clocks go forward before" in text
    assert "s3cret" not in text
    assert "••••" in text


def test_arguments_need_their_permission() -> None:
    make()
    text = page(login("view_schedule", "change_schedule"), "schedule/report/change/")
    assert '"eu"' not in text
    assert "/do/edit/" not in text


def test_run_now_pause_and_resume() -> None:
    make()
    browser = operator()
    assert do(browser, "run", reason="asked").status_code == 302
    assert Job.objects.count() == 1
    assert do(browser, "pause", reason="month end").status_code == 302
    assert "month end" in page(browser, "schedule/report/change/")
    assert do(browser, "resume").status_code == 302
    assert Schedule.objects.get().due_at is not None
    assert do(browser, "remove").status_code == 302
    assert not Schedule.objects.exists()
    said = list(AuditEntry.objects.order_by("pk").values_list("action", "actor", "reason"))
    assert said[1:] == [
        ("schedule.triggered", "ada", "asked"),
        ("schedule.paused", "ada", "month end"),
        ("schedule.resumed", "ada", ""),
        ("schedule.deleted", "ada", ""),
    ]


def test_what_was_so_already_is_not_done() -> None:
    make()
    browser = operator()
    do(browser, "pause")
    assert "Pause: 1 done." in page(browser, "schedule/")
    do(browser, "pause")
    text = page(browser, "schedule/")
    assert "The schedule report was paused already." in text
    assert "done." not in text
    do(browser, "resume")
    assert "Resume: 1 done." in page(browser, "schedule/")
    do(browser, "resume")
    text = page(browser, "schedule/")
    assert "The schedule report was not paused." in text
    assert "done." not in text


def test_the_history_is_its_audit() -> None:
    make()
    browser = operator("ada", "view_auditentry")
    do(browser, "pause", reason="month end")
    assert browser.post("/admin/django_ojs/schedule/report/do/run/").status_code == 200
    text = browser.get("/admin/django_ojs/schedule/report/history/", follow=True).content.decode()
    assert "month end" in text
    assert 'href="/admin/django_ojs/schedule/report/change/"' in text
    assert "month end" in page(browser, "auditentry/", did="schedule")


def test_of_several_one_that_cannot_be_deleted_is_left() -> None:
    row = make()
    for name, source in (("a", "admin"), ("b", "code")):
        Schedule.objects.create(**{**vars_of(row), "name": name, "source": source})
    browser = operator()
    chosen = {"action": "remove", "_selected_action": ["a", "b", "report"], "_confirmed": "1"}
    text = browser.post("/admin/django_ojs/schedule/", chosen, follow=True).content.decode()
    assert "Delete: 2 done." in text
    assert "is declared in code: change it there" in text
    assert [row.name for row in Schedule.objects.all()] == ["b"]


def vars_of(row: Schedule) -> dict[str, Any]:
    return {field.attname: getattr(row, field.attname) for field in row._meta.fields}


def test_each_operation_needs_its_permission() -> None:
    make()
    browser = login("view_schedule")
    for name in ("run", "pause", "edit", "copy", "remove"):
        assert do(browser, name).status_code == 403, name
    assert browser.get("/admin/django_ojs/schedule/add/").status_code == 403
    assert browser.post("/admin/django_ojs/schedule/add/", FORM).status_code == 403
    assert Schedule.objects.get().paused_at is None
    refused = AuditEntry.objects.filter(result="denied").order_by("pk")
    names = ("run", "pause", "edit", "copy", "remove", "add")
    assert list(refused.values_list("action", flat=True)) == [f"schedule.{name}" for name in names]


def test_a_schedule_is_added() -> None:
    browser = operator()
    assert browser.get("/admin/django_ojs/schedule/add/").status_code == 200
    answer = browser.post("/admin/django_ojs/schedule/add/", FORM)
    assert answer.status_code == 302
    row = Schedule.objects.get()
    assert (row.name, row.source, row.timezone, row.overlap) == (
        "nightly",
        "admin",
        "Europe/Berlin",
        "skip",
    )
    assert row.description == "to all"
    assert json.loads(row.template["args_json"]) == ["eu"]


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("expression", "61 * * * *", "minute: &#x27;61&#x27; is out of range"),
        ("timezone", "EST", "must be an IANA name"),
        ("type", "No Type", "must be dot-separated"),
        ("args", "{}", "Arguments are a list."),
        ("args", "[", "Enter a valid JSON"),
        ("args", "[NaN]", 'id="id_args_error"><li>must be a finite number'),
        ("queue", "No Queue", "must be of a-z"),
        ("name", "No Name", "must be of a-z"),
        ("type", "work.keywords", "missing a required"),
    ],
)
def test_what_is_wrong_is_said_at_the_field(field: str, value: str, said: str) -> None:
    import tests.workload.jobs  # noqa: F401

    args = "[1, 2]" if value == "work.keywords" else FORM["args"]
    answer = operator().post("/admin/django_ojs/schedule/add/", {**FORM, "args": args, field: value})
    assert answer.status_code == 200
    assert said in answer.content.decode()
    assert not Schedule.objects.exists()


def test_a_change_keeps_what_the_form_does_not_have() -> None:
    make(jitter="1m")
    browser = operator()
    text = browser.get("/admin/django_ojs/schedule/report/do/edit/").content.decode()
    assert "30 2 * * *" in text
    fields = {**FORM, "template": "report", "expression": "@hourly"}
    assert do(browser, "edit", **fields).status_code == 302
    row = Schedule.objects.get()
    assert (row.name, row.expression, row.jitter_ms) == ("report", "@hourly", 60_000)
    assert row.template["priority"] == 7


def test_a_change_of_the_type_keeps_when_it_runs() -> None:
    """The options of the job are those of its type."""
    make(jitter="1m", enabled=False, ends_at="2027-01-01T00:00:00Z", catch_up_within="2m")
    before = Schedule.objects.get()
    fields = {**FORM, "template": "report", "type": "report.mail"}
    assert do(operator(), "edit", **fields).status_code == 302
    row = Schedule.objects.get()
    assert (row.type, row.template.get("priority"), row.due_at) == ("report.mail", None, None)
    for name in ("enabled", "ends_at", "jitter_ms", "catch_up_within_ms"):
        assert getattr(row, name) == getattr(before, name)
    assert not row.enabled


def test_what_no_code_declares_any_more_is_deleted(frozen: FrozenClock) -> None:
    row = make("code")
    frozen.time = not_none(row.due_at) + timedelta(minutes=5)
    fire.fire_due(using="default")
    browser = operator()
    text = page(browser, "schedule/report/change/")
    assert "no process declares it" in text
    assert "/do/edit/" in text
    do(browser, "remove")
    assert not Schedule.objects.exists()


def test_what_the_code_declares_is_copied_and_not_changed() -> None:
    make("code")
    browser = operator()
    text = page(browser, "schedule/report/change/")
    assert "/do/edit/" not in text
    assert "/do/pause/" in text
    do(browser, "remove")
    assert Schedule.objects.count() == 1
    assert do(browser, "copy", **{**FORM, "template": "report"}).status_code == 302
    copied = Schedule.objects.get(pk="nightly")
    assert (copied.source, copied.template["priority"]) == ("admin", 7)
    answer = do(browser, "copy", **{**FORM, "template": "report"})
    assert "There is a schedule of this name." in answer.content.decode()
