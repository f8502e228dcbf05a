"""pgbouncer in transaction mode in front of everything, with a single session to the server."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connection, connections

from django_ojs import api, checks
from django_ojs.store.dialect import dialect
from django_ojs.store.sessions import prepared_statements
from tests.clusters.clusters import ACCOUNT, Cluster, as_user, folder_of, free_port, program
from tests.clusters.conftest import absent
from tests.clusters.pointing import default_is
from tests.clusters.test_restarts import nothing_is_violated
from tests.http.support import LiveApi, enqueue, fetch
from tests.process.tools import Diary, Flag, Start, StartWorker, attempts, in_state
from tests.support import gunicorn, not_none, poll
from tests.workload import jobs

pytestmark = [
    pytest.mark.parametrize("cluster", ["pg"], indirect=True),
    pytest.mark.fault("F88"),
]
POOLED = {"DJANGO_SETTINGS_MODULE": "tests.settings_pooled"}


@pytest.fixture
def pooled(cluster: Cluster, folder: Path) -> Iterator[str]:
    """The URL of the pool, which is ``default`` too."""
    path = program("pgbouncer")
    if path is None:
        absent("pgbouncer", "not installed")
    assert path is not None
    port = free_port()
    place = folder_of("postgres", folder / f"pgbouncer-{port}")
    (place / "users").write_text(f'"{ACCOUNT}" ""\n')
    (place / "ini").write_text(
        f"[databases]\n{ACCOUNT} = host=127.0.0.1 port={cluster.port}\n[pgbouncer]\n"
        f"listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = trust\n"
        f"auth_file = {place}/users\npool_mode = transaction\ndefault_pool_size = 1\n"
        "max_client_conn = 100\nlogfile =\npidfile =\n"
    )
    for name in ("users", "ini"):
        os.chmod(place / name, 0o644)
    with (place / "log").open("wb") as log:
        pool = subprocess.Popen(
            [path, str(place / "ini")],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            **as_user("postgres"),
        )

    def answers() -> bool:
        assert pool.poll() is None, (place / "log").read_text()
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            return False
        return True

    try:
        poll(answers)
        with default_is(cluster.url(port)):
            connections.databases["default"]["DISABLE_SERVER_SIDE_CURSORS"] = True
            yield cluster.url(port)
    finally:
        pool.kill()
        pool.wait(10)


def test_everything_works_by_polling(
    pooled: str,
    worker: StartWorker,
    manage: Start,
    diary: Diary,
    flag: Flag,
    tmp_path: Path,
) -> None:
    """Enqueue, claim, beats, reports, reaping, and a worker over HTTP, through one session."""
    runner = worker("--concurrency=2", "--no-maintenance", "--queue=default", **POOLED)
    reaper = manage("reap_timeouts", "--loop", **POOLED)
    environment = {**POOLED, "OJS_DEV_TOKEN": "dev", "EXAMPLE_VAR": str(tmp_path / "var")}
    with gunicorn("tests.wsgi:application", "/ready", tmp_path / "web", 4, environment) as port:
        long = jobs.hold.using(heartbeat_timeout=6).enqueue(diary.path, flag.path)
        diary.wait("started", timeout=30)
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE usename = %s", [ACCOUNT])
            assert cursor.fetchone()[0] == 1
        made = [jobs.echo.enqueue(number) for number in range(20)]
        for job in made:
            in_state(job, "completed", timeout=30)
        expired = api.enqueue("nobody.serves", enqueue_ttl=1)
        assert (
            not_none(in_state(expired, "discarded", timeout=30).error)["type"] == "enqueue_ttl_expired"
        )
        live = LiveApi(port)
        foreign = enqueue(live, queue="http")
        (taken,) = fetch(live, "http", wait_ms=5000)
        assert taken["id"] == foreign["id"]
        report = {"job_id": taken["id"], "lease_id": taken["lease"]["id"]}
        beat = live.post("/workers/heartbeat", {"worker_id": "w1", "active_jobs": [taken["id"]]})
        assert (beat.status, beat.body["jobs_extended"]) == (200, [taken["id"]])
        assert live.post("/workers/ack", report).status == 200
        assert in_state(api.get(foreign["id"]), "completed")
        flag.set()
        in_state(long, "completed")
    for job in (long, *made):
        assert [attempt.outcome for attempt in attempts(job)] == ["completed"]
    assert runner.running and reaper.running
    for process in (runner, reaper):
        assert "prepared statement" not in process.stderr
        assert "failed" not in process.stderr
    nothing_is_violated()
    assert checks.check_database(None, databases=["default"]) == []


def test_a_session_of_a_pool_is_known(pooled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the setting too: what one client prepares there another one does not find."""
    monkeypatch.setitem(connection.settings_dict, "DISABLE_SERVER_SIDE_CURSORS", False)
    with prepared_statements("default"):
        connection.close()
        for number in range(6):
            jobs.echo.enqueue(number)
        with connection.cursor() as cursor:
            cursor.execute("SELECT statement FROM pg_prepared_statements")
            assert cursor.fetchall() == []
    assert dialect("default")._direct is False  # type: ignore[attr-defined]
