"""Lists from a real standby: behind by five seconds, cancelled in the middle, and gone."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connections
from django.test import Client, override_settings

from django_ojs import api, clock
from django_ojs.services import reading, tokens
from django_ojs.store import replication
from example_project.databases import parse
from tests.admin.support import do, login, page
from tests.clusters.clusters import Cluster
from tests.clusters.conftest import absent
from tests.clusters.pointing import default_is
from tests.clusters.standby import Primary, Standby
from tests.conftest import empty_tables
from tests.http.support import Api
from tests.support import ROOT, poll

DELAY_S = 5


@pytest.fixture(scope="module")
def pair(folder: Path) -> Iterator[tuple[Primary, Standby]]:
    """A primary with our tables, and a standby that is five seconds behind."""
    for kind in (Primary, Standby):
        if (reason := kind.missing()) is not None:
            absent(kind.key, reason)
    with ExitStack() as stack:
        primary = Primary(folder / "primary")
        stack.callback(primary.kill)
        primary.create()
        primary.migrate()
        standby = Standby(folder / "standby", primary, delay=f"{DELAY_S}s")
        stack.callback(standby.kill)
        standby.create()
        yield primary, standby


@contextmanager
def replica_is(cluster: Cluster) -> Iterator[str]:
    """Within the block ``OJS["READ_DATABASE"]`` is this server."""
    alias = "replica"
    connections.databases[alias] = {**connections.databases["default"], **parse(cluster.url())}
    reading._resting.clear()
    try:
        with override_settings(OJS={"READ_DATABASE": alias, "HTTP": {"METRICS_TOKEN": "m" * 40}}):
            yield alias
    finally:
        reading._resting.clear()
        connections[alias].close()
        del connections[alias]
        del connections.databases[alias]


@pytest.fixture
def replica(
    pair: tuple[Primary, Standby], django_db_blocker: Any
) -> Iterator[tuple[Primary, Standby, str]]:
    """The standby as the replica of ``default``."""
    primary, standby = pair
    with django_db_blocker.unblock(), default_is(primary.url()):
        empty_tables()
        User.objects.all().delete()
        with replica_is(standby) as alias:
            # A standby that has just started does not know yet how far it is behind, and is not read.
            tokens.create("first", scopes=["inspect"], queues=["*"])
            written = primary.admin("SELECT pg_current_wal_lsn()::text")[0][0]
            poll(lambda: standby.has(written), 60, every=0.1)
            yield primary, standby, alias
        connections["default"].close()


def behind(text: str) -> float:
    """What a page says about the lag."""
    found = re.search(r"Read from a replica, ([\d.]+) s behind", text)
    assert found, text[:3000]
    return float(found[1])


def shown(browser: Client, job: Any) -> bool:
    """Whether the list of another user, who has changed nothing, has the job."""
    return str(job.id) in page(browser, "job/")


@pytest.mark.fault("F140")
def test_a_standby_that_is_behind(replica: tuple[Primary, Standby, str]) -> None:
    browser, other = login(superuser=True), login(superuser=True, name="bob")
    job = api.enqueue("test.job")
    began = time.monotonic()
    assert not shown(other, job), "it is five seconds behind"
    answer = do(browser, job, "cancel", reason="")
    assert answer.status_code == 302, "which writes to the primary"
    assert str(job.id) in page(browser, "job/", state="cancelled"), "and is read there"
    lags = []

    def seen() -> bool:
        lags.append(behind(page(other, "job/", state="cancelled")))
        return str(job.id) in page(other, "job/", state="cancelled")

    poll(seen, every=0.1)
    assert DELAY_S - 1 < time.monotonic() - began < DELAY_S + 20
    assert max(lags) > 1, "the lag was shown while there was one"
    poll(lambda: behind(page(other, "job/")) == 0, every=0.1)


@pytest.mark.fault("F140")
def test_a_statement_that_the_standby_cancels(replica: tuple[Primary, Standby, str]) -> None:
    """Its recovery waits 0.1 s for readers and then cancels them: of a table that the primary locks
    exclusively, at once.
    """
    primary, _, alias = replica
    caller = Api(tokens.create("reader", scopes=tokens.SCOPES, queues=["*"])[1])
    browser = login(superuser=True)
    job = api.enqueue("test.job")
    began: list[float] = []
    errors: list[Exception] = []

    def cancelled() -> None:
        """Reads the replica in the middle of which its recovery takes the table."""
        with connections[alias].cursor() as cur:
            cur.execute("SELECT count(*) FROM django_ojs_job")
            began.append(time.monotonic())
            cur.execute("SELECT pg_sleep(30), count(*) FROM django_ojs_job")

    def work() -> list[str]:
        if reading.database() == alias:
            try:
                cancelled()
            except Exception as error:
                errors.append(error)
                raise
        return [str(one.id) for one in api.jobs()]

    def lock() -> None:
        with primary.connect() as session, session.transaction():
            session.execute("LOCK TABLE django_ojs_job IN ACCESS EXCLUSIVE MODE")

    def later() -> None:
        poll(lambda: began)
        lock()

    thread = threading.Thread(target=later)
    thread.start()
    try:
        assert reading.on_replica(work) == [str(job.id)], "from the primary"
    finally:
        thread.join()
    (error,) = errors
    assert "conflict with recovery" in str(error)
    # So does whatever is asked while the standby does that again and again.
    stop = threading.Event()

    def locking() -> None:
        while not stop.wait(0.02):
            lock()

    thread = threading.Thread(target=locking)
    thread.start()
    try:
        until = time.monotonic() + DELAY_S + 3
        count = 0
        while time.monotonic() < until:
            assert caller.get("/jobs").status == 200
            assert caller.get("/metrics").status == 200
            page(browser, "job/")
            count += 1
        assert count > 0
    finally:
        stop.set()
        thread.join()


def test_the_ladder_says_how_to_see_that_a_standby_is_synchronous(
    replica: tuple[Primary, Standby, str],
) -> None:
    """It connects as ``walreceiver``, having been given no other name."""
    primary, _, _ = replica
    page = (ROOT / "docs/howto/scale.md").read_text()
    (statement,) = re.findall(r"^SELECT application_name.*?;$", page, re.MULTILINE)
    (names,) = re.findall(r"^synchronous_standby_names = '(.*)'$", page, re.MULTILINE)
    names = names.replace("standby1", "walreceiver")
    assert primary.admin(statement) == [("walreceiver", "streaming", "async")]
    primary.admin(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
    try:
        primary.admin("SELECT pg_reload_conf()")
        poll(lambda: primary.admin(statement) == [("walreceiver", "streaming", "quorum")], every=0.1)
        assert api.get(api.enqueue("test.job")).state == "available", "what arrived is acknowledged"
    finally:
        primary.admin("ALTER SYSTEM RESET synchronous_standby_names")
        primary.admin("SELECT pg_reload_conf()")


@pytest.mark.fault("F140")
def test_a_standby_that_is_gone(replica: tuple[Primary, Standby, str]) -> None:
    _, standby, alias = replica
    caller = Api(tokens.create("reader", scopes=tokens.SCOPES, queues=["*"])[1])
    browser = login(superuser=True)
    job = api.enqueue("test.job")
    standby.crash()
    try:
        assert len(caller.get("/jobs").body["items"]) == 1
        text = page(browser, "job/")
        assert str(job.id) in text and "The replica does not answer" in text
        assert Api("m" * 40).get("/metrics").status == 200
    finally:
        standby.start()
    reading._resting.clear()
    poll(lambda: "Read from a replica" in page(browser, "job/"), every=0.1)
    assert replication.lag("default", alias) < DELAY_S + 20
    assert clock.now(alias) > clock.now("default").replace(year=2000)
