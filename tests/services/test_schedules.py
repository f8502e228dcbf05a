"""Schedules enqueue each tick once, or say what became of it (OJS cron 6 and 7)."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.checks import run_checks
from django.db import connections, transaction
from django.test import override_settings

from django_ojs import api, enqueue_middleware
from django_ojs.clock import FrozenClock
from django_ojs.domain import schedule as schedules
from django_ojs.domain.envelope import from_call
from django_ojs.domain.errors import Conflict, InvalidRequest, NotFound
from django_ojs.domain.job import Actor
from django_ojs.domain.schedule import ScheduleSource
from django_ojs.models import AuditEntry, Event, Job, Schedule, ScheduleRun
from django_ojs.services import health, metrics, promote
from django_ojs.services.prune import prune
from django_ojs.services.schedules import declared, fire, operate, read, rows
from django_ojs.services.schedules.declared import sync
from django_ojs.store import due_times
from tests.support import family, not_none

from .support import ack, take

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("ojs_db")]

START = datetime(2026, 2, 12, 10, 0, 30, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@pytest.fixture(autouse=True)
def at_start(frozen: FrozenClock) -> None:
    frozen.time = START


@pytest.fixture
def no_declarations() -> Iterator[None]:
    before = dict(declared._declared)
    declared._declared.clear()
    yield
    declared._declared.clear()
    declared._declared.update(before)


def spec(
    expression: str | None = "*/5 * * * *", name: str = "report", **options: Any
) -> schedules.ScheduleSpec:
    job = {key: options.pop(key) for key in ("queue", "meta", "unique", "rate_limit") if key in options}
    envelope = from_call("report.make", ["eu"], now=START, **job)
    return schedules.make(name, expression, envelope, options)


def put(*args: Any, **options: Any) -> Schedule:
    return operate.put(spec(*args, **options), source=ScheduleSource.HTTP)[0]


def tick(frozen: FrozenClock, at: datetime) -> int:
    frozen.time = at
    return fire.fire_due(using="default")


def outcomes(name: str = "report") -> list[tuple[str, str]]:
    runs = ScheduleRun.objects.filter(schedule=name).order_by("tick")
    return [(run.outcome, run.reason) for run in runs]


def jobs() -> list[Job]:
    return list(Job.objects.order_by("id"))


def test_a_tick_enqueues_one_job_with_its_name_and_its_time(frozen: FrozenClock) -> None:
    row = put(queue="low", meta={"tenant": 7})
    assert row.due_at == START.replace(minute=5, second=0)
    assert (row.queue, row.type, row.run_count) == ("low", "report.make", 0)
    assert tick(frozen, row.due_at - timedelta(seconds=1)) == 0
    assert tick(frozen, row.due_at) == 1
    assert tick(frozen, row.due_at) == 0
    (job,) = jobs()
    assert (job.type, job.queue, job.args, job.state) == ("report.make", "low", ["eu"], "available")
    assert job.meta == {
        "tenant": 7,
        "cron_name": "report",
        "cron_triggered_at": "2026-02-12T10:05:00.000Z",
    }
    row.refresh_from_db()
    assert (row.run_count, row.last_job_id, row.last_run_at) == (
        1,
        job.id,
        START.replace(minute=5, second=0),
    )
    assert row.due_at == START.replace(minute=10, second=0)
    assert outcomes() == [("fired", "")]


def test_events_say_what_happened(frozen: FrozenClock) -> None:
    row = put(timezone="Europe/Berlin")
    tick(frozen, not_none(row.due_at))
    (event,) = Event.objects.filter(kind="cron.triggered")
    assert event.queue == "default"
    assert event.data["job_id"] == str(jobs()[0].id)
    wanted = {
        "cron_name": "report",
        "cron_expr": "*/5 * * * *",
        "timezone": "Europe/Berlin",
        "run_count": 1,
    }
    assert wanted.items() <= event.data.items()
    assert event.data["scheduled_at"] == "2026-02-12T10:05:00.000Z"


@pytest.mark.parametrize("overlap", ["skip", "cancel_previous", "allow", "enqueue"])
def test_overlap(frozen: FrozenClock, overlap: str) -> None:
    put(overlap=overlap)
    tick(frozen, START + 5 * MINUTE)
    (running,) = take(1, types=["report.make"])
    tick(frozen, START + 10 * MINUTE)
    states = [job.state for job in jobs()]
    if overlap == "skip":
        assert states == ["active"]
        assert outcomes() == [("fired", ""), ("skipped", "overlap_skip")]
        (event,) = Event.objects.filter(kind="cron.skipped")
        assert event.data["reason"] == "overlap_skip"
        assert event.data["existing_job_id"] == str(running.id)
        ack(running)
        tick(frozen, START + 15 * MINUTE)
        assert len(jobs()) == 2
        return
    assert states == ["cancelled" if overlap == "cancel_previous" else "active", "available"]
    assert outcomes() == [("fired", ""), ("fired", "")]
    # One after the other: the second cannot be claimed before the first has ended.
    taken = [job.id for job in take(5, types=["report.make"])]
    assert taken == ([] if overlap == "enqueue" else [jobs()[1].id])
    if overlap == "enqueue":
        ack(running)
        assert [job.id for job in take(5, types=["report.make"])] == [jobs()[1].id]


@pytest.mark.parametrize("catch_up", ["one", "none"])
def test_an_outage_is_made_up_for_by_the_last_tick_at_most(frozen: FrozenClock, catch_up: str) -> None:
    row = put(catch_up=catch_up)
    first = not_none(row.due_at)
    assert tick(frozen, first + timedelta(hours=3, seconds=30)) == 1
    runs = list(ScheduleRun.objects.order_by("tick"))
    missed = {"fired": 0, "missed": 0}
    for run in runs:
        missed[run.outcome] += run.count
    if catch_up == "one":
        assert missed == {"fired": 1, "missed": 36}
        assert runs[-1].tick == first + timedelta(hours=3)
        assert jobs()[0].meta["cron_triggered_at"] == "2026-02-12T13:05:00.000Z"
    else:
        assert missed == {"fired": 0, "missed": 37}
        assert not jobs()
    (event,) = Event.objects.filter(kind="cron.missed")
    assert event.data["count"] == missed["missed"]
    row.refresh_from_db()
    assert row.due_at == first + timedelta(hours=3, minutes=5)


def test_a_tick_that_is_too_old_is_not_made_up_for(frozen: FrozenClock) -> None:
    row = put("0 3 * * *")
    at_three = not_none(row.due_at)
    tick(frozen, at_three + timedelta(minutes=11))
    assert outcomes() == [("missed", "late")]
    put("0 3 * * *", catch_up_within="1h")
    tick(frozen, at_three + timedelta(days=1, minutes=11))
    assert outcomes() == [("missed", "late"), ("fired", "")]


@pytest.mark.parametrize("late", [0, 2])
def test_a_time_in_the_gap_is_skipped_and_said(frozen: FrozenClock, late: int) -> None:
    frozen.time = datetime(2026, 3, 28, 12, tzinfo=UTC)
    row = put("30 2 * * *", timezone="Europe/Berlin")
    assert rows.next_run(row) == datetime(2026, 3, 30, 0, 30, tzinfo=UTC)
    tick(frozen, datetime(2026, 3, 29, 1 + late, tzinfo=UTC))
    assert outcomes() == [("skipped", "dst_skip")]
    (event,) = Event.objects.filter(kind="cron.skipped")
    assert event.data["reason"] == "dst_skip"
    assert event.data["gap"] == {"from": "2026-03-29T02:00:00", "to": "2026-03-29T03:00:00"}
    assert not jobs()
    row.refresh_from_db()
    assert row.due_at == datetime(2026, 3, 30, 0, 30, tzinfo=UTC)


def test_jitter_delays_the_job_and_not_the_tick(frozen: FrozenClock) -> None:
    row = put(jitter="10m")
    due = not_none(row.due_at)
    tick(frozen, due)
    (job,) = jobs()
    assert due <= not_none(job.scheduled_at) < due + timedelta(minutes=10)
    row.refresh_from_db()
    assert (row.last_run_at, row.due_at) == (due, due + 5 * MINUTE)


def test_between_start_and_end(frozen: FrozenClock) -> None:
    row = put("@hourly", starts_at="2026-02-13T00:00:00Z", ends_at="2026-02-13T01:30:00Z")
    assert row.due_at == datetime(2026, 2, 13, 0, tzinfo=UTC)
    tick(frozen, datetime(2026, 2, 13, 0, tzinfo=UTC))
    tick(frozen, datetime(2026, 2, 13, 1, tzinfo=UTC))
    assert Schedule.objects.get().due_at is None
    assert [outcome for outcome, _ in outcomes()] == ["fired", "skipped"]


def test_an_interval_goes_on_from_its_last_tick(frozen: FrozenClock) -> None:
    row = put(None, every="90s", overlap="allow")
    assert row.expression == "@every PT90S"
    assert row.due_at == START + timedelta(seconds=90)
    tick(frozen, START + timedelta(seconds=100))
    row.refresh_from_db()
    assert row.due_at == START + timedelta(seconds=180)
    # Registered again at the start of the application: it goes on.
    assert put(None, every="90s", overlap="allow").due_at == START + timedelta(seconds=180)


def test_a_refused_job_does_not_end_the_schedule(frozen: FrozenClock) -> None:
    row = put()
    enqueue_middleware.add(raising, "raising")
    try:
        tick(frozen, not_none(row.due_at))
    finally:
        enqueue_middleware.reset()
    assert outcomes() == [("refused", "LookupError: not today")]
    tick(frozen, START + 10 * MINUTE)
    assert [outcome for outcome, _ in outcomes()] == ["refused", "fired"]


def raising(request: Any, proceed: Any) -> Any:
    raise LookupError("not today")


def test_a_unique_job_that_is_there_already_is_skipped(frozen: FrozenClock) -> None:
    put(overlap="allow", unique=True)
    tick(frozen, START + 5 * MINUTE)
    tick(frozen, START + 10 * MINUTE)
    assert outcomes() == [("fired", ""), ("skipped", "unique")]
    assert len(jobs()) == 1


def test_a_schedule_that_cannot_be_read_holds_up_no_other(frozen: FrozenClock) -> None:
    put(name="broken")
    put(name="report")
    Schedule.objects.filter(pk="broken").update(timezone="Mars/Base")
    assert tick(frozen, START + 5 * MINUTE) == 2
    ((outcome, reason),) = outcomes("broken")
    assert (outcome, reason.startswith("timezone: must be an IANA name")) == ("refused", True)
    assert outcomes("report") == [("fired", "")]
    assert Schedule.objects.get(pk="broken").due_at is None
    assert read.ahead(Schedule.objects.get(pk="broken"), 3, START) == []
    assert put(name="broken").due_at is not None


@pytest.mark.parametrize("before", ["advance", "give_up"])
def test_one_that_is_deleted_meanwhile_holds_up_no_other(
    frozen: FrozenClock, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    put(name="deleted")
    put(name="report")
    if before == "give_up":
        Schedule.objects.filter(pk="deleted").update(timezone="Mars/Base")
    owner, name = (declared, "is_here") if before == "advance" else (fire, "_give_up")
    real: Any = getattr(owner, name)

    def after_a_deletion(row: Schedule, *args: Any, **options: Any) -> Any:
        Schedule.objects.filter(pk="deleted").delete()
        return real(row, *args, **options)

    monkeypatch.setattr(owner, name, after_a_deletion)
    tick(frozen, START + 5 * MINUTE)
    assert outcomes("report") == [("fired", "")]
    assert outcomes("deleted") == []


def test_a_last_job_that_is_purged_meanwhile_gives_no_schedule_up(
    frozen: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(overlap="cancel_previous")
    tick(frozen, START + 5 * MINUTE)
    real = fire._running

    def purged_after_the_look(row: Schedule, using: str) -> Any:
        found = real(row, using)
        Job.objects.filter(pk=not_none(found)).delete()
        return found

    monkeypatch.setattr(fire, "_running", purged_after_the_look)
    tick(frozen, START + 10 * MINUTE)
    assert outcomes() == [("fired", ""), ("fired", "")]
    assert Schedule.objects.get().due_at == START.replace(minute=15, second=0)


@pytest.mark.slow
def test_many_look_and_one_enqueues(frozen: FrozenClock) -> None:
    for index in range(20):
        put(name=f"s{index:02}")
    frozen.time = START + 5 * MINUTE
    if family() == "sqlite":
        assert fire.fire_due(using="default") == 20
    else:

        def look(_: int) -> int:
            try:
                return fire.fire_due(using="default")
            finally:
                connections.close_all()

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(look, range(6)))
    assert len(jobs()) == 20
    assert ScheduleRun.objects.filter(outcome="fired").count() == 20
    assert {row.due_at for row in Schedule.objects.all()} == {START.replace(minute=10, second=0)}


def test_what_is_rolled_back_was_not_enqueued(frozen: FrozenClock) -> None:
    row = put()
    frozen.time = not_none(row.due_at)
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        assert fire.fire_due(using="default") == 1
        raise ZeroDivisionError
    assert not jobs()
    assert tick(frozen, not_none(row.due_at)) == 1
    assert len(jobs()) == 1


def test_a_pause_outlasts_a_new_declaration(frozen: FrozenClock) -> None:
    put()
    paused, _ = operate.pause("report", actor=Actor("admin", "ada", "month end"))
    assert (paused.due_at, paused.paused_by, paused.pause_reason) == (None, "ada", "month end")
    assert put("*/7 * * * *").due_at is None
    frozen.time = START + timedelta(hours=5)
    resumed, _ = operate.resume("report", actor=Actor("admin", "ada"))
    assert resumed.due_at == datetime(2026, 2, 12, 15, 7, tzinfo=UTC)
    assert not outcomes(), "ticks during the pause were not missed"
    actions = list(AuditEntry.objects.order_by("id").values_list("action", flat=True))
    assert actions == ["schedule.made", "schedule.paused", "schedule.changed", "schedule.resumed"]


def test_an_update_keeps_what_has_run_and_the_next_tick(frozen: FrozenClock) -> None:
    put()
    tick(frozen, START + 5 * MINUTE)
    row, is_new = operate.put(spec(description="weekly"), source=ScheduleSource.HTTP)
    assert not is_new
    assert (row.run_count, row.description) == (1, "weekly")
    assert row.due_at == START.replace(minute=10, second=0)


def test_run_now_stands_beside_the_ticks(frozen: FrozenClock) -> None:
    put()
    row, run = operate.run_now("report", actor=Actor("admin", "ada"))
    assert (run.outcome, run.by, run.tick) == ("fired", "ada", START)
    assert row.due_at == START.replace(minute=5, second=0)
    tick(frozen, START + 5 * MINUTE)
    assert outcomes() == [("fired", ""), ("skipped", "overlap_skip")]


def test_missed_ticks_can_be_filled_in(frozen: FrozenClock) -> None:
    put("@hourly", catch_up="none")
    tick(frozen, START + timedelta(hours=4))
    since, until = START.replace(hour=11, second=0), START.replace(hour=14, second=0)
    wanted = operate.missing_ticks("report", since, until, using="default")
    assert wanted == [since + timedelta(hours=n) for n in range(3)]
    runs = operate.backfill("report", since, until, using="default")
    assert [run.tick for run in runs] == wanted
    assert operate.missing_ticks("report", since, until, using="default") == []
    assert [job.meta["cron_triggered_at"] for job in jobs()][-1] == "2026-02-12T13:00:00.000Z"
    with pytest.raises(InvalidRequest, match="to: must be after from"):
        operate.missing_ticks("report", until, since, using="default")
    with pytest.raises(NotFound):
        operate.missing_ticks("unknown", since, until, using="default")


@pytest.mark.parametrize("catch_up", ["one", "none"])
def test_what_was_filled_in_during_an_outage_is_not_missed(frozen: FrozenClock, catch_up: str) -> None:
    row = put("@hourly", catch_up=catch_up, overlap="allow")
    first = not_none(row.due_at)
    frozen.time = first + timedelta(hours=3, minutes=5)
    wanted = operate.backfill("report", first, frozen.time, using="default")
    assert len(wanted) == 4
    assert tick(frozen, frozen.time) == 1
    runs = ScheduleRun.objects.order_by("tick")
    assert list(runs.values_list("tick", "outcome", "job_id")) == [
        (run.tick, "fired", run.job_id) for run in wanted
    ]
    assert operate.missing_ticks("report", first, frozen.time, using="default") == []
    assert len(jobs()) == 4
    assert not Event.objects.filter(kind="cron.missed")
    row.refresh_from_db()
    assert row.due_at == first + timedelta(hours=4)


def test_only_ticks_that_were_not_filled_in_are_missed(frozen: FrozenClock) -> None:
    first = not_none(put("@hourly", catch_up="none").due_at)
    frozen.time = first + timedelta(hours=4, minutes=5)
    for hours in (0, 2):
        since = first + timedelta(hours=hours)
        operate.backfill("report", since, since + MINUTE, using="default")
    tick(frozen, frozen.time)
    hour = timedelta(hours=1)
    assert list(ScheduleRun.objects.order_by("tick").values_list("tick", "outcome", "count")) == [
        (first, "fired", 1),
        (first + hour, "missed", 3),
        (first + 2 * hour, "fired", 1),
    ]
    (event,) = Event.objects.filter(kind="cron.missed")
    assert event.data["count"] == 3
    missing = operate.missing_ticks("report", first, frozen.time, using="default")
    assert missing == [first + hour, first + 3 * hour, first + 4 * hour]


def test_only_ticks_between_start_and_end_are_missing(frozen: FrozenClock) -> None:
    put(starts_at=START + 10 * MINUTE, ends_at=START + 20 * MINUTE)
    frozen.time = START + 60 * MINUTE
    missing = operate.missing_ticks("report", START - 60 * MINUTE, frozen.time, using="default")
    first = START.replace(second=0)
    assert missing == [first + 15 * MINUTE, first + 20 * MINUTE]


def test_a_schedule_can_be_deleted(frozen: FrozenClock) -> None:
    put()
    operate.delete("report")
    assert tick(frozen, START + 10 * MINUTE) == 0
    with pytest.raises(NotFound):
        operate.delete("report")


def test_the_probe_sees_the_next_tick() -> None:
    put()
    assert due_times.next_start(using="default") == START.replace(minute=5, second=0)


def test_runs_are_pruned_by_their_age(frozen: FrozenClock) -> None:
    put()
    tick(frozen, START + 5 * MINUTE)
    frozen.time = START + timedelta(days=31)
    assert prune(using="default").counts["cron"] == 1
    assert not outcomes()


@pytest.mark.usefixtures("no_declarations")
class TestDeclared:
    """Schedules of code and settings."""

    def test_a_declaration_gets_its_row_once(self, frozen: FrozenClock) -> None:
        declared.declare(spec())
        assert sync(using="default") == ["report"]
        assert sync(using="default") == []
        row = Schedule.objects.get()
        assert (row.source, row.due_at) == ("code", START.replace(minute=5, second=0))
        assert tick(frozen, START + 5 * MINUTE) == 1
        assert len(jobs()) == 1

    def test_settings_declare_too(self) -> None:
        ojs = {"CRON": {"sessions.clear": {"schedule": "@daily", "queue": "low", "args": [1]}}}
        with override_settings(OJS=ojs):
            assert sync(using="default") == ["sessions.clear"]
        row = Schedule.objects.get()
        assert (row.source, row.type, row.queue) == ("settings", "sessions.clear", "low")

    def test_only_who_declares_the_same_enqueues(self, frozen: FrozenClock) -> None:
        declared.declare(spec())
        sync(using="default")
        declared._declared.clear()
        declared.declare(spec(description="of the next version"))
        assert tick(frozen, START.replace(minute=5, second=30)) == 0
        sync(using="default")
        assert tick(frozen, START.replace(minute=5, second=30)) == 1

    def test_what_nobody_declares_any_more_stops(self, frozen: FrozenClock) -> None:
        declared.declare(spec())
        sync(using="default")
        declared._declared.clear()
        assert tick(frozen, START + 5 * MINUTE) == 0
        assert tick(frozen, START + 7 * MINUTE) == 1
        assert outcomes() == [("missed", "undeclared")]
        assert Schedule.objects.get().due_at is None
        assert not jobs()
        declared.declare(spec())
        assert tick(frozen, START + 12 * MINUTE) == 0
        assert sync(using="default") == ["report"]
        assert Schedule.objects.get().due_at == START.replace(minute=15, second=0)
        assert sync(using="default") == []
        assert tick(frozen, START + 15 * MINUTE) == 1
        assert outcomes() == [("missed", "undeclared"), ("fired", "")]

    def test_a_run_that_was_filled_in_stays_when_it_is_given_up(self, frozen: FrozenClock) -> None:
        declared.declare(spec())
        sync(using="default")
        declared._declared.clear()
        frozen.time = START + 7 * MINUTE
        operate.backfill("report", START, frozen.time, using="default")
        assert tick(frozen, frozen.time) == 1
        assert Schedule.objects.get().due_at is None
        assert outcomes() == [("fired", "")]

    def test_an_interval_that_is_declared_again_counts_from_then(self, frozen: FrozenClock) -> None:
        declared.declare(spec(None, every="5m"))
        sync(using="default")
        declared._declared.clear()
        assert tick(frozen, START + 7 * MINUTE) == 1
        declared.declare(spec(None, every="5m"))
        sync(using="default")
        assert Schedule.objects.get().due_at == START + 12 * MINUTE

    def test_a_pause_outlasts_that_nothing_declares_it(self, frozen: FrozenClock) -> None:
        declared.declare(spec())
        sync(using="default")
        declared._declared.clear()
        assert tick(frozen, START + 7 * MINUTE) == 1
        operate.pause("report")
        declared.declare(spec())
        assert sync(using="default") == ["report"]
        assert Schedule.objects.get().due_at is None
        frozen.time = START + 12 * MINUTE
        operate.resume("report")
        assert tick(frozen, START + 15 * MINUTE) == 1
        assert len(jobs()) == 1

    def test_what_is_declared_in_the_meantime_is_not_given_up(
        self, frozen: FrozenClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        declared.declare(spec())
        sync(using="default")
        frozen.time = START + 7 * MINUTE
        real = declared.is_here

        def declared_by_another(row: Schedule, using: str) -> bool:
            declared._declared.clear()
            found = real(row, using)
            declared.declare(spec(description="of the next version"))
            sync(using=using)
            return found

        with monkeypatch.context() as patch:
            patch.setattr(declared, "is_here", declared_by_another)
            fire._turn(Schedule.objects.get(), using="default")
        assert Schedule.objects.get().due_at == START.replace(minute=5, second=0)
        assert tick(frozen, START + 7 * MINUTE) == 1
        assert outcomes() == [("fired", "")]

    def test_it_is_changed_where_it_is_declared(self) -> None:
        declared.declare(spec())
        sync(using="default")
        with pytest.raises(Conflict, match="declared in code"):
            put("@daily")
        with pytest.raises(Conflict, match="declared in code"):
            operate.delete("report")

    def test_the_name_of_one_that_was_given_up_is_free(self, frozen: FrozenClock) -> None:
        declared.declare(spec())
        sync(using="default")
        declared._declared.clear()
        with pytest.raises(Conflict, match="declared in code"):
            operate.delete("report")
        assert tick(frozen, START + 7 * MINUTE) == 1
        made = put("@daily")
        assert (made.source, made.due_at) == ("http", datetime(2026, 2, 13, tzinfo=UTC))
        operate.delete("report")
        assert not Schedule.objects.exists()

    def test_what_was_given_up_can_be_deleted_where_no_code_declares_it(
        self, frozen: FrozenClock
    ) -> None:
        declared.declare(spec())
        sync(using="default")
        declared._declared.clear()
        assert tick(frozen, START + 7 * MINUTE) == 1
        declared.declare(spec(description="of the next version"))
        for change in (put, operate.delete):
            with pytest.raises(Conflict, match="declared in code"):
                change(name="report")
        declared._declared.clear()
        operate.delete("report")
        assert not Schedule.objects.exists()

    @pytest.mark.parametrize(
        "options", [{"enabled": False}, {"ends_at": START + MINUTE}], ids=["disabled", "ended"]
    )
    def test_what_has_no_ticks_can_be_deleted_where_no_code_declares_it(
        self, options: dict[str, Any], frozen: FrozenClock
    ) -> None:
        declared.declare(spec(**options))
        sync(using="default")
        frozen.time = START + 2 * MINUTE
        with pytest.raises(Conflict, match="declared in code"):
            operate.delete("report")
        declared._declared.clear()
        operate.delete("report")
        assert not Schedule.objects.exists()

    def test_what_is_paused_has_ticks_to_come(self) -> None:
        declared.declare(spec())
        sync(using="default")
        operate.pause("report")
        declared._declared.clear()
        with pytest.raises(Conflict, match="declared in code"):
            operate.delete("report")

    def test_the_code_wins_over_the_settings_and_a_check_says_so(self) -> None:
        declared.declare(spec())
        with override_settings(OJS={"CRON": {"report": {"schedule": "@daily"}}}):
            assert sync(using="default") == ["report"]
            (found,) = [one for one in run_checks(tags=["ojs"]) if one.id == "ojs.E016"]
            assert "OJS['CRON']['report'] is declared in code too" in str(found)
        assert Schedule.objects.get().source == "code"

    def test_two_declarations_of_one_name_are_refused(self) -> None:
        declared.declare(spec())
        declared.declare(spec())
        with pytest.raises(ValueError, match="'report' is declared twice"):
            declared.declare(spec("@daily"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"expression": None}, "schedule: must be given, or every: one of the two"),
        ({"every": "5m"}, "schedule: must be given, or every: one of the two"),
        ({"name": "Über"}, "name: must be of a-z"),
        ({"overlap": "never"}, "overlap: must be one of skip, allow, cancel_previous, enqueue"),
        ({"overlap": "enqueue", "name": "a" * 251}, "name: must be at most 250 long"),
        ({"catch_up": "all"}, "catch_up: must be one of none, one"),
        ({"jitter": "-1s"}, "jitter: must"),
        ({"enabled": 1}, "enabled: must be true or false"),
        ({"starts_at": "5m"}, "starts_at: must be a time with a zone"),
        ({"ends_at": timedelta(days=1)}, "ends_at: must be a time with a zone"),
        (
            {"starts_at": "2026-02-13T00:00:00Z", "ends_at": "2026-02-12T00:00:00Z"},
            "ends_at: must be after starts_at",
        ),
        (
            {"overlap": "enqueue", "rate_limit": {"key": "a", "concurrency": 1}},
            "overlap: 'enqueue' is a rate limit",
        ),
    ],
)
def test_what_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        spec(**options)
    assert message in str(refused.value)


@pytest.mark.parametrize("option", ["delay", "scheduled_at", "expires_at", "id", "pending"])
def test_options_of_a_single_job_are_refused(option: str) -> None:
    value: Any = {"id": str(api.new_id()), "pending": True}.get(option, "5m")
    envelope = from_call("report.make", [], now=START, **{option: value})
    with pytest.raises(
        InvalidRequest, match="makes no sense for a job that is enqueued again and again"
    ):
        schedules.make("report", "@daily", envelope)


def test_a_scheduled_job_becomes_available(frozen: FrozenClock) -> None:
    row = put(jitter="1s")
    tick(frozen, not_none(row.due_at))
    frozen.time = not_none(row.due_at) + timedelta(seconds=2)
    promote.promote(using="default")
    assert jobs()[0].state == "available"


def test_late_schedules_are_a_problem(frozen: FrozenClock) -> None:
    row = put()
    frozen.time = not_none(row.due_at) + timedelta(seconds=30)
    late = [found for found in health.problems(using="default") if found.code == "schedules_late"]
    assert late == []
    frozen.advance(60)
    (found,) = [found for found in health.problems(using="default") if found.code == "schedules_late"]
    assert str(found).startswith("Late schedules (1): report.")
    (family,) = [one for one in metrics.collect() if one.name == "ojs_schedule_late_seconds"]
    assert family.values == {("report",): 90.0}
