"""What operators are told to do something about."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from html import unescape
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection, connections
from django.utils.translation import override

from django_ojs import clock
from django_ojs.models import MaintenanceRun, Worker
from django_ojs.services import health, reaper, workers
from django_ojs.services.health import HealthProblem
from django_ojs.services.workers import WorkerInfo
from django_ojs.store import server_health
from django_ojs.store.server_health import Connections, DeadRows, OldTransaction, ServerHealth
from tests.admin.support import login, page
from tests.management.test_commands import as_json, run
from tests.services.support import make
from tests.support import family, poll

JOBS = "django_ojs_job"


@pytest.mark.parametrize(
    ("server", "code"),
    [
        (ServerHealth(), None),
        (ServerHealth(connections=Connections(79, 100)), None),
        (ServerHealth(connections=Connections(80, 100)), "connections_crowded"),
        (ServerHealth(oldest=OldTransaction(300.0, "process 1")), None),
        (ServerHealth(oldest=OldTransaction(301.0, "process 1")), "old_transaction"),
        (ServerHealth(dead=[DeadRows(JOBS, 60_000, 100_000)]), None),
        (ServerHealth(dead=[DeadRows(JOBS, 60_001, 100_000)]), "dead_rows"),
        (ServerHealth(dead=[DeadRows("*", 1_000_000, None)]), None),
        (ServerHealth(dead=[DeadRows("*", 1_000_001, None)]), "old_versions"),
        (ServerHealth(autovacuum=True), None),
        (ServerHealth(autovacuum=False, not_vacuumed=[JOBS]), "autovacuum_off"),
        (ServerHealth(autovacuum=True, not_vacuumed=[JOBS]), "autovacuum_off_for"),
        (ServerHealth(wal_bytes=64 * 2**20), None),
        (ServerHealth(wal_bytes=64 * 2**20 + 1), "large_log"),
    ],
)
def test_what_the_server_says_is_judged(server: ServerHealth, code: str | None) -> None:
    assert [one.code for one in health.of_server(server)] == ([] if code is None else [code])


def test_every_problem_has_a_text_and_a_remedy() -> None:
    values = {
        "at": "2026-01-01T00:00:00Z", "task": "prune", "seconds": 3.0, "host": "web-1",
        "versions": "1, 2", "used": 8, "most": 10, "who": "process 1", "table": JOBS, "dead": 9,
        "live": 1, "tables": JOBS, "mebibytes": 70, "count": 2, "names": "a, b", "keys": "a (x, y)",
    }  # fmt: skip
    for code in health._TEXTS:
        told = HealthProblem(code, values)
        assert str(told) == f"{told.problem} {told.remedy}"
        assert "%" not in str(told)
        with override("de"):
            assert told.problem not in str(told), f"{code}: not translated"
            assert told.remedy not in str(told), f"{code}: not translated"


@contextmanager
def reading() -> Iterator[None]:
    """Another connection has an open transaction that has read."""
    with closing(connections.create_connection("default")) as other:
        other.inc_thread_sharing()
        with other.cursor() as cur:
            cur.execute("BEGIN")
            if connection.vendor == "postgresql":
                cur.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            cur.execute(f"SELECT count(*) FROM {JOBS}")
            yield
            cur.execute("ROLLBACK")


def _with_oldest(found: ServerHealth) -> ServerHealth | None:
    return None if found.oldest is None else found


@pytest.mark.every_database
def test_the_server_is_asked(ojs_db: None) -> None:
    with reading():
        found = server_health.read("default")
        if connection.vendor == family() == "mysql":
            # It shows what ran when somebody asked last, if that was within a tenth of a second.
            found = poll(lambda: _with_oldest(server_health.read("default")), every=0.15)
    if connection.vendor != family():
        assert found == ServerHealth(), "of a server that is none of ours nothing is known"
        return
    if connection.vendor == "sqlite":
        assert found == ServerHealth(wal_bytes=found.wal_bytes)
        return
    assert found.connections is not None
    assert 2 <= found.connections.used <= found.connections.most
    assert found.oldest is not None
    assert found.oldest.seconds >= 0
    assert ("process " if connection.vendor == "postgresql" else "connection ") in found.oldest.who
    assert {one.table for one in found.dead} >= ({JOBS} if connection.vendor == "postgresql" else {"*"})


@pytest.mark.every_database
def test_a_table_without_autovacuum_is_named(ojs_db: None) -> None:
    if connection.vendor != "postgresql":
        pytest.skip("only PostgreSQL has autovacuum")
    with connection.cursor() as cur:
        cur.execute(f"ALTER TABLE {JOBS} SET (autovacuum_enabled = off)")
        try:
            assert server_health.read("default").not_vacuumed == [JOBS]
        finally:
            cur.execute(f"ALTER TABLE {JOBS} RESET (autovacuum_enabled)")
    assert server_health.read("default").not_vacuumed == []


@pytest.fixture
def healthy_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else is the matter with the server of the tests."""
    monkeypatch.setattr(server_health, "read", lambda using: ServerHealth())


def codes() -> list[str]:
    return [one.code for one in health.problems(using="default")]


@pytest.mark.every_database
def test_maintenance_that_has_stopped_is_named(ojs_db: None, healthy_server: None) -> None:
    assert codes() == ["reaper_never_ran"]
    now = clock.now("default")
    runs = {reaper.NAME: (1000, 100), "prune": (60_000, 301), "rollup": (600_000, 1700)}
    for name, (cadence_ms, age) in runs.items():
        at = now - timedelta(seconds=age)
        MaintenanceRun.objects.create(name=name, last_run_at=at, cadence_ms=cadence_ms)
    (only,) = health.problems(using="default")
    assert (only.code, only.values["task"]) == ("maintenance_overdue", "prune")
    MaintenanceRun.objects.filter(name=reaper.NAME).update(last_run_at=now - timedelta(seconds=130))
    assert codes() == ["reaper_overdue", "maintenance_overdue"]


def registered(name: str, **fields: Any) -> None:
    workers.register(WorkerInfo(id=name, incarnation=uuid4(), hostname=name, **fields), using="default")


@pytest.mark.every_database
def test_workers_of_two_versions_and_their_clocks(ojs_db: None, healthy_server: None) -> None:
    MaintenanceRun.objects.create(name=reaper.NAME, last_run_at=clock.now("default"), cadence_ms=1000)
    registered("one", version="1.0")
    registered("two", version="1.0")
    assert codes() == []
    assert all(abs(ms) < 2000 for ms in offsets()), "as they registered"
    Worker.objects.filter(name="two").update(version="1.1", clock_ahead_ms=-3200)
    told = [str(one) for one in health.problems(using="default")]
    assert told[0].startswith("Workers of different versions are running: 1.0, 1.1. ")
    assert told[1].startswith("The database's clock is -3.2 s ahead of the clock of two. ")
    Worker.objects.filter(name="two").update(phase=Worker.Phase.STOPPED)
    assert codes() == []


@pytest.mark.every_database
def test_a_heartbeat_tells_the_clock(ojs_db: None) -> None:
    info = WorkerInfo(id="one", incarnation=uuid4())
    workers.register(info, using="default")
    Worker.objects.update(clock_ahead_ms=99_000)
    workers.report(info, phase="running", running=0, using="default")
    assert all(abs(ms) < 2000 for ms in offsets())


def offsets() -> list[int]:
    found = list(Worker.objects.values_list("clock_ahead_ms", flat=True))
    assert found
    assert None not in found
    return [ms for ms in found if ms is not None]


@pytest.mark.slow
@pytest.mark.every_database
def test_the_commands_and_the_dashboard_say_it(ojs_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    crowded = ServerHealth(connections=Connections(97, 100))
    monkeypatch.setattr(server_health, "read", lambda using: crowded)
    make(1)
    told = "97 of the database's 100 connections are open."
    for verb in ("status", "check"):
        assert told in run("ojs", verb)
        troubles = as_json("ojs", verb)["troubles"]
        assert {"code": "connections_crowded", "used": 97, "most": 100}.items() <= troubles[-1].items()
    assert told in unescape(page(login(superuser=True), "dashboard/"))
