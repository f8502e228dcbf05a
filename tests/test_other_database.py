"""``OJS["DATABASE"]``: everything happens in that database, and nothing in the default one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections, transaction
from django.test import override_settings

from django_ojs import api, clock
from django_ojs.models import Attempt, Event, Job, Queue
from django_ojs.services import prune, queues, reap, scan
from django_ojs.store import invariants
from tests.services.support import ack, fail, take


@pytest.fixture
def jobs_database(ojs_db: None, tmp_path: Path) -> Iterator[str]:
    """A second database, a SQLite file, that holds the jobs."""
    alias = "jobs"
    connections.databases[alias] = {
        **connections.databases["default"],
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": str(tmp_path / "jobs.sqlite3"),
        "OPTIONS": {"transaction_mode": "IMMEDIATE"},
    }
    try:
        call_command("migrate", "django_ojs", database=alias, verbosity=0)
        with override_settings(OJS={"DATABASE": alias, "EVENTS": "all"}):
            yield alias
    finally:
        connections[alias].close()
        del connections[alias]
        del connections.databases[alias]


def _counts(alias: str) -> dict[str, int]:
    models: list[Any] = [Job, Attempt, Event, Queue]
    return {model.__name__: model.objects.using(alias).count() for model in models}


def test_the_whole_life_is_there(jobs_database: str) -> None:
    for number in range(4):
        api.enqueue("test.job", [number], retry={"max_attempts": 1})
    one, two, three = take(3)
    ack(one)
    fail(two)
    api.retry(two.id)
    api.cancel(three.id)
    queues.pause(["default"])
    scan.scan(cadence=None, ran_by="test")
    reap.reap()
    prune.prune()
    call_command("ojs", "check")
    assert _counts("default") == {"Job": 0, "Attempt": 0, "Event": 0, "Queue": 0}
    here = _counts(jobs_database)
    assert (here["Job"], here["Attempt"], here["Queue"]) == (4, 3, 1)
    broken = invariants.check(now=clock.now(jobs_database), slack=scan._LEAST_GAP, using=jobs_database)
    assert broken == []


def test_enqueue_joins_the_transaction_of_that_database_only(jobs_database: str) -> None:
    with pytest.raises(RuntimeError), transaction.atomic(using=jobs_database):
        api.enqueue("test.job")
        raise RuntimeError
    assert _counts(jobs_database)["Job"] == 0
    with pytest.raises(RuntimeError), transaction.atomic(using="default"):
        api.enqueue("test.job")
        raise RuntimeError
    assert _counts(jobs_database)["Job"] == 1
