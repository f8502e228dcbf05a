"""The kit with queues on several databases, and with test cases that allow some of them."""

from __future__ import annotations

import unittest
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import connections, transaction

import django_ojs
from django_ojs import JobContext, SoftStop, job
from django_ojs.models import Job
from django_ojs.testing import (
    Drained,
    JobClock,
    OJSTestCase,
    WorkerProcess,
    assert_enqueued,
    clear,
    commits,
    drain,
    enqueued,
    fake,
    inline,
    perform,
    refute_enqueued,
    running,
)
from tests.several import SECOND, beside_default
from tests.support import database_url
from tests.workload import jobs

BOTH = ("default", SECOND)


@pytest.fixture(params=["committed", "TestCase"])
def both(request: pytest.FixtureRequest, ojs_db: None, tmp_path: Path) -> Iterator[str]:
    """Queues are on the database under test and on a file; with commits, and as in ``TestCase``."""
    with beside_default(tmp_path), ExitStack() as blocks:
        if request.param == "TestCase":
            for alias in BOTH:
                block: Any = transaction.atomic(using=alias)
                block._from_testcase = True
                blocks.enter_context(block)
                blocks.callback(transaction.set_rollback, True, using=alias)
        yield str(request.param)


@pytest.fixture
def ran() -> list[str]:
    """The queues of the jobs that ran, in order."""
    return []


@pytest.fixture
def note(ran: list[str]) -> Any:
    @job("kit.note")
    def note(ctx: JobContext) -> str:
        ran.append(ctx.queue)
        return ctx.queue

    return note


@pytest.mark.every_database
def test_jobs_of_every_database_are_found_and_run(both: str, note: Any, ran: list[str]) -> None:
    for queue in ("default", "mail", "reports.x"):
        note.using(queue=queue).enqueue()
    # In the order of their times, but each database has a clock of its own.
    assert sorted(one.queue for one in enqueued(note)) == ["default", "mail", "reports.x"]
    assert_enqueued(note, count=3)
    assert_enqueued(note, queue="mail", state="available", count=1)
    refute_enqueued(note, queue="other")
    assert [one.queue for one in enqueued(note, using=SECOND)] == ["mail", "reports.x"]
    assert drain(["reports.x", "default", "mail"]) == Drained(completed=3)
    assert ran == ["reports.x", "default", "mail"]
    note.using(queue="mail").enqueue()
    assert drain(using="default") == Drained()
    assert drain("default") == Drained()
    assert drain("mail") == Drained(completed=1)
    clear()
    assert not enqueued()


@pytest.mark.every_database
def test_jobs_that_jobs_enqueue_elsewhere(both: str, note: Any, ran: list[str]) -> None:
    @job("kit.relay", queue="mail")
    def relay() -> None:
        with transaction.atomic(using=SECOND, durable=True):
            note.enqueue()
        note.using(queue="reports.x").enqueue_on_commit()
        transaction.on_commit(lambda: ran.append("default commits"), using="default")
        transaction.on_commit(lambda: ran.append("jobs2 commits"), using=SECOND)

    relay.enqueue()
    assert drain() == Drained(completed=3)
    assert sorted(ran[:2]) == ["default commits", "jobs2 commits"]
    assert sorted(ran[2:]) == ["default", "reports.x"]


def test_what_waits_is_made_due_in_its_order(both: str, note: Any, ran: list[str]) -> None:
    note.using(delay="2h").enqueue()
    note.using(queue="mail", delay="1h").enqueue()
    note.using(queue="mail", delay="3h").enqueue()
    assert drain(with_scheduled=True) == Drained(completed=3)
    assert ran == ["mail", "default", "mail"]


def test_a_block_of_either_database_refuses(both: str, note: Any) -> None:
    note.using(queue="mail").enqueue()
    for alias in BOTH:
        with transaction.atomic(using=alias), pytest.raises(RuntimeError, match="inside atomic"):
            drain()
    with transaction.atomic(using="default"):
        assert drain("mail") == Drained(completed=1)


@pytest.mark.every_database
def test_the_clock_is_that_of_every_database(both: str, note: Any, ran: list[str]) -> None:
    with JobClock() as clock:
        clock.freeze()
        here = note.using(delay="1h").enqueue()
        there = note.using(queue="mail", delay="2h").enqueue()
        clock.advance(hours=1, work=True)
        assert ran == ["default"]
        clock.advance(hours=1, work=True)
        assert ran == ["default", "mail"]
        assert [django_ojs.get(one).state for one in (here, there)] == ["completed"] * 2
        late = note.using(queue="mail", enqueue_ttl="1h").enqueue()
        clock.advance(hours=2)
        assert django_ojs.get(late).state == "discarded"


@pytest.mark.every_database
def test_inline_runs_them_when_all_blocks_have_ended(both: str, note: Any, ran: list[str]) -> None:
    with inline():
        assert note.using(queue="mail").enqueue().state == "completed"
        assert note.enqueue().state == "completed"
        with transaction.atomic(using="default"):
            assert note.using(queue="mail").enqueue().state == "available"
        assert ran == ["mail", "default", "mail"]


def test_fake_records_them(both: str, note: Any) -> None:
    with fake():
        note.using(queue="mail").enqueue()
        note.enqueue()
        assert_enqueued(note, count=2)
        assert_enqueued(note, queue="mail", count=1)
    assert not enqueued()


@pytest.mark.every_database
def test_a_job_of_another_database_is_held_active(both: str, note: Any) -> None:
    one = note.using(queue="mail").enqueue()
    with running(one) as ctx:
        django_ojs.cancel(one)
        with pytest.raises(SoftStop):
            ctx.check()
    assert Job.objects.using(SECOND).get(pk=one.id).state == "cancelled"


def test_commits_of_every_database(both: str, note: Any) -> None:
    seen: list[str] = []

    def then() -> None:
        seen.append("first")
        transaction.on_commit(lambda: seen.append("second"), using="default")

    with commits():
        transaction.on_commit(then, using=SECOND)
        note.using(queue="mail").enqueue_on_commit()
        note.enqueue_on_commit()
    assert seen == ["first", "second"]
    assert_enqueued(note, count=2)


def test_the_hint_about_commits_is_given_for_every_database(both: str, note: Any) -> None:
    note.using(queue="mail").enqueue_on_commit()
    if both == "committed":
        assert_enqueued(note, count=1)
        return
    with pytest.raises(AssertionError, match=r"1 call\(s\) of enqueue_on_commit wait"):
        assert_enqueued(note)


def test_perform_has_the_callbacks_of_every_database(both: str, ran: list[str]) -> None:
    @job("kit.both")
    def both_commit() -> None:
        for alias in BOTH:
            transaction.on_commit(lambda alias=alias: ran.append(alias), using=alias)  # type: ignore[misc]

    assert perform(both_commit).state == "completed"
    assert sorted(ran) == sorted(BOTH)


def outcome(case: type[unittest.TestCase]) -> str:
    """Run the method ``test`` of a test case as Django's runner would; what was wrong."""
    result = unittest.TestResult()
    unittest.TestSuite([case("test")]).run(result)
    assert result.testsRun == 1, result.errors
    return "".join(text for _, text in result.errors + result.failures)


@pytest.fixture
def allowed(ojs_db: None, tmp_path: Path) -> Iterator[None]:
    """Queues are on two databases; what may be used is up to the test case."""
    with beside_default(tmp_path):
        yield
        assert not Job.objects.exists() and not Job.objects.using(SECOND).exists()


@pytest.mark.every_database
def test_a_test_case_with_all_databases(allowed: None, note: Any) -> None:
    class All(OJSTestCase):
        databases = "__all__"

        def test(self) -> None:
            note.enqueue()
            note.using(queue="mail", delay="1h").enqueue()
            self.assertEnqueued(note, count=2)
            assert self.drain() == Drained(completed=1)
            self.ojs_clock.advance(hours=1, work=True)
            self.assertEnqueued(note, queue="mail", state="completed", count=1)

    assert outcome(All) == ""


def test_a_test_case_with_one_of_them(allowed: None, note: Any) -> None:
    class One(OJSTestCase):
        databases = {"default"}

        def test(self) -> None:
            note.enqueue()
            self.assertEnqueued(note, count=1)
            self.ojs_clock.advance(hours=1)
            assert self.drain() == Drained(completed=1)
            with self.commits():
                note.enqueue_on_commit()
            self.clear()
            self.refuteEnqueued(note)
            may_not = "this test may not use: add it to `databases` of the test case"
            named = rf"^drain\(\): the queue 'mail' is in 'jobs2', which {may_not}"
            given = rf"^drain\(\) looks in the database 'jobs2', which {may_not}"
            with pytest.raises(RuntimeError, match=named):
                self.drain("mail")
            with pytest.raises(RuntimeError, match=given):
                self.drain(using=SECOND)
            with pytest.raises(RuntimeError, match=rf"^refute_enqueued\(\): the queue.*{may_not}"):
                self.refuteEnqueued(note, queue="mail")
            with pytest.raises(AssertionError, match="not looked at: 'jobs2', which this test may"):
                self.assertEnqueued(note)
            with pytest.raises(AssertionError, match=r"Database .* 'jobs2' are not allowed"):
                note.using(queue="mail").enqueue()

    assert outcome(One) == ""


def test_a_test_case_without_them(allowed: None, note: Any) -> None:
    class Without(OJSTestCase):
        databases: set[str] = set()

        def test(self) -> None:
            self.drain()

    said = outcome(Without)
    assert "RuntimeError: drain() looks in the database 'default', which this test may not use" in said


def test_a_worker_of_a_database_that_is_not_allowed(allowed: None) -> None:
    class One(OJSTestCase):
        databases = {"default"}

        def test(self) -> None:
            WorkerProcess("--database", SECOND).start()

    assert "WorkerProcess looks in the database 'jobs2', which this test may not use" in outcome(One)


@pytest.mark.process
def test_a_worker_for_another_database(
    ojs_db: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Undone before the overridden settings are: later it would be done to those of all other tests.
    with beside_default(tmp_path), monkeypatch.context() as patch:
        environment = {
            "OJS_TEST_SECOND": f"sqlite:///{connections.databases[SECOND]['NAME']}",
            "DATABASE_URL": database_url(),
        }
        patch.setattr(settings, "SETTINGS_MODULE", "tests.settings_several")
        options = ("--database", "second", "--concurrency", "1")
        patch.setitem(connections.databases, "second", connections.databases[SECOND])
        one = jobs.echo.using(queue="mail").enqueue(7)
        with WorkerProcess(*options, environment=environment) as worker:
            assert worker.wait(one, timeout=60).result == 7, worker.output
