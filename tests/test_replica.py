"""``OJS["READ_DATABASE"]``: who reads the replica, who the primary, and what is said about it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import OperationalError, connections
from django.test import Client, override_settings

from django_ojs import api, checks, clock, conf
from django_ojs.models import Job, MaintenanceRun
from django_ojs.services import metrics, reading, tokens
from tests.admin.support import do, login, page
from tests.http.support import Answer, Api, enqueue

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("no_users")]


@pytest.fixture
def no_users(ojs_db: None) -> Iterator[None]:
    """No users before and after."""
    from django.contrib.auth.models import User

    User.objects.all().delete()
    yield
    User.objects.all().delete()


@pytest.fixture
def replica(ojs_db: None, tmp_path: Path) -> Iterator[str]:
    """A database of its own, to which nothing is copied: what it shows is not from the primary."""
    alias = "replica"
    connections.databases[alias] = {
        **connections.databases["default"],
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": str(tmp_path / "replica.sqlite3"),
        "OPTIONS": {},
    }
    reading._resting.clear()
    try:
        call_command("migrate", "django_ojs", database=alias, verbosity=0)
        with override_settings(OJS={"READ_DATABASE": alias}):
            yield alias
    finally:
        reading._resting.clear()
        connections[alias].close()
        del connections[alias]
        del connections.databases[alias]


@pytest.fixture
def caller() -> Api:
    """A client that may do everything."""
    return Api(tokens.create("everything", scopes=tokens.SCOPES, queues=["*"])[1])


def listed(answer: Answer) -> int:
    """How many items a list has."""
    assert answer.status == 200, answer.raw
    return len(answer.body["items"])


def ran(using: str, ago: float) -> None:
    """Maintenance ran in this database so many seconds before a fixed time."""
    at = datetime(2026, 1, 1, tzinfo=UTC) - timedelta(seconds=ago)
    MaintenanceRun.objects.using(using).update_or_create(name="reap", defaults={"last_run_at": at})


@pytest.mark.slow
def test_lists_and_metrics_read_the_replica(replica: str, caller: Api) -> None:
    job = api.enqueue("test.job", queue="mail")
    ran("default", 2)
    ran(replica, 5)
    for path in ("/jobs", "/queues", "/workers", "/workflows", "/cron", "/rate-limits", "/dead-letter"):
        answer = caller.get(path)
        assert (listed(answer), answer.headers["OJS-Replica-Lag"]) == (0, "3.0"), path
    depths = next(one for one in metrics.collect() if one.name == "ojs_queue_depth")
    assert depths.values == {}, "the replica has no queue"
    assert "ojs_replica_lag_seconds 3\n" in caller.get("/metrics").raw.decode()
    browser = login(superuser=True)
    text = page(browser, "job/")
    assert str(job.id) not in text and "Read from a replica, 3 s behind." in text
    for path in ("queue/", "worker/", "failurestat/", "dashboard/", "auditentry/"):
        assert "Read from a replica" in page(browser, path), path
    assert caller.get(f"/jobs/{job.id}").status == 200, "one job is read where it was written"
    assert "Read from a replica" not in page(browser, f"job/{job.id}/change/")


@pytest.mark.slow
def test_who_has_changed_something_reads_the_primary(replica: str) -> None:
    job = api.enqueue("test.job")
    browser, other = login(superuser=True), login(superuser=True, name="bob")
    assert str(job.id) not in page(browser, "job/")
    answer = do(browser, job, "cancel", reason="")
    assert answer.status_code == 302
    assert answer.cookies["ojs_wrote"]["max-age"] == reading.MOST_BEHIND_S
    assert str(job.id) in page(browser, "job/", state="cancelled")
    assert str(job.id) not in page(other, "job/"), "of others nothing is known"


@pytest.mark.slow
def test_clients_can_ask_for_the_latest(replica: str, caller: Api) -> None:
    enqueue(caller)
    assert listed(caller.get("/jobs")) == 0
    answer = caller.get("/jobs", Cache_Control="no-cache")
    assert listed(answer) == 1 and "OJS-Replica-Lag" not in answer.headers
    jar = Client(headers={"Authorization": f"Bearer {caller.token}"})
    jar.post("/ojs/v1/jobs", b'{"type": "test.job", "args": []}', "application/openjobspec+json")
    assert len(jar.get("/ojs/v1/jobs").json()["items"]) == 2


@pytest.mark.slow
def test_a_replica_that_is_too_far_behind_is_not_read(replica: str, caller: Api) -> None:
    enqueue(caller)
    ran("default", 0)
    ran(replica, reading.MOST_BEHIND_S + 1)
    answer = caller.get("/jobs")
    assert listed(answer) == 1 and "OJS-Replica-Lag" not in answer.headers
    assert "The replica is more than 30 s behind" in page(login(superuser=True), "job/")
    MaintenanceRun.objects.using(replica).all().delete()
    assert listed(caller.get("/jobs")) == 1, "nothing has arrived there at all"


@pytest.mark.slow
@pytest.mark.fault("F140")
def test_a_replica_that_fails_costs_no_answer(replica: str, caller: Api) -> None:
    job = enqueue(caller)
    with connections[replica].cursor() as cur:
        for table in (Job._meta.db_table, "django_ojs_queue"):
            cur.execute(f"DROP TABLE {table}")
    assert listed(caller.get("/jobs")) == 1
    assert listed(caller.get("/queues")) == 1
    assert 'ojs_queue_depth{queue="default"' in caller.get("/metrics").raw.decode()
    browser = login(superuser=True)
    for path in ("job/", "queue/", "dashboard/"):
        assert "The replica does not answer: read from the primary." in page(browser, path), path
    assert str(job["id"]) in page(browser, "job/")


@pytest.mark.slow
@pytest.mark.fault("F140")
def test_a_replica_that_does_not_answer_is_left_alone(
    replica: str, caller: Api, caplog: pytest.LogCaptureFixture
) -> None:
    enqueue(caller)
    with connections[replica].cursor() as cur:
        cur.execute("DROP TABLE django_ojs_maintenancerun")
    ran("default", 0)
    for _ in range(3):
        assert listed(caller.get("/jobs")) == 1
    assert caplog.text.count("does not answer") == 1


def test_what_took_too_long_is_not_repeated(replica: str) -> None:
    tried = []

    def work() -> None:
        tried.append(reading.database())
        error = OperationalError()
        error.__cause__ = type("Cancelled", (Exception,), {"sqlstate": "57014"})()
        raise error

    with pytest.raises(OperationalError):
        reading.on_replica(work)
    assert tried == [replica]


def test_time_is_that_of_the_primary(replica: str, frozen: clock.FrozenClock) -> None:
    asked = []

    class Which(clock.FrozenClock):
        def now(self, using: str):  # type: ignore[no-untyped-def]
            asked.append(using)
            return super().now(using)

    with clock.using_clock(Which()):
        clock.now(replica)
    assert asked == ["default"]


def test_an_alias_that_does_not_exist_is_refused() -> None:
    with override_settings(OJS={"READ_DATABASE": "nowhere"}):
        found = checks.check_database_settings(None)
    assert [one.id for one in found if one.level >= 40] == ["ojs.E017"]
    assert conf.read({"READ_DATABASE": 3})[1]
