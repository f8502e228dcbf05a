"""Queues that nobody uses are forgotten, and come back with whoever names them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from django.test import override_settings

from django_ojs import clock
from django_ojs.models import Job, MinuteStat, Queue
from django_ojs.services import enqueue as enqueue_service
from django_ojs.services import prune, queues
from django_ojs.services.rate_limits import operate, policies
from django_ojs.store import inserting
from tests.services.support import ack, make, take
from tests.support import ROOT, database_url

pytestmark = [pytest.mark.usefixtures("ojs_db"), pytest.mark.every_database]
DAYS = timedelta(days=1)


def known() -> list[str]:
    return queues.known()


def used(name: str, days: float) -> None:
    """A queue with a row, in which nothing has been done for so many days."""
    queues.ensure([name])
    Queue.objects.filter(name=name).update(used_at=clock.now("default") - days * DAYS)


def test_what_nobody_has_used_for_as_long_as_retention_says_is_forgotten() -> None:
    used("old", 8)
    used("young", 6)
    assert prune.prune(dry_run=True).counts["queues"] == 1
    assert known() == ["old", "young"]
    assert prune.prune().counts["queues"] == 1
    assert known() == ["young"]
    with override_settings(OJS={"RETENTION": {"queues": None}}):
        assert "queues" not in prune.prune().counts
    with override_settings(OJS={"RETENTION": {"queues": "P5D"}}):
        assert prune.prune().counts["queues"] == 1
    assert known() == []


def test_a_queue_counts_as_new_for_an_hour_whatever_retention_says() -> None:
    """Else the limit of new queues could be got around by waiting for it."""
    used("q", 0.03)
    with override_settings(OJS={"RETENTION": {"queues": 1}}):
        assert prune.prune().counts["queues"] == 0
        used("q", 0.05)
        assert prune.prune().counts["queues"] == 1


def test_what_is_paused_declared_or_has_figures_is_kept() -> None:
    for name in ("paused", "declared", "busy", "default", "unused"):
        used(name, 30)
    queues.pause(["paused"])
    at = clock.now("default") - 2 * DAYS
    MinuteStat.objects.create(at=at, queue="busy", completed=1)
    MinuteStat.objects.create(at=at - 20 * DAYS, queue="unused", completed=1)
    with override_settings(OJS={"QUEUES": {"declared": {"timeout": 5}}}):
        prune.prune()
    assert known() == ["busy", "declared", "default", "paused"]


@pytest.mark.parametrize(
    ("options", "running"),
    [({}, False), ({}, True), ({"delay": "720h"}, False)],
    ids=["available", "active", "scheduled"],
)
def test_a_queue_with_a_job_that_can_run_yet_is_kept(options: dict[str, Any], running: bool) -> None:
    make(queue="q", **options)
    if running:
        take(queues=["q"])
    used("q", 30)
    assert prune.prune().counts["queues"] == 0
    assert known() == ["q"]
    Job.objects.all().delete()
    assert prune.prune().counts["queues"] == 0, "it is looked at again as long after"
    used("q", 8)
    assert prune.prune().counts["queues"] == 1


def test_many_are_forgotten_in_batches() -> None:
    names = [f"q{number:03}" for number in range(450)]
    queues.ensure(names)
    Queue.objects.update(used_at=clock.now("default") - 30 * DAYS)
    assert prune.prune(limit=250).counts["queues"] == 250
    assert len(known()) == 200
    assert prune.prune().counts["queues"] == 200


@pytest.mark.slow
def test_a_queue_that_another_process_forgot_comes_back_for_one_that_knows_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """This process does not give it its row again, since it knows that it has one."""
    make(queue="q")
    ack(*take(queues=["q"]))
    used("q", 30)
    command = [sys.executable, "manage.py", "ojs", "prune", "--format", "json"]
    environment = {"DATABASE_URL": database_url(), "PATH": "/usr/bin:/bin"}
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, timeout=60)
    assert known() == []
    (job,) = make(queue="q")
    assert known() == [], "the process relies on what it knows"
    assert [taken.id for taken in take(queues=["q"])] == [job.id]
    (other,) = make(queue="q")
    assert [taken.id for taken in _take_of_any_queue()] == [other.id]
    # A job that waits brings the row back, whoever looks for it: this process too.
    make(queue="q")
    assert queues.discover() == 1
    assert known() == ["q"]
    # And so does the process itself, which does not rely on it for ever.
    Queue.objects.all().delete()
    monkeypatch.setattr(enqueue_service, "_KNOWN_FOR", -1.0)
    make(queue="q")
    assert known() == ["q"]


def _take_of_any_queue() -> Sequence[Any]:
    from django_ojs.services.claim import claim, sources

    return claim(sources(None, ["test.job"]), limit=1, worker_id="w1", beats=True)


@pytest.mark.slow
def test_the_process_that_forgets_a_queue_gives_it_its_row_again() -> None:
    make(queue="q")
    ack(*take(queues=["q"]))
    used("q", 30)
    assert prune.prune().counts["queues"] == 1
    make(queue="q")
    assert known() == ["q"]


@pytest.fixture
def forgotten(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The row of ``q`` is forgotten once, between the statement that finds it and the next one."""
    insert, forgotten = inserting.queues, list[int]()

    def interrupted(names: Sequence[str], *, using: str) -> None:
        insert(names, using=using)
        if not forgotten:
            forgotten.append(Queue.objects.filter(name="q").delete()[0])

    monkeypatch.setattr(inserting, "queues", interrupted)
    return forgotten


def test_a_pause_is_not_lost_with_a_row_that_is_forgotten_meanwhile(forgotten: list[int]) -> None:
    used("q", 30)
    assert queues.pause(["q"]) == ["q"]
    assert forgotten == [1]
    make(queue="q")
    assert take(queues=["q"]) == []


def test_a_limit_is_not_lost_with_a_row_that_is_forgotten_meanwhile(forgotten: list[int]) -> None:
    operate.override("queue:q", {"concurrency": 0})
    assert forgotten == [1]
    policies.forget_limited()
    make(queue="q")
    assert take(queues=["q"]) == []
