"""The clock of a test and schedules: those that it names enqueue at each tick on the way."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from django_ojs.domain import schedule
from django_ojs.domain.envelope import from_call
from django_ojs.models import Job
from django_ojs.services.schedules import declared
from django_ojs.testing import JobClock

pytestmark = [pytest.mark.usefixtures("ojs_db"), pytest.mark.every_database]


@pytest.fixture
def job_clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[JobClock]:
    monkeypatch.setattr(declared, "_declared", {})
    for name, expression in (("hourly", "@hourly"), ("often", "* * * * * *")):
        declared.declare(
            schedule.make(name, expression, from_call(f"{name}.run", [], now=schedule.NO_TIME))
        )
    with JobClock() as clock:
        clock.freeze(datetime(2026, 2, 12, 10, 30, tzinfo=UTC))
        yield clock


def made() -> list[Any]:
    return [job.meta["cron_triggered_at"][11:16] for job in Job.objects.order_by("id")]


def test_it_stops_at_the_ticks_of_the_schedules_that_are_named(job_clock: JobClock) -> None:
    job_clock.advance(hours=3)
    assert made() == []
    job_clock.advance(hours=2, schedules=["hourly"])
    assert made() == ["14:00"], "the first one has not run: it is not enqueued beside it"
    Job.objects.update(state="completed", finished_at=job_clock.now)
    job_clock.advance(hours=1)
    assert made() == ["14:00", "16:00"]


def test_an_unknown_name_is_an_error(job_clock: JobClock) -> None:
    with pytest.raises(ValueError, match="did you mean 'hourly'"):
        job_clock.advance(hours=1, schedules=["hourli"])
    with pytest.raises(TypeError, match="a list of names"):
        job_clock.advance(hours=1, schedules="hourly")
