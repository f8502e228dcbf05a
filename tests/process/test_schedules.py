"""Schedules and real processes: who looks after them, what a kill leaves, changes of the clock."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from itertools import pairwise, takewhile

import pytest

from django_ojs import clock
from django_ojs.clock import FrozenClock
from django_ojs.domain import schedule
from django_ojs.domain.cron import Interval, Tick, firing
from django_ojs.domain.envelope import from_call
from django_ojs.models import Job, Schedule, ScheduleRun, Workflow
from django_ojs.services.schedules import fire, operate, rows
from tests.process.tools import Start, StartWorker
from tests.races.schedules import COUNT, names
from tests.support import ROOT, database_url, not_none, poll

pytestmark = [
    pytest.mark.every_database,
    pytest.mark.process,
    pytest.mark.usefixtures("ojs_db"),
]
TICKING = {"DJANGO_SETTINGS_MODULE": "tests.workload.settings_schedules"}


def make(name: str = "report", expression: str = "*/5 * * * *", **options: object) -> Schedule:
    envelope = from_call("report.make", [], now=schedule.NO_TIME)
    spec = schedule.make(name, expression, envelope, options)
    return operate.put(spec, source=schedule.ScheduleSource.ADMIN)[0]


def test_a_worker_enqueues_and_runs_what_the_settings_declare(worker: StartWorker) -> None:
    worker(**TICKING)
    poll(lambda: Job.objects.filter(state="completed", type="work.echo").count() >= 3, 30)
    ticks = list(ScheduleRun.objects.order_by("tick").values_list("tick", "outcome"))
    assert {outcome for _, outcome in ticks} == {"fired"}
    gaps = {after - before for (before, _), (after, _) in pairwise(ticks)}
    assert gaps == {timedelta(seconds=1)}


def test_the_reaper_under_cron_alone_enqueues_too(manage: Start) -> None:
    assert manage("reap_timeouts", "--once", **TICKING).wait(30) == 0
    row = Schedule.objects.get()
    assert not Job.objects.exists()
    poll(lambda: not_none(row.due_at) < clock.read("default"), 10)
    assert manage("reap_timeouts", "--once", **TICKING).wait(30) == 0
    assert Job.objects.exists()
    assert ScheduleRun.objects.filter(outcome="fired", tick=not_none(row.due_at)).count() == 1


@pytest.mark.parametrize("place", ["before", "after"])
def test_a_kill_loses_nothing_and_repeats_nothing(python: Start, place: str) -> None:
    # No tick of its own falls into the test.
    make(expression="0 0 29 2 *")
    Schedule.objects.update(due_at=clock.read("default") - timedelta(seconds=5))
    due = Schedule.objects.get().due_at
    code = f"""
import os, signal
import django
django.setup()
from django_ojs.services.schedules import fire
kept = fire.record_run
def dying(*args, **named):
    if {place == "after"}:
        kept(*args, **named)
    os.kill(os.getpid(), signal.SIGKILL)
fire.record_run = dying
fire.fire_due(using="default")
"""
    assert python("-c", code).wait(30) == -signal.SIGKILL
    assert not Job.objects.exists(), "it was enqueued and not committed"
    assert Schedule.objects.get().due_at == due
    assert fire.fire_due(using="default") == 1
    assert fire.fire_due(using="default") == 0
    assert Job.objects.count() == ScheduleRun.objects.filter(outcome="fired").count() == 1


def test_a_workflow_of_a_tick_is_enqueued_once_whatever_dies(drained: StartWorker) -> None:
    """Its job enqueues it under an id that is made of the tick, and is killed before it returns."""
    envelope = from_call("work.start-of-tick", [], now=schedule.NO_TIME)
    spec = schedule.make("numbers", "@hourly", envelope)
    operate.put(spec, source=schedule.ScheduleSource.ADMIN)
    _, run = operate.run_now("numbers")
    drained()
    started = Job.objects.get(pk=not_none(run.job_id))
    assert (started.state, started.attempt) == ("completed", 2)
    assert str(Workflow.objects.get().id) == started.result
    assert sorted(job.args[0] for job in Job.objects.filter(type="work.echo")) == [1, 2, 3]


class Looking:
    """Processes that handle what is due when they are told a time."""

    def __init__(self, stack: ExitStack, count: int) -> None:
        environment = {"DATABASE_URL": database_url(), "DJANGO_SETTINGS_MODULE": "tests.settings"}
        self._processes = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", "tests.races.schedules", str(number)],
                    cwd=ROOT,
                    env={**os.environ, **environment},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for number in range(count)
        ]

    def all_look(self, moment: datetime) -> int:
        """Let all look at once; how many schedules they moved on, together."""
        for process in self._processes:
            print(moment.isoformat(), file=not_none(process.stdin), flush=True)
        return sum(int(not_none(process.stdout).readline()) for process in self._processes)

    def end(self) -> None:
        """Let them end."""
        for process in self._processes:
            not_none(process.stdin).close()
            assert process.wait(30) == 0


def moments(begin: datetime, end: datetime, outage: tuple[datetime, datetime]) -> Iterator[datetime]:
    """Each five minutes, some seconds late, but for an outage."""
    moment = begin
    while moment < end:
        moment += timedelta(minutes=5)
        if not outage[0] < moment < outage[1]:
            yield moment + timedelta(seconds=7)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("day", ["2026-03-28", "2026-10-24"])
def test_each_tick_is_enqueued_once_or_accounted_for(frozen: FrozenClock, day: str) -> None:
    """Three processes, fifty schedules, through a change of the clocks, and three hours in which nobody
    looks.
    """
    begin = datetime.fromisoformat(day).replace(hour=18, tzinfo=UTC)
    end = begin + timedelta(hours=22)
    outage = (begin + timedelta(hours=15, minutes=2), begin + timedelta(hours=18, minutes=2))
    frozen.time = begin
    made = {
        name: make(name, expression, timezone=zone, overlap="allow")
        for name, expression, zone in names()
    }
    assert len(made) == COUNT == 50
    with ExitStack() as stack:
        processes = Looking(stack, 3)
        for moment in moments(begin, end, outage):
            processes.all_look(moment)
        processes.end()
    runs = Counter[tuple[str, str]]()
    for run in ScheduleRun.objects.all():
        runs[run.schedule, run.outcome] += run.count
    last = end + timedelta(seconds=7)
    for name, row in made.items():
        timing = rows.timing(row)  # as it was made
        wanted = list(takewhile(last.__ge__, firing(timing, begin)))
        handled = runs[name, "fired"] + runs[name, "missed"]
        assert handled == len(wanted), (
            row.expression,
            row.timezone,
            wanted,
            list(ScheduleRun.objects.filter(schedule=name).values()),
        )
        fired = set(
            ScheduleRun.objects.filter(schedule=name, outcome="fired").values_list("tick", flat=True)
        )
        assert fired <= set(wanted)
        assert {tick for tick in wanted if not outage[0] < tick < outage[1]} <= fired
        assert (runs[name, "missed"] > 0) == (len(wanted) > len(fired))
        assert isinstance(timing, Interval) or runs[name, "skipped"] == sum(
            tick.skipped for tick in rows_ahead(row, begin, last)
        )
    assert Job.objects.count() == ScheduleRun.objects.filter(outcome="fired").count()
    stamps = Counter(
        (job.meta["cron_name"], job.meta["cron_triggered_at"]) for job in Job.objects.all()
    )
    assert max(stamps.values()) == 1, "a tick was enqueued twice"
    assert sum(runs.values()) > 800


def rows_ahead(row: Schedule, after: datetime, until: datetime) -> Iterator[Tick]:
    while (tick := rows.timing(row).after(after)) is not None and tick.at <= until:
        after = tick.at
        yield tick
