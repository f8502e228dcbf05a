"""The whole database, or the whole job table, answers nobody for a while."""

from __future__ import annotations

import time

from tests.lab import raw
from tests.lab.cases import SERVERS, Case
from tests.lab.databases import suspended
from tests.lab.judge import HEARTBEAT
from tests.lab.stage import HOLD, Stage

SUSPENSIONS = 20


def server_suspended(stage: Stage) -> None:
    """All processes of the server stop, at another moment of a scan in each round."""
    server = stage.database.server
    assert server is not None
    stage.live()
    stage.probe_silent()
    # Deadlines all around that moment: scans are then at work, each at another statement.
    for number in range(20):
        stage.probe_ttl(1.0 + 0.02 * number)
    stage.probe_ttl(1.0 + HOLD / 2)
    time.sleep(0.9 + 0.4 * (stage.number - 1) / SUSPENSIONS)
    with stage.blocking(), suspended(server):
        stage.last()


def table_locked(stage: Stage) -> None:
    """The job table is locked as by ``CREATE INDEX``: everybody may read, nobody may write."""
    stage.live()
    stage.probe_silent()
    for share in (0.3, 0.6, 0.9):
        stage.probe_ttl(share * HOLD)
    with stage.blocking():
        if stage.database.name == "pg":
            with stage.held("LOCK TABLE django_ojs_job IN SHARE MODE"):
                stage.last()
        else:
            with raw.session(stage.database.url) as session:
                session.run("LOCK TABLES django_ojs_job WRITE")
                stage.last()


def write_lock_held(stage: Stage) -> None:
    """Somebody has the one write lock of the file."""
    stage.live()
    stage.probe_silent()
    for share in (0.3, 0.6, 0.9):
        stage.probe_ttl(share * 3 * HEARTBEAT)
    with stage.blocking(), raw.session(stage.database.url) as session:
        session.run("BEGIN IMMEDIATE")
        stage.last(3 * HEARTBEAT)
        session.run("ROLLBACK")


CASES = [
    Case("server suspended", server_suspended, rounds=SUSPENSIONS, databases=SERVERS),
    Case("job table locked", table_locked, databases=SERVERS),
    Case("write lock held", write_lock_held, databases=("sqlite",)),
]
