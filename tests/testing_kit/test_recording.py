"""What a test sees of what happened, what it removes, and a world in which everything fails."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from django.apps import apps

import django_ojs
from django_ojs import batch, job, models
from django_ojs.models import Event
from django_ojs.signals import job_enqueued
from django_ojs.testing import Drained, clear, drain, enqueued, events, fail_all, fail_next, fake
from django_ojs.testing.clearing import CLEARED
from django_ojs.testing.resetting import forget
from tests.support import not_none

pytestmark = pytest.mark.every_database


@job("kit.recorded")
def recorded(value: int) -> int:
    """Returns what it gets."""
    return value


@pytest.mark.usefixtures("database")
def test_events_are_there_when_they_happen(settings: Any) -> None:
    settings.OJS = {"EVENTS": "problems"}
    receivers = len(job_enqueued.receivers)
    with events() as found:
        one = recorded.enqueue(7)
        assert [event.kind for event in found] == ["job.enqueued"]
        drain()
    kinds = [event.kind for event in found]
    assert kinds == ["job.enqueued", "job.started", "job.completed"]
    assert {event.data["job_id"] for event in found} == {str(one.id)}
    assert found[-1].data["state"] == "completed"
    assert not Event.objects.filter(kind="job.completed").exists()
    recorded.enqueue(8)
    assert len(found) == 3
    assert len(job_enqueued.receivers) == receivers


@pytest.mark.usefixtures("database")
def test_nothing_is_left_of_what_is_cleared() -> None:
    batch([recorded.step(1), recorded.step(2)], on_complete=recorded.step(3)).enqueue()
    recorded.enqueue(4)
    drain(max_jobs=10)
    clear()
    assert enqueued() == []
    for model in CLEARED:
        assert not model._default_manager.exists(), model
    recorded.enqueue(5)
    assert drain() == Drained(completed=1)


def test_every_table_is_cleared_or_known_to_stay() -> None:
    stay = {
        *(models.ApiToken, models.AuditEntry, models.EventStream, models.JobSchema),
        *(models.FailureStat, models.Incident, models.MaintenanceRun, models.MinuteStat),
        *(models.QueueSample, models.TypeStat, models.DeployMark, models.SavedView),
        *(models.Queue, models.Total, models.Worker),
    }
    ours = {one for one in apps.get_app_config("django_ojs").get_models() if not one._meta.proxy}
    assert {*CLEARED, *stay} == ours


def test_recorded_jobs_are_cleared() -> None:
    with fake():
        recorded.enqueue(1)
        clear()
        two = recorded.enqueue(2)
        assert enqueued() == [two]


@pytest.mark.usefixtures("database")
def test_every_attempt_fails_until_the_end_of_the_test() -> None:
    fail_all(ConnectionError("no route"))
    fail_next(recorded, ValueError("first"))
    one, two = (recorded.using(retry={"max_attempts": 1}).enqueue(value) for value in (1, 2))
    assert drain() == Drained(failed=2, discarded=2)
    errors = [not_none(django_ojs.get(job).error)["message"] for job in (one, two)]
    assert errors == ["first", "no route"]
    forget()
    recorded.enqueue(3)
    assert drain() == Drained(completed=1)


def test_what_is_to_be_raised_must_be_an_exception() -> None:
    bad: Any = "no"
    for plan in (fail_all, partial(fail_next, "kit.any")):
        with pytest.raises(TypeError, match="error: must be an exception or a class of them, not 'no'"):
            plan(bad)
