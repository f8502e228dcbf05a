"""Deadlocks, serialization failures, lock timeouts: rolled back whole, and run again."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import DatabaseError, OperationalError, connection, connections

from django_ojs import api
from django_ojs.models import Event, Job
from django_ojs.services import operate
from django_ojs.store import contention
from tests.clusters.clusters import Cluster, PostgreSQL
from tests.clusters.pointing import default_is
from tests.clusters.test_restarts import nothing_is_violated
from tests.services.support import ack, make, take
from tests.support import AnyJob, poll
from tests.workload.tools import LATER

TABLE = "django_ojs_job"


@pytest.fixture
def lost(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The races that were lost and found to be worth another try."""
    found: list[str] = []
    real = contention.is_contention

    def noted(error: BaseException) -> bool:
        answer = real(error)
        if answer:
            found.append(str(error))
        return answer

    monkeypatch.setattr(contention, "is_contention", noted)
    return found


@contextmanager
def isolated(cluster: Cluster, level: str) -> Iterator[None]:
    """``default`` with this isolation level."""
    if isinstance(cluster, PostgreSQL):
        import psycopg

        with default_is(cluster.url(), isolation_level=psycopg.IsolationLevel[level.replace(" ", "_")]):
            yield
    else:
        with default_is(cluster.url(), isolation_level=level.lower()):
            yield


def in_thread(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """Start ``work``; its answer, or its error, comes into the list."""
    answers: list[Any] = []

    def run() -> None:
        try:
            answers.append(work())
        except Exception as error:
            answers.append(error)
        finally:
            connections["default"].close()

    thread = threading.Thread(target=run)
    thread.start()
    return thread, answers


class Rival:
    """A transaction of somebody else, which holds locks of jobs."""

    def __init__(self, cluster: Cluster) -> None:
        self._session: Any = cluster.connect()
        self._run("CREATE TABLE IF NOT EXISTS ballast (n INTEGER)")
        self._run("BEGIN")

    def lock(self, job: AnyJob) -> None:
        """Write to the row."""
        key = str(job.id)
        if connection.vendor == "mysql" and not connection.features.has_native_uuid_field:
            key = job.id.hex
        self._run(f"UPDATE {TABLE} SET progress_message = 'rival' WHERE id = %s", key)

    def _run(self, statement: str, *parameters: str) -> None:
        cursor = self._session.cursor()
        cursor.execute(statement, parameters or None)
        cursor.close()

    def heavier(self) -> None:
        """Whom no server would choose to end: patient, with much to undo."""
        if connection.vendor == "postgresql":
            self._run("SET LOCAL deadlock_timeout = '60s'")
        else:
            self._run("INSERT INTO ballast SELECT seq FROM seq_1_to_100")

    def commit(self) -> None:
        """Let go."""
        self._run("COMMIT")

    def roll_back(self) -> None:
        """Let go, as if nothing had been."""
        self._run("ROLLBACK")

    def close(self) -> None:
        """Let go and leave."""
        self.roll_back()
        self._session.close()


@pytest.fixture
def rival(cluster: Cluster) -> Iterator[Rival]:
    """Somebody else."""
    other = Rival(cluster)
    yield other
    other.close()


def cancelled_once(*cancelled: AnyJob) -> None:
    """They are, with one event each, and nothing else happened to them."""
    for job in cancelled:
        assert api.get(job).state == "cancelled"
        assert Event.objects.filter(job_id=job.id, kind="job.cancelled").count() == 1


@pytest.mark.fault("F77")
def test_a_deadlock_is_run_again(cluster: Cluster, rival: Rival, lost: list[str]) -> None:
    """Two transactions lock the same rows in opposite orders."""
    first, second = make(2)
    rival.heavier()
    rival.lock(second)
    thread, answers = in_thread(lambda: operate.cancel([first.id, second.id]))
    poll(lambda: cluster.waiting)
    # The server ends the other one, which holds the first and waits for the second.
    rival.lock(first)
    rival.commit()
    thread.join(20)
    assert [job.state for job in answers[0]] == ["cancelled", "cancelled"], answers
    assert len(lost) >= 1
    assert "eadlock" in lost[0]
    cancelled_once(first, second)
    nothing_is_violated()


@pytest.mark.fault("F77")
@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_snapshot_that_is_out_of_date_is_taken_again(
    cluster: Cluster, lost: list[str], level: str
) -> None:
    if not isinstance(cluster, PostgreSQL):
        cluster.admin("SET GLOBAL innodb_snapshot_isolation = ON")
    try:
        with isolated(cluster, level):
            (job,) = make()
            rival = Rival(cluster)
            rival.lock(job)
            thread, answers = in_thread(lambda: operate.cancel([job.id]))
            poll(lambda: cluster.waiting)
            rival.commit()
            rival.close()
            thread.join(20)
            assert [job.state for job in answers[0]] == ["cancelled"], answers
            if isinstance(cluster, PostgreSQL):
                assert "could not serialize access" in lost[0]
            cancelled_once(job)
    finally:
        if not isinstance(cluster, PostgreSQL):
            cluster.admin("SET GLOBAL innodb_snapshot_isolation = OFF")


@pytest.mark.fault("F77")
def test_claims_and_reports_race_when_serializable(cluster: Cluster) -> None:
    """The strictest level there is: slower, with more races lost, and as right."""
    with isolated(cluster, "SERIALIZABLE"):
        made = make(60, retry=LATER)
        done: list[Any] = []

        def work() -> int:
            mine = 0
            while jobs := take(5):
                done.extend(job.id for job, _ in zip(jobs, ack(*jobs), strict=True))
                mine += len(jobs)
            return mine

        workers = [in_thread(work) for _ in range(4)]
        for thread, _ in workers:
            thread.join(60)
        assert [a[0] for _, a in workers if not isinstance(a[0], int)] == []
        for job in take(60):
            # A claim skips what others hold at that moment; nobody may have come back for it.
            ack(job)
            done.append(job.id)
        assert Counter(done) == Counter(job.id for job in made)
        assert Job.objects.filter(state="completed").count() == len(made)
        nothing_is_violated()


@pytest.fixture
def impatient(cluster: Cluster) -> Iterator[None]:
    """Sessions that wait for a lock as long as they can be told to, and no longer."""
    option = {"options": "-c lock_timeout=200ms"}
    if not isinstance(cluster, PostgreSQL):
        option = {"init_command": "SET SESSION innodb_lock_wait_timeout = 1"}
    with default_is(cluster.url(), **option):
        yield


@pytest.mark.fault("F78")
def test_a_lock_that_comes_free_in_time(
    cluster: Cluster, impatient: None, rival: Rival, lost: list[str]
) -> None:
    first, second = make(2)
    rival.lock(second)
    thread, answers = in_thread(lambda: operate.cancel([first.id, second.id]))
    poll(lambda: lost)
    rival.commit()
    thread.join(20)
    assert [job.state for job in answers[0]] == ["cancelled", "cancelled"], answers
    cancelled_once(first, second)
    nothing_is_violated()


@pytest.mark.fault("F78")
def test_a_lock_that_does_not_come_free_rolls_back_all(
    cluster: Cluster, impatient: None, rival: Rival, lost: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """MariaDB takes back the statement only; what the transaction wrote before must go too."""
    monkeypatch.setattr(contention, "_TRIES", 2)
    first, second = make(2)
    rival.lock(second)

    def work() -> None:
        operate.cancel([first.id])
        operate.cancel([second.id])

    with pytest.raises(OperationalError):
        contention.atomically("default", work)
    assert len(lost) == 1, "the last failure is the caller's"
    rival.roll_back()
    assert [api.get(job).state for job in (first, second)] == ["available", "available"]
    assert not Event.objects.filter(kind="job.cancelled").exists()
    operate.cancel([first.id, second.id])
    cancelled_once(first, second)


def test_other_errors_are_no_contention(cluster: Cluster) -> None:
    with pytest.raises(DatabaseError) as caught, connection.cursor() as cursor:
        cursor.execute("SELECT nonsense FROM django_ojs_job")
    assert not contention.is_contention(caught.value)
