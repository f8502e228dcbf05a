"""Sets are written in parts that fit; a row that cannot be written holds up no other."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import count
from typing import Any

import pytest
from django.db import OperationalError, connection, connections, transaction

from django_ojs import clock
from django_ojs.api import enqueue_many
from django_ojs.clock import FrozenClock
from django_ojs.domain.job import JobRow
from django_ojs.models import Event, Job
from django_ojs.services import promote, reap
from django_ojs.services.leases import Progress, progress
from django_ojs.services.settle import Outcome, Report, Verdict, settle
from django_ojs.store import batches
from django_ojs.worker.threads.database import DatabaseThread
from django_ojs.worker.threads.outcomes import Pending
from tests.services.support import held, make, now_stored, take
from tests.support import poll

pytestmark = [pytest.mark.usefixtures("ojs_db"), pytest.mark.every_database]

MEGABYTE = "x" * 1_000_000
HISTORY = [{"type": "test.Error", "message": "x" * 8_000, "attempt": n} for n in range(50)]
POISON = {"not": "a history"}
"""In place of a list of errors: whoever adds one raises."""


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    for failed in (reap._failed, promote._failed):
        failed._until.clear()


@contextmanager
def largest() -> Iterator[list[int]]:
    """The size of every statement with its parameters, in characters."""
    sizes: list[int] = []

    def measure(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        sizes.append(len(sql) + sum(len(text) for text in params or () if isinstance(text, str)))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(measure):
        yield sizes


def _fits(sizes: list[int]) -> None:
    # Quotes of JSON within JSON: one more character each.
    assert max(sizes) <= 1.1 * batches.max_bytes("default")


@pytest.mark.slow
def test_overdue_jobs_with_long_histories_end(frozen: FrozenClock) -> None:
    """60 times 0.4 MB, more than MariaDB takes in one statement, beside a job that has nothing to do
    with them.
    """
    made = make(60, total_timeout=5)
    Job.objects.update(errors=HISTORY)
    (innocent,) = make(total_timeout=6)
    frozen.advance(10)
    with largest() as sizes:
        assert reap.reap().counts == {"total": 61}
    _fits(sizes)
    assert now_stored(innocent).state == "discarded"
    assert {len(now_stored(job).json("errors")) for job in made} == {50}


def test_what_is_small_does_not_wait_behind_long_histories(
    frozen: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither what is due with them, nor what falls due while they are ended."""
    moments = count(1000.0)
    # A second is over at every look at this clock.
    monkeypatch.setattr(clock, "boottime", lambda: next(moments))
    make(12, total_timeout=5)
    Job.objects.update(errors=HISTORY)
    (due,) = make(total_timeout=6)
    (soon,) = make(total_timeout=11)
    frozen.advance(10)

    def pass_time(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.startswith("UPDATE"):
            frozen.advance(1)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(pass_time):
        ended = list(reap.reap().jobs)
    assert len(ended) == 14
    assert ended.index(due.id) < 4
    assert ended.index(soon.id) < 8


@pytest.mark.slow
def test_large_results_are_settled_together() -> None:
    make(24)
    outcomes = [
        Outcome(held(job), Report.ACK, f'"{n}{MEGABYTE}"', claimed=job)
        for n, job in enumerate(take(24))
    ]
    with largest() as sizes:
        assert {answer.verdict for answer in settle(outcomes)} == {Verdict.SETTLED}
    _fits(sizes)
    assert {now_stored(outcome.claimed).result for outcome in outcomes if outcome.claimed} == {
        outcome.result for outcome in outcomes
    }


@pytest.mark.slow
def test_large_jobs_are_enqueued_together_or_not_at_all() -> None:
    with largest() as sizes:
        enqueue_many("test.job", [[f"{n}{MEGABYTE}"] for n in range(24)])
    _fits(sizes)
    assert Job.objects.count() == 24
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        enqueue_many("test.job", [[f"{n}{MEGABYTE}"] for n in range(24)])
        raise ZeroDivisionError
    assert Job.objects.count() == 24


@pytest.mark.slow
def test_much_progress_is_stored_together() -> None:
    make(12)
    reports = [Progress(held(job), 0.5, data=f'"{n}{MEGABYTE}"') for n, job in enumerate(take(12))]
    with largest() as sizes:
        assert len(progress(reports)) == 12
    _fits(sizes)
    assert Job.objects.filter(progress=0.5).count() == 12


class TestPoison:
    """A row that makes its writer fail, in the middle of others."""

    def _poisoned(self, **options: Any) -> tuple[JobRow, list[JobRow]]:
        made = make(9, **options)
        Job.objects.filter(pk=made[4].id).update(errors=POISON)
        return made[4], [*made[:4], *made[5:]]

    def test_it_is_set_aside_by_the_reaper(
        self, frozen: FrozenClock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(clock, "boottime", lambda: 1000.0)
        poison, others = self._poisoned(total_timeout=5)
        frozen.advance(6)
        with caplog.at_level(logging.ERROR, "django_ojs.batches"):
            assert reap.reap().counts == {"total": 8}
            assert {now_stored(job).state for job in others} == {"discarded"}
            assert now_stored(poison).state == "available"
            make(total_timeout="1ms")
            frozen.advance(1)
            assert reap.reap(limit=1).counts == {"total": 1}, "it is not in the way of later ones"
        (record,) = [said for said in caplog.records if said.name == "django_ojs.batches"]
        assert str(poison.id) in record.getMessage()
        assert (record.job_id, bool(record.reason)) == (str(poison.id), True)  # type: ignore[attr-defined]

    def test_it_is_tried_again_later_and_later(
        self, frozen: FrozenClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        aside = batches.SetAside("ending")
        now = 1000.0
        monkeypatch.setattr(clock, "boottime", lambda: now)
        (job,) = make()
        waits = []
        for _ in range(8):
            aside.add(job.id, ValueError("no"), "default")
            before = now
            while not aside.without([job.id], "default"):
                now += 1.0
            waits.append(now - before)
        assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
        assert aside.without([job.id], "another") == [job.id]

    def test_it_is_set_aside_by_the_promotion(self, frozen: FrozenClock) -> None:
        poison, others = self._poisoned(delay=5, total_timeout=6)
        Job.objects.exclude(pk=poison.id).update(deadline_at=None, total_timeout_ms=None)
        frozen.advance(7)
        assert promote.promote() == 8
        assert {now_stored(job).state for job in others} == {"available"}
        assert now_stored(poison).state == "scheduled"

    def test_what_can_be_repaired_is_ended(self, frozen: FrozenClock) -> None:
        poison, _others = self._poisoned(total_timeout=5)
        frozen.advance(6)
        reap.reap()
        Job.objects.filter(pk=poison.id).update(errors=[])
        reap._failed._until.clear()
        assert reap.reap().counts == {"total": 1}


class Loop:
    """Runs what is posted at once."""

    def call_soon(self, call: Callable[[], None]) -> None:
        """As the runner would, in the database thread."""
        call()


@pytest.fixture
def database() -> Iterator[DatabaseThread]:
    """A running database thread."""
    made = DatabaseThread(Loop(), "default")
    made.start()
    yield made
    made.close()
    made.join(15)
    assert not made.is_alive()


@pytest.mark.long
def test_a_report_that_is_too_large_for_the_server_is_refused_alone(
    database: DatabaseThread, vendor: str
) -> None:
    """As MariaDB does with more than its packet: it cuts the connection, which is no outage."""
    if vendor != "mysql":
        pytest.skip("no limit to speak of")
    make(3, retry={"max_attempts": 1})
    jobs = take(3)
    results = ["1", '"' + 17 * MEGABYTE + '"', "3"]
    outcomes = [
        Outcome(held(job), Report.ACK, result) for job, result in zip(jobs, results, strict=True)
    ]
    database.settle([Pending(outcome, float("inf")) for outcome in outcomes])
    # The large one is sent again and again, which takes seconds each time on a busy machine.
    poll(lambda: not database.unwritten, 90)
    assert [now_stored(job).state for job in jobs] == ["completed", "discarded", "completed"]
    assert now_stored(jobs[1]).json("error")["type"] == "report_refused"


def cut_off() -> None:
    """Have the server end the session of this thread."""
    own, end = {
        "postgresql": ("SELECT pg_backend_pid()", "SELECT pg_terminate_backend(%s)"),
        "mysql": ("SELECT CONNECTION_ID()", "KILL CONNECTION %s"),
    }[connection.vendor]
    with connection.cursor() as cursor:
        cursor.execute(own)
        (session,) = cursor.fetchone()
    other = connection.copy()
    with closing(other), other.cursor() as cursor:
        cursor.execute(end, [session])


class TestInBatches:
    """The mechanism itself."""

    def _run(
        self, items: Sequence[int], work: Callable[[Sequence[int]], None], **how: Any
    ) -> list[int]:
        refused: list[int] = []
        batches.in_batches(
            items,
            work,
            refused=lambda item, error: refused.append(item),
            **{"most": 100, "using": "default", **how},
        )
        return refused

    def test_parts_are_bounded_by_number_and_by_size(self) -> None:
        parts: list[list[int]] = []
        self._run(range(7), lambda part: parts.append(list(part)), most=3)
        assert parts == [[0, 1, 2], [3, 4, 5], [6]]
        parts.clear()
        third = batches.max_bytes("default") // 3
        self._run(range(7), lambda part: parts.append(list(part)), size=lambda _: third)
        assert parts == [[0, 1, 2], [3, 4, 5], [6]]
        parts.clear()
        self._run(range(2), lambda part: parts.append(list(part)), size=lambda _: 9 * third)
        assert parts == [[0], [1]]

    def test_one_that_fails_is_found_by_halving(self) -> None:
        done: list[int] = []

        def work(part: Sequence[int]) -> None:
            if 13 in part:
                raise OperationalError("server has gone away")
            done.extend(part)

        assert self._run(range(64), work) == [13]
        assert sorted(done) == [n for n in range(64) if n != 13]

    def test_a_cut_connection_is_nobodys_fault(self, vendor: str) -> None:
        if vendor == "sqlite":
            pytest.skip("a file is not cut off")
        tries: list[int] = []

        def work(part: Sequence[int]) -> None:
            tries.append(len(part))
            if len(tries) == 1:
                cut_off()
            Event.objects.exists()

        assert self._run([1], work) == []
        assert tries == [1, 1]

    def test_an_outage_is_raised(self, monkeypatch: pytest.MonkeyPatch) -> None:
        tries: list[int] = []

        def work(part: Sequence[int]) -> None:
            tries.append(len(part))
            raise OperationalError("server has gone away")

        connection.close()
        with monkeypatch.context() as patch, pytest.raises(OperationalError):
            patch.setitem(connections["default"].settings_dict, "NAME", "/no/such/database")
            self._run(range(8), work)
        assert tries == [8]

    def test_within_a_transaction_it_cannot_be_asked(self) -> None:
        def work(part: Sequence[int]) -> None:
            raise OperationalError("server has gone away")

        with pytest.raises(OperationalError), transaction.atomic():
            self._run(range(8), work)
