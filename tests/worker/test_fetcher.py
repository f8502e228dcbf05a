"""The database thread that claims: what it looks at, and that it gives out only what was asked for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from secrets import token_hex
from typing import Any

import pytest
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_ojs import clock, enqueue
from django_ojs.domain.job import JobRow
from django_ojs.models import Job
from django_ojs.services.claim import claim, sources
from django_ojs.services.settle import Outcome, Report
from django_ojs.store import candidates
from django_ojs.store.candidates import Look
from django_ojs.store.dialect import dialect
from django_ojs.store.sources import Sources
from django_ojs.worker.threads import fetcher
from django_ojs.worker.threads.database import DatabaseThread, database_threads
from django_ojs.worker.threads.fetcher import Claims, Moment
from django_ojs.worker.threads.outcomes import Pending
from django_ojs.worker.threads.polling import FileChangeSchedule, IdlenessSchedule, PollSchedule
from tests.services.support import bounded, held, locked_table, make, now_stored, take
from tests.support import poll

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("ojs_db")]
WHERE = sources(["default", "other"], ["test.job"])


class Patient(PollSchedule):
    """Looks only when it is told to."""

    def record(self, got: int, took: float = 0.0, waited: float = 0.0) -> None:
        """Never again by itself."""
        self._next = clock.boottime() + 1000


class OfChanges(FileChangeSchedule):
    """Looks after a change of the file only, and counts."""

    _slowest_look = 0.005
    _settles = 0.0

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.checks = self.looks = 0

    def record(self, got: int, took: float = 0.0, waited: float = 0.0) -> None:
        """Never again by itself."""
        self._next = clock.boottime() + 1000

    def changed(self) -> bool:
        """Count it."""
        self.checks += 1
        return super().changed()

    def due(self, connection: BaseDatabaseWrapper) -> bool:
        """Count it."""
        self.looks += 1
        return super().due(connection)


class Loop:
    """Takes what is posted at once, in the database thread."""

    def __init__(self) -> None:
        self.claimed: list[JobRow] = []
        self.calls = 0
        self.empty = 0
        self.late: list[Callable[[], None]] | None = None
        """Keeps what is posted; ``None``: nothing is late."""

    def call_soon(self, call: Callable[[], None]) -> None:
        """As the runner would."""
        self.calls += 1
        if self.late is None:
            call()
        else:
            self.late.append(call)

    def has_made(self, calls: int) -> bool:
        """Whether so many have been posted."""
        return self.calls >= calls

    def on_claimed(self, jobs: list[JobRow], at: Moment) -> None:
        """Keep them."""
        self.claimed += jobs

    def on_empty(self, left: bool) -> None:
        """Count it."""
        self.empty += 1


@pytest.fixture
def loop() -> Loop:
    """Where the database thread reports to."""
    return Loop()


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[Sources]:
    """What was looked at before a claim, in order."""
    seen: list[Sources] = []
    real = candidates.look

    def look(where: Sources, limit: int, *, using: str) -> Look:
        if not connections[using].in_atomic_block:
            seen.append(where)
        return real(where, limit, using=using)

    monkeypatch.setattr(candidates, "look", look)
    return seen


@contextmanager
def running(loop: Loop, schedule: PollSchedule) -> Iterator[DatabaseThread]:
    """A database thread that looks when the schedule has it look."""
    claims = Claims(WHERE, schedule, "w1", loop.on_claimed, loop.on_empty)
    with bounded():
        made = DatabaseThread(loop, "default", [claims])
        made.start()
        yield made
        made.close()
        made.join(10)
    assert not made.is_alive()


@pytest.fixture
def database(loop: Loop) -> Iterator[DatabaseThread]:
    """One that looks only when it is told to."""
    with running(loop, Patient()) as made:
        yield made


def test_while_a_file_does_not_change_it_is_only_checked(vendor: str, loop: Loop) -> None:
    """A look goes through all of the thread, and asks the database."""
    if vendor != "sqlite":
        pytest.skip("SQLite only")
    schedule = OfChanges(str(connections["default"].settings_dict["NAME"]))
    database = DatabaseThread(
        loop, "default", [Claims(WHERE, schedule, "w1", loop.on_claimed, loop.on_empty)]
    )
    database.start()
    try:
        database.want(1, 1)
        poll(lambda: loop.empty == 1)
        poll(lambda: settled(schedule))
        (job,) = make(1)
        poll(lambda: loop.claimed)
    finally:
        database.close()
        database.join(10)
    assert not database.is_alive()
    assert [claimed.id for claimed in loop.claimed] == [job.id]


def settled(schedule: OfChanges) -> bool:
    """Whether ten checks in a row have led to no look."""
    looks, checks = schedule.looks, schedule.checks
    poll(lambda: schedule.checks > checks + 10)
    return schedule.looks == looks


def test_what_is_announced_after_an_empty_look_is_gone_to_without_a_look(
    database: DatabaseThread, loop: Loop, looks: list[Sources]
) -> None:
    database.want(1, 1)
    poll(lambda: loop.empty == 1)
    assert looks == [WHERE]
    (job,) = make(1, queue="other")
    database.wake("other", "test.foreign")
    database.wake("other", "test.job")
    poll(lambda: loop.claimed)
    assert [claimed.id for claimed in loop.claimed] == [job.id]
    assert len(looks) == 1


def test_what_is_announced_again_is_looked_at_with_everything_else(
    database: DatabaseThread, loop: Loop, looks: list[Sources]
) -> None:
    """A job that is before it may have become visible since."""
    database.want(1, 1)
    poll(lambda: loop.empty == 1)
    (first,) = make(1)
    make(1, queue="other")
    database.wake("other", "test.foreign", alone=False)
    database.wake("other", "test.job", alone=False)
    poll(lambda: loop.claimed)
    assert [claimed.id for claimed in loop.claimed] == [first.id]
    assert looks == [WHERE] * 2


def test_a_front_that_is_slow_to_read_is_not_claimed_from(loop: Loop, looks: list[Sources]) -> None:
    where = sources(["default", "other"], ["test.job"], resumes=True)
    claims = Claims(where, Patient(), "w1", loop.on_claimed, loop.on_empty)
    database = DatabaseThread(loop, "default", [claims])
    database.start()
    try:
        database.want(1, 1)
        poll(lambda: loop.empty == 1)
        for _ in range(2):
            where.resumed.looked(clock.boottime(), 1.0)
        make(1)
        database.wake("default", "test.job")
        poll(lambda: loop.claimed)
    finally:
        database.close()
        database.join(10)
    assert looks == [where] * 2


def test_after_a_claim_and_without_a_name_everything_is_looked_at(
    database: DatabaseThread, loop: Loop, looks: list[Sources]
) -> None:
    make(2, queue="other")
    database.want(1, 1)
    poll(lambda: len(loop.claimed) == 1)
    database.want(1, 1)
    database.wake("default")
    poll(lambda: len(loop.claimed) == 2)
    database.want(1, 1)
    database.wake()
    poll(lambda: loop.empty == 1)
    make(1)
    database.wake()
    poll(lambda: len(loop.claimed) == 3)
    assert looks == [WHERE] * 4


def test_nothing_is_claimed_until_what_was_claimed_has_been_delivered(
    database: DatabaseThread, loop: Loop
) -> None:
    make(3)
    late: list[Callable[[], None]] = []
    loop.late = late
    database.want(2, 2)
    poll(lambda: late)
    database.want(2, 2)
    database.wake()
    database.call(lambda: None, lambda value, error: None)
    poll(lambda: len(late) == 2)
    assert Job.objects.filter(state="active").count() == 2
    loop.late = None
    late[0]()
    assert len(loop.claimed) == 2
    database.want(2, 2)
    database.wake()
    poll(lambda: len(loop.claimed) == 3)


@pytest.fixture
def eager(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> Iterator[DatabaseThread]:
    """One that looks again at once after a claim, for two jobs at a time."""
    monkeypatch.setattr(fetcher, "CLAIMED_AT_ONCE", 2)
    with running(loop, IdlenessSchedule()) as made:
        yield made


def test_full_claims_follow_while_the_supervisor_does_not_know_of_those_before(
    eager: DatabaseThread, loop: Loop
) -> None:
    """All together no more than it wanted; what would be less than a full claim waits for it."""
    make(9)
    late: list[Callable[[], None]] = []
    loop.late = late
    eager.want(5, 2)
    poll(lambda: len(late) == 2)
    eager.want(6, 2)
    poll(lambda: len(late) == 3)
    eager.want(7, 2)
    answered(eager, loop)
    assert Job.objects.filter(state="active").count() == 6
    loop.late = None
    for call in late:
        call()
    assert len(loop.claimed) == 6
    answered(eager, loop)
    assert Job.objects.filter(state="active").count() == 6
    eager.want(1, 0)
    eager.wake()
    poll(lambda: len(loop.claimed) == 7)


def test_a_claim_that_is_not_full_is_the_last_until_it_has_been_delivered(
    eager: DatabaseThread, loop: Loop
) -> None:
    made = make(3)
    late: list[Callable[[], None]] = []
    loop.late = late
    eager.want(8, 0)
    poll(lambda: len(late) == 2)
    make(4)
    answered(eager, loop)
    assert Job.objects.filter(state="active").count() == len(made)
    loop.late = None
    for call in late:
        call()
    eager.want(4, 0)
    eager.wake()
    poll(lambda: len(loop.claimed) == 7)


def test_a_claim_that_follows_another_takes_less_text(
    eager: DatabaseThread, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How large the jobs of the one before are the supervisor has not measured yet."""
    monkeypatch.setattr(fetcher, "FOLLOWING_BYTES", 8000)
    make(2)
    for number in range(4):
        # Of characters in no order: what is stored is as large.
        enqueue("test.job", [number, token_hex(2400)])
    late: list[Callable[[], None]] = []
    loop.late = late
    eager.want(6, 0)
    poll(lambda: len(late) == 2)
    answered(eager, loop)
    assert Job.objects.filter(state="active").count() == 3
    loop.late = None
    for call in late:
        call()
    eager.want(3, 0)
    eager.wake()
    poll(lambda: len(loop.claimed) == 5)


def answered(database: DatabaseThread, loop: Loop) -> None:
    """Wait until the thread has gone round: it makes calls before it looks."""
    for _ in range(2):
        after = loop.calls + 1
        database.call(lambda: None, lambda value, error: None)
        poll(partial(loop.has_made, after))


def test_a_worker_that_was_full_looks_again_when_a_job_ends(
    loop: Loop, looks: list[Sources], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long it was busy: only time without work makes looks rare."""
    monkeypatch.setattr(IdlenessSchedule, "slowest", 1000.0)
    schedule = IdlenessSchedule()
    claims = Claims(WHERE, schedule, "w1", loop.on_claimed, loop.on_empty)
    database = DatabaseThread(loop, "default", [claims])
    monkeypatch.setattr(schedule, "_active_at", clock.boottime() - 1000)
    schedule.record(0)
    database.start()
    try:
        (job,) = make(1)
        assert schedule.pause() > 100
        database.want(1, 1)
        poll(lambda: loop.claimed)
    finally:
        database.close()
        database.join(10)
    assert [claimed.id for claimed in loop.claimed] == [job.id]


def test_a_look_that_finds_nothing_wakes_nobody_who_need_not_know(loop: Loop) -> None:
    """Otherwise every look of an idle worker would cost a turn of its supervisor too."""
    took: list[float] = []

    class Noted(Patient):
        def record(self, got: int, took_: float = 0.0, waited: float = 0.0) -> None:
            super().record(got)
            took.append(took_)

    claims = Claims(WHERE, Noted(), "w1", loop.on_claimed, None)
    database = DatabaseThread(loop, "default", [claims])
    database.start()
    try:
        database.want(1, 1)
        poll(lambda: took)
        answered = threading.Event()
        database.call(lambda: None, lambda value, error: answered.set())
        assert answered.wait(10)
        assert loop.calls == 1, "the answer"
        make(1)
        database.wake()
        poll(lambda: loop.claimed)
    finally:
        database.close()
        database.join(10)
    assert took[0] > 0


def test_a_claim_says_how_long_its_first_job_has_waited(
    loop: Loop,
) -> None:
    waits: list[float] = []

    class Noted(Patient):
        def record(self, got: int, took: float = 0.0, waited: float = 0.0) -> None:
            super().record(got)
            waits.extend([waited] * bool(got))

    (old, _) = make(2)
    since = clock.now("default") - timedelta(seconds=100)
    Job.objects.filter(id=old.id).update(enqueued_at=since)
    claims = Claims(WHERE, Noted(), "w1", loop.on_claimed, loop.on_empty)
    database = DatabaseThread(loop, "default", [claims])
    database.start()
    try:
        database.want(2, 2)
        poll(lambda: len(loop.claimed) == 2)
        poll(lambda: waits)
    finally:
        database.close()
        database.join(10)
    assert 100 <= waits[0] < 200


def test_a_look_at_a_few_sources_puts_off_no_look_at_all_of_them(
    loop: Loop, looks: list[Sources]
) -> None:
    """What nobody announced is found by the net, however much is announced elsewhere."""
    claims = Claims(WHERE, IdlenessSchedule(), "w1", loop.on_claimed, loop.on_empty)
    database = DatabaseThread(loop, "default", [claims])
    database.start()
    try:
        database.want(1, 1)
        poll(lambda: loop.empty)
        make(1, queue="other")

        def claimed() -> bool:
            database.wake("default", "test.foreign")
            return bool(loop.claimed)

        poll(claimed)
    finally:
        database.close()
        database.join(10)
    # Of all its types; while the job is enqueued, the row of its queue may be held and passed over.
    assert looks[0] is WHERE
    assert all(looked.types == WHERE.types for looked in looks)


def test_what_may_not_be_claimed_ahead_is_claimed_when_it_can_begin(
    database: DatabaseThread, loop: Loop
) -> None:
    make(1, retry={"max_attempts": 1})
    database.want(5, 0)
    poll(lambda: loop.empty == 1)
    assert loop.claimed == []
    database.want(1, 1)
    poll(lambda: loop.claimed)


def test_after_a_failure_everything_is_looked_at_again(
    database: DatabaseThread, loop: Loop, looks: list[Sources], monkeypatch: pytest.MonkeyPatch
) -> None:
    from django.db import OperationalError

    from django_ojs.worker.threads import fetcher as module

    database.want(1, 1)
    poll(lambda: loop.empty == 1)
    make(1)
    failed = threading.Event()

    def failing(*args: Any, **kwargs: Any) -> list[JobRow]:
        if not failed.is_set():
            failed.set()
            raise OperationalError("the server is gone")
        return claim(*args, **kwargs)

    monkeypatch.setattr(module, "claim", failing)
    database.wake("default", "test.job")
    poll(lambda: loop.claimed)
    assert looks == [WHERE, WHERE]


def test_a_worker_without_any_queue_says_that_there_is_nothing(loop: Loop) -> None:
    """Otherwise a drain of an empty database would wait for ever."""
    claims = Claims(sources([]), Patient(), "w1", loop.on_claimed, loop.on_empty)
    database = DatabaseThread(loop, "default", [claims])
    database.start()
    database.want(1, 1)
    poll(lambda: loop.empty == 1 and database.connected.is_set())
    database.close()
    database.join(10)


@pytest.mark.fault("F75")
def test_a_claim_that_finds_nothing_does_not_end_the_wait_of_a_report(
    database: DatabaseThread, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the table is locked, reading goes on. The job is beaten for until its report is written."""
    make()
    (job,) = take()
    with locked_table():
        database.settle([Pending(Outcome(held(job), Report.ACK, claimed=job), clock.boottime() + 60)])
        poll(database.held_up)
        held_up: list[list[JobRow]] = []
        monkeypatch.setattr(
            database._fetchers[0]._claims, "on_empty", lambda left: held_up.append(database.held_up())
        )
        database.want(1, 1)
        poll(lambda: held_up)
        assert held_up[0] == [job]
    poll(lambda: not database.unwritten)
    assert not database.held_up()
    assert now_stored(job).state == "completed"


def test_a_call_that_takes_long_holds_up_no_claim_where_they_have_two_connections(loop: Loop) -> None:
    """Where they have one it comes first."""
    claims = Claims(WHERE, Patient(), "w1", loop.on_claimed, loop.on_empty)
    threads = database_threads(loop, "default", [claims])
    claimer, database = threads[0], threads[-1]
    (job,) = make(1, queue="default")
    over, answered = threading.Event(), threading.Event()
    with bounded():
        for thread in threads:
            thread.start()
        try:
            database.call(over.wait, lambda value, error: answered.set())
            claimer.want(1, 1)
            apart = dialect("default").claims_apart()
            mariadb = getattr(connections["default"], "mysql_is_mariadb", False)
            assert apart is (connections["default"].vendor == "postgresql" or mariadb)
            if apart:
                poll(lambda: loop.claimed)
                assert not answered.is_set()
            over.set()
            poll(lambda: loop.claimed and answered.is_set())
            assert [claimed.id for claimed in loop.claimed] == [job.id]
        finally:
            over.set()
            for thread in threads:
                thread.close()
                thread.join(10)
