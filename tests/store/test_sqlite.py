"""SQLite: the one writer of the file is somebody else, or dies in the middle of its commit."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from math import inf
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext

from django_ojs import api, clock
from django_ojs.models import Attempt, Job, Queue
from django_ojs.services import promote, reap, reaper
from django_ojs.services.claim import claim, sources
from django_ojs.store import inserting, invariants
from django_ojs.store.sources import Sources
from tests.faults import tally
from tests.process.tools import Diary, Flag, StartWorker
from tests.services.support import ack, fail, make, release, take
from tests.support import ROOT, poll
from tests.workload import jobs

from .records import record

pytestmark = pytest.mark.skipif(connection.vendor != "sqlite", reason="about SQLite")


@pytest.fixture
def other(ojs_db: None) -> Iterator[sqlite3.Connection]:
    """Another process's connection to the file, as far as SQLite can tell."""
    session = sqlite3.connect(
        connection.settings_dict["NAME"], timeout=0, isolation_level=None, check_same_thread=False
    )
    yield session
    session.close()


def whole_life() -> None:
    """Every statement that a worker, a reaper and a client have."""
    make(3)
    first, second, third = take(3)
    ack(first)
    fail(second)
    api.cancel(third)
    promote.promote(using="default")
    reap.reap()
    reaper.scan(cadence=None, ran_by="test")


@pytest.mark.fault("F80")
def test_transactions_that_write_begin_as_such(ojs_db: None) -> None:
    """A read that becomes a write fails at once when another has written since: no timeout helps."""
    begun: list[str] = []
    connection.ensure_connection()
    connection.connection.set_trace_callback(begun.append)
    whole_life()
    connection.connection.set_trace_callback(None)
    transactions = [text for text in begun if re.match(r"\s*BEGIN", text, re.IGNORECASE)]
    assert len(transactions) >= 5
    assert {text.strip().upper() for text in transactions} == {"BEGIN IMMEDIATE"}


@pytest.mark.fault("F80")
def test_a_writer_that_takes_its_time_is_waited_for(other: sqlite3.Connection) -> None:
    (job,) = make()
    other.execute("BEGIN IMMEDIATE")
    done: list[str] = []
    begins = threading.Event()

    def noted(execute: Any, sql: str, *rest: Any) -> Any:
        if sql.startswith("BEGIN"):
            begins.set()
        return execute(sql, *rest)

    def cancel() -> None:
        try:
            with connections["default"].execute_wrapper(noted):
                done.append(api.cancel(job).state)
        finally:
            connections["default"].close()

    waiting = threading.Thread(target=cancel)
    waiting.start()
    assert begins.wait(10)
    # How long the other one takes, not something to wait for.
    waiting.join(0.3)
    assert waiting.is_alive(), "nothing is written past the one writer"
    assert api.get(job).state == "available", "reading goes on"
    other.execute("COMMIT")
    waiting.join(10)
    assert done == ["cancelled"]


@pytest.mark.slow
@pytest.mark.fault("F80")
def test_a_writer_that_does_not_end_in_time_is_a_lost_race(
    other: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Past the driver's timeout the transaction is run again; ours lasts longer than one timeout."""
    (job,) = make()
    monkeypatch.setitem(
        connection.settings_dict, "OPTIONS", {**connection.settings_dict["OPTIONS"], "timeout": 0.05}
    )
    connection.close()
    other.execute("BEGIN IMMEDIATE")
    release = threading.Timer(0.5, other.execute, ["COMMIT"])
    release.start()
    assert api.cancel(job).state == "cancelled"
    release.join()
    connection.close()


@pytest.mark.fault("F81")
def test_no_statement_is_left_unread(other: sqlite3.Connection) -> None:
    """A cursor with rows to come holds the write lock: others could not begin."""
    make(20)
    for _ in range(3):
        claimed = take(4)
        other.execute("BEGIN IMMEDIATE")
        other.execute("ROLLBACK")
        ack(*claimed)
        other.execute("BEGIN IMMEDIATE")
        other.execute("ROLLBACK")
    whole_life()
    other.execute("BEGIN IMMEDIATE")
    other.execute("ROLLBACK")


def has_lines(file: Path, count: int) -> bool:
    """Whether so many lines have been written."""
    return file.read_bytes().count(b"\n") >= count


_WRITER = """
import django
django.setup()
from django_ojs import api
print("ready", flush=True)
while True:
    print(api.enqueue("test.job", ["x" * 5000]).id, flush=True)
"""


@pytest.mark.process
@pytest.mark.fault("F82")
def test_a_writer_that_is_killed_leaves_a_whole_file(ojs_db: None, tmp_path: Path) -> None:
    """What it said was enqueued is there; the file passes SQLite's own check."""
    name = str(connection.settings_dict["NAME"])
    said: list[str] = []
    kills = 3
    for number in range(kills):
        output = tmp_path / f"said-{number}"
        with output.open("wb") as out:
            writer = subprocess.Popen(
                [sys.executable, "-c", _WRITER],
                cwd=ROOT,
                stdout=out,
                env={
                    **os.environ,
                    "DJANGO_SETTINGS_MODULE": "tests.settings",
                    "DATABASE_URL": f"sqlite:///{name}",
                },
            )
        try:
            poll(partial(has_lines, output, 20), 30)
        finally:
            writer.send_signal(signal.SIGKILL)
            writer.wait(10)
        said += output.read_text().rpartition("\n")[0].splitlines()[1:]
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA integrity_check")
            assert cursor.fetchall() == [("ok",)]
        found = {str(job_id) for job_id in Job.objects.values_list("id", flat=True)}
        assert [job_id for job_id in said if job_id not in found] == []
        assert len(found) <= len(said) + number + 1
    tally.injected("F82", times=kills - 1)


@pytest.mark.process
@pytest.mark.long
@pytest.mark.fault("F83")
def test_many_workers_share_the_file(worker: StartWorker, diary: Diary, flag: Flag) -> None:
    workers = [worker("--concurrency=1") for _ in range(8)]
    made = [jobs.hold.enqueue(diary.path, flag.path) for _ in workers]
    diary.wait("started", len(workers), timeout=90)
    made += [jobs.echo.enqueue(number) for number in range(400)]
    flag.set()
    poll(lambda: Job.objects.filter(state="completed").count() == len(made), 60, every=0.1)
    assert all(one.running for one in workers)
    # On a busy machine some were claimed too early.
    begun = Attempt.objects.exclude(outcome="released")
    assert list(begun.values_list("outcome", flat=True)) == ["completed"] * len(made)
    assert len(set(Attempt.objects.values_list("worker_id", flat=True))) == len(workers)
    now = clock.now("default")
    assert invariants.check(now=now, slack=timedelta(seconds=5), using="default") == []
    tally.checked(*invariants.RULES)


NOW = datetime(2026, 1, 1, tzinfo=UTC)
OURS, THEIRS = ("mine.t0", "mine.t1"), ("foreign.t0",)


def waiting(*jobs: tuple[str, str]) -> list[UUID]:
    """Store jobs of these queues and types, one after the other."""
    rows = [record(queue, kind, NOW + timedelta(seconds=n)) for n, (queue, kind) in enumerate(jobs)]
    inserting.jobs(rows, using="default")
    return [row.id for row in rows]


def reads_of(where: Sources, limit: int) -> list[str]:
    """The statements of a claim that read jobs."""
    with CaptureQueriesContext(connection) as queries:
        assert len(claim(where, limit=limit, worker_id="w", beats=True)) == limit
    return [query["sql"] for query in queries if query["sql"].startswith("SELECT j.")]


def test_the_one_writer_reads_the_front_whole(ojs_db: None) -> None:
    """One statement instead of a look and a read by keys: nobody else takes from it meanwhile."""
    waiting(*[("a", OURS[n % 2]) for n in range(60)])
    where = sources(None, OURS)
    assert any("json_each" in read for read in reads_of(where, 8)), "the first claim looks"
    reads = reads_of(where, 8)
    assert len(reads) == 2, "whether there is anything, and what"
    assert not any("json_each" in read for read in reads)


@pytest.mark.parametrize("other", [("a", THEIRS[0]), ("excluded", OURS[0]), ("paused", OURS[0])])
def test_records_of_others_are_not_read(ojs_db: None, other: tuple[str, str]) -> None:
    """They may be large, and it is the one writer's time."""
    Queue.objects.create(name="paused", paused=True, created_at=NOW)
    ids = waiting(("a", OURS[0]), other, *[("a", OURS[1])] * 30)
    where = sources(None, OURS, excluded={"excluded"})
    where.flows_until = inf
    got = claim(where, limit=2, worker_id="w", beats=True)
    assert [job.id for job in got] == [ids[0], ids[2]]
    assert where.flows_until == 0.0
    release(*got)
    for _ in range(3):
        where.crowding = 1.0
        got = claim(where, limit=2, worker_id="w", beats=True)
        assert [job.id for job in got] == [ids[0], ids[2]]
        assert where.flows_until == 0.0, "others are in front: nothing flows"
        release(*got)


def test_the_times_of_a_record_are_those_that_were_stored(ojs_db: None) -> None:
    """With all of their digits, or without any; they are read as text."""
    rows = [
        record("a", OURS[0], NOW, enqueued_at=NOW + timedelta(microseconds=part))
        for part in (0, 1, 1000, 999_999)
    ]
    inserting.jobs(rows, using="default")
    got = claim(sources(None, OURS), limit=4, worker_id="w", beats=True)
    assert [job.enqueued_at for job in got] == [row.enqueued_at for row in rows]
