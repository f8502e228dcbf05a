"""Several databases: everything happens in ``OJS["DATABASE"]``, and is read where it was written."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import DatabaseError, connections, transaction
from django.test import override_settings

from django_ojs import api, clock, hooks
from django_ojs.models import Attempt, Event, Job, Queue
from django_ojs.services import leases, promote, prune, queues, reap, reaper, tokens
from django_ojs.store import invariants
from tests.http.support import Api, enqueue, fetch, look
from tests.services.support import ack, fail, held, take

pytestmark = pytest.mark.every_database


class Replica:
    """A router that sends every read to a replica, which has nothing yet."""

    def db_for_read(self, model: object, **hints: object) -> str:
        """The replica, whatever is asked for."""
        return "replica"

    def db_for_write(self, model: object, **hints: object) -> str:
        """Where writes belong."""
        return "default"


@pytest.fixture
def replica(ojs_db: None, tmp_path: Path) -> Iterator[None]:
    """Reads are routed to a database that has not even our tables."""
    connections.databases["replica"] = {
        **connections.databases["default"],
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": str(tmp_path / "replica.sqlite3"),
        "OPTIONS": {},
    }
    try:
        with override_settings(DATABASE_ROUTERS=["tests.test_other_database.Replica"]):
            yield
    finally:
        connections["replica"].close()
        del connections["replica"]
        del connections.databases["replica"]


@pytest.mark.slow
@pytest.mark.fault("F89")
def test_the_queue_reads_where_it_writes(replica: None) -> None:
    for number in range(4):
        assert api.get(api.enqueue("test.job", [number], retry={"max_attempts": 1})).args == [number]
    one, two, three = take(3)
    leases.beat([held(one)], using="default")
    ack(one)
    fail(two)
    api.retry(two.id)
    api.cancel(three.id)
    queues.pause(["default"])
    assert take() == []
    queues.resume(["default"])
    reaper.scan(cadence=None, ran_by="test")
    reap.reap()
    promote.promote(using="default")
    prune.prune()
    for task in hooks.maintenance_tasks():
        task.run("default")
    call_command("ojs", "check")
    call_command("ojs", "status", stdout=StringIO())
    call_command("ojs", "explain", str(two.id), stdout=StringIO())
    call_command("ojs", "inspect", str(two.id), stdout=StringIO())
    with pytest.raises(DatabaseError, match="no such table"):
        Job.objects.count()


@pytest.mark.fault("F89")
def test_so_does_the_binding(replica: None) -> None:
    caller = Api(tokens.create("everything", scopes=tokens.SCOPES, queues=["*"])[1])
    for number in range(3):
        enqueue(caller, args=[number])
    first, second = fetch(caller, count=2)
    report = {"job_id": first["id"], "lease_id": first["lease"]["id"]}
    beat = caller.post("/workers/heartbeat", {"worker_id": "w1", "active_jobs": [first["id"]]})
    assert (beat.status, beat.body["jobs_extended"]) == (200, [first["id"]])
    for path, body in (
        (f"/jobs/{first['id']}/progress", {"progress": 0.5, "lease_id": first["lease"]["id"]}),
        ("/workers/ack", report),
        ("/workers/ack", report),
        ("/workers/nack", {"job_id": second["id"], "error": {"type": "x", "message": "y"}}),
        (f"/jobs/{second['id']}/cancel", {}),
    ):
        answer = caller.post(path, body)
        assert answer.status == 200, (path, answer.raw)
    assert look(caller, first)["state"] == "completed"
    for path in ("/jobs", "/queues", "/workers", "/workers/w1/health", "/events", "/dead-letter"):
        answer = caller.get(path)
        assert answer.status == 200, (path, answer.raw)


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


@pytest.mark.slow
@pytest.mark.fault("F90")
def test_the_whole_life_is_there(jobs_database: str) -> None:
    for number in range(4):
        api.enqueue("test.job", [number], retry={"max_attempts": 1})
    one, two, three = take(3)
    ack(one)
    fail(two)
    api.retry(two.id)
    api.cancel(three.id)
    queues.pause(["default"])
    reaper.scan(cadence=None, ran_by="test")
    reap.reap()
    prune.prune()
    call_command("ojs", "check")
    assert _counts("default") == {"Job": 0, "Attempt": 0, "Event": 0, "Queue": 0}
    here = _counts(jobs_database)
    assert (here["Job"], here["Attempt"], here["Queue"]) == (4, 3, 1)
    broken = invariants.check(
        now=clock.now(jobs_database), slack=timedelta(seconds=15), using=jobs_database
    )
    assert broken == []


@pytest.mark.fault("F90")
def test_enqueue_joins_the_transaction_of_that_database_only(jobs_database: str) -> None:
    with pytest.raises(RuntimeError), transaction.atomic(using=jobs_database):
        api.enqueue("test.job")
        raise RuntimeError
    assert _counts(jobs_database)["Job"] == 0
    with pytest.raises(RuntimeError), transaction.atomic(using="default"):
        api.enqueue("test.job")
        raise RuntimeError
    assert _counts(jobs_database)["Job"] == 1
