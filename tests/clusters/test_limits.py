"""Servers that are impatient, full, or kept from cleaning up."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from uuid import UUID

import pytest
from django.db import DatabaseError, connection, connections

from django_ojs import api
from django_ojs.models import Job
from django_ojs.services import leases, reap
from tests.clusters.clusters import ACCOUNT, Cluster, PostgreSQL, folder_of
from tests.clusters.test_restarts import nothing_is_violated
from tests.process.tools import Diary, Flag, Start, StartWorker, attempts, in_state
from tests.services.support import ack, held, make, take
from tests.workload import jobs

TRANSACTIONS = {
    "pg": f"SELECT 1 FROM pg_stat_activity WHERE usename = '{ACCOUNT}'"
    " AND xact_start < clock_timestamp() - interval '1.5 s'",
    "mariadb": "SELECT 1 FROM information_schema.innodb_trx"
    " WHERE trx_started < NOW() - INTERVAL 2 SECOND",
}


@pytest.fixture
def impatient(cluster: Cluster) -> Iterator[None]:
    """Every statement has a second, and a transaction may idle for half of one; or for one."""
    if isinstance(cluster, PostgreSQL):
        settings = {"statement_timeout": "1s", "idle_in_transaction_session_timeout": "500ms"}
        for name, value in settings.items():
            cluster.admin(f"ALTER ROLE {ACCOUNT} SET {name} = '{value}'")
    else:
        cluster.admin("SET GLOBAL max_statement_time = 1, GLOBAL idle_transaction_timeout = 1")
    connection.close()
    yield
    if isinstance(cluster, PostgreSQL):
        cluster.admin(f"ALTER ROLE {ACCOUNT} RESET ALL")
    else:
        cluster.admin("SET GLOBAL max_statement_time = 0, GLOBAL idle_transaction_timeout = 0")


@pytest.mark.long
@pytest.mark.fault("F79")
def test_no_transaction_is_open_while_a_handler_runs(
    cluster: Cluster,
    impatient: None,
    worker: StartWorker,
    manage: Start,
    diary: Diary,
    flag: Flag,
) -> None:
    job = jobs.hold.using(heartbeat_timeout=4).enqueue(diary.path, flag.path)
    runner = worker("--concurrency=2")
    reaper = manage("reap_timeouts", "--loop")
    diary.wait("started", timeout=30)
    until = time.monotonic() + 4
    while time.monotonic() < until:
        assert cluster.admin(TRANSACTIONS[cluster.key]) == []
        in_state(jobs.echo.enqueue("beside it"), "completed")
    flag.set()
    in_state(job, "completed")
    assert [attempt.outcome for attempt in attempts(job)] == ["completed"]
    for process in (runner, reaper):
        assert process.running
        assert "failed" not in process.stderr
    nothing_is_violated()


@pytest.fixture
def small(cluster: Cluster, folder: Path) -> Iterator[Path]:
    """The jobs are on a file system of 24 MiB, which the test may fill."""
    place = folder / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=24m,mode=0777", "none", str(place)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no small file system can be mounted here")
    try:
        data = folder_of(cluster.user, place / "data")
        cluster.admin(f"CREATE TABLESPACE small LOCATION '{data}'")
        connections.close_all()
        cluster.terminate_sessions()
        with cluster.connect() as session:
            # What other tests left behind must fit too.
            session.execute("VACUUM FULL")
        cluster.admin(f"ALTER DATABASE {ACCOUNT} SET TABLESPACE small")
        yield place
        connections.close_all()
        cluster.terminate_sessions()
        cluster.admin(f"ALTER DATABASE {ACCOUNT} SET TABLESPACE pg_default")
        cluster.admin("DROP TABLESPACE small")
    finally:
        subprocess.run(["umount", str(place)], check=True, capture_output=True)


@pytest.mark.long
@pytest.mark.fault("F84")
@pytest.mark.parametrize("cluster", ["pg"], indirect=True)
def test_a_full_disk_never_says_yes(
    cluster: Cluster, small: Path, worker: StartWorker, manage: Start, diary: Diary, flag: Flag
) -> None:
    """What was acknowledged is there; when there is room again, everything goes on."""
    running = jobs.hold.using(heartbeat_timeout=4).enqueue(diary.path, flag.path)
    runner = worker("--concurrency=1", "--no-maintenance")
    reaper = manage("reap_timeouts", "--loop")
    diary.wait("started", timeout=30)
    ballast = small / "ballast"
    with ballast.open("wb") as file:
        try:
            while True:
                file.write(b"x" * 65536)
                file.flush()
        except OSError:
            pass
    acknowledged: list[UUID] = []
    with pytest.raises(DatabaseError, match=r"No space left|could not extend"):
        while len(acknowledged) < 10_000:
            acknowledged.append(api.enqueue("test.job", ["x" * 20_000]).id)
    assert runner.running and reaper.running
    ballast.unlink()
    in_state(jobs.echo.using(priority=5).enqueue("after"), "available", timeout=30)
    flag.set()
    in_state(running, "completed", timeout=30)
    found = set(Job.objects.values_list("id", flat=True))
    assert [job_id for job_id in acknowledged if job_id not in found] == []
    assert [attempt.outcome for attempt in attempts(running)] == ["completed"]
    assert runner.running and reaper.running
    nothing_is_violated()


@pytest.mark.long
@pytest.mark.fault("F97")
@pytest.mark.parametrize("cluster", ["pg"], indirect=True)
def test_claims_stay_quick_behind_a_long_transaction(cluster: Cluster) -> None:
    """A forgotten transaction keeps every dead row; beats and claims do not pay for them."""
    assert isinstance(cluster, PostgreSQL)

    def churn(rounds: int) -> list[float]:
        took = []
        for _ in range(rounds):
            make(20)
            before = time.perf_counter()
            claimed = take(20)
            took.append(time.perf_counter() - before)
            for _ in range(5):
                leases.beat([held(job) for job in claimed], using="default")
            ack(*claimed)
        reap.reap()
        return took

    churn(20)
    usual = churn(40)
    session = cluster.connect()
    session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    session.execute("SELECT count(*) FROM django_ojs_job")
    try:
        burdened = churn(120)
    finally:
        session.execute("ROLLBACK")
        session.close()
    # Medians, which a busy machine does not move as it moves the slowest.
    assert median(burdened) <= 3 * median(usual) + 0.01
    assert Job.objects.filter(state="completed").count() == 180 * 20
