"""The desk that claims: what it looks at, and that it gives out only what was asked for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connections

from django_ojs import clock
from django_ojs.domain.job import JobRecord
from django_ojs.services.claim import claim, sources
from django_ojs.services.settle import Outcome, Report
from django_ojs.store import candidates
from django_ojs.store.candidates import Look
from django_ojs.store.notifications import NotifiedSchedule, PollSchedule
from django_ojs.store.sources import Sources
from django_ojs.worker.threads.database import Pending
from django_ojs.worker.threads.fetcher import Claims, Intake, Moment
from tests.services.support import bounded, held, locked_table, make, now_stored, take
from tests.support import poll

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("ojs_db")]
WHERE = sources(["default", "other"], ["test.job"])


class Patient(PollSchedule):
    """Looks only when it is told to."""

    def claimed(self, got: int, wanted: int) -> None:
        """Never again by itself."""
        self._next = clock.boottime() + 1000


class Inbox:
    """Takes what is posted at once, in the desk's thread."""

    def __init__(self) -> None:
        self.claimed: list[JobRecord] = []
        self.empty = 0

    def post(self, call: Callable[[], None]) -> None:
        """As the runner would."""
        call()

    def on_claimed(self, jobs: list[JobRecord], at: Moment) -> None:
        """Keep them."""
        self.claimed += jobs

    def on_empty(self, left: bool) -> None:
        """Count it."""
        self.empty += 1


@pytest.fixture
def inbox() -> Inbox:
    """Where the desk reports to."""
    return Inbox()


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


@pytest.fixture
def intake(inbox: Inbox) -> Iterator[Intake]:
    """A running desk."""
    claims = Claims(WHERE, Patient(), "w1", inbox.on_claimed, inbox.on_empty)
    with bounded():
        made = Intake(inbox, claims, "default")
        made.start()
        yield made
        made.close()
        made.join(10)
    assert not made.is_alive()


def test_what_is_announced_after_an_empty_look_is_gone_to_without_a_look(
    intake: Intake, inbox: Inbox, looks: list[Sources]
) -> None:
    intake.want(1, 1)
    poll(lambda: inbox.empty == 1)
    assert looks == [WHERE]
    (job,) = make(1, queue="other")
    intake.wake("other", "test.foreign")
    intake.wake("other", "test.job")
    poll(lambda: inbox.claimed)
    assert [claimed.id for claimed in inbox.claimed] == [job.id]
    assert len(looks) == 1


def test_after_a_claim_and_without_a_name_everything_is_looked_at(
    intake: Intake, inbox: Inbox, looks: list[Sources]
) -> None:
    make(2, queue="other")
    intake.want(1, 1)
    poll(lambda: len(inbox.claimed) == 1)
    intake.delivered()
    intake.want(1, 1)
    intake.wake("default")
    poll(lambda: len(inbox.claimed) == 2)
    intake.delivered()
    intake.want(1, 1)
    intake.wake()
    poll(lambda: inbox.empty == 1)
    make(1)
    intake.wake()
    poll(lambda: len(inbox.claimed) == 3)
    assert looks == [WHERE] * 4


def test_nothing_is_claimed_until_what_was_claimed_has_been_delivered(
    intake: Intake, inbox: Inbox
) -> None:
    make(3)
    intake.want(2, 2)
    poll(lambda: len(inbox.claimed) == 2)
    intake.want(2, 2)
    answers: list[object] = []
    intake.wake()
    intake.call(lambda: None, lambda value, error: answers.append(value))
    poll(lambda: answers)
    assert len(inbox.claimed) == 2
    intake.delivered()
    intake.want(2, 2)
    intake.wake()
    poll(lambda: len(inbox.claimed) == 3)


def test_who_listens_polls_less() -> None:
    listening = threading.Event()
    watcher = NotifiedSchedule(listening)
    watcher.claimed(0, 1)
    assert watcher.pause() < 0.1
    listening.set()
    watcher.claimed(1, 1)
    assert watcher.pause() == 0.0, "once at once: others may have come meanwhile"
    watcher.claimed(0, 1)
    assert watcher.pause() > 0.1


def test_a_look_at_a_few_sources_puts_off_no_look_at_all_of_them(
    inbox: Inbox, looks: list[Sources]
) -> None:
    """What nobody announced is found by the net, however much is announced elsewhere."""
    claims = Claims(WHERE, PollSchedule(), "w1", inbox.on_claimed, inbox.on_empty)
    intake = Intake(inbox, claims, "default")
    intake.start()
    try:
        intake.want(1, 1)
        poll(lambda: inbox.empty)
        make(1, queue="other")

        def claimed() -> bool:
            intake.wake("default", "test.foreign")
            return bool(inbox.claimed)

        poll(claimed)
    finally:
        intake.close()
        intake.join(10)
    # Of all its types; while the job is enqueued, the row of its queue may be held and passed over.
    assert looks[0] is WHERE
    assert all(looked.types == WHERE.types for looked in looks)


def test_what_may_not_be_claimed_ahead_is_claimed_when_it_can_begin(
    intake: Intake, inbox: Inbox
) -> None:
    make(1, retry={"max_attempts": 1})
    intake.want(5, 0)
    poll(lambda: inbox.empty == 1)
    assert inbox.claimed == []
    intake.want(1, 1)
    poll(lambda: inbox.claimed)


def test_after_a_failure_everything_is_looked_at_again(
    intake: Intake, inbox: Inbox, looks: list[Sources], monkeypatch: pytest.MonkeyPatch
) -> None:
    from django.db import OperationalError

    from django_ojs.worker.threads import fetcher as module

    intake.want(1, 1)
    poll(lambda: inbox.empty == 1)
    make(1)
    failed = threading.Event()

    def failing(*args: Any, **kwargs: Any) -> list[JobRecord]:
        if not failed.is_set():
            failed.set()
            raise OperationalError("the server is gone")
        return claim(*args, **kwargs)

    monkeypatch.setattr(module, "claim", failing)
    intake.wake("default", "test.job")
    poll(lambda: inbox.claimed)
    assert looks == [WHERE, WHERE]


def test_a_worker_without_any_queue_says_that_there_is_nothing(inbox: Inbox) -> None:
    """Otherwise a drain of an empty database would wait for ever."""
    claims = Claims(sources([]), Patient(), "w1", inbox.on_claimed, inbox.on_empty)
    intake = Intake(inbox, claims, "default")
    intake.start()
    intake.want(1, 1)
    poll(lambda: inbox.empty == 1 and intake.connected.is_set())
    intake.close()
    intake.join(10)


@pytest.mark.fault("F75")
def test_a_claim_that_finds_nothing_does_not_end_the_wait_of_a_report(
    intake: Intake, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the table is locked, reading goes on. The job is beaten for until its report is written."""
    make()
    (job,) = take()
    with locked_table():
        intake.settle([Pending(Outcome(held(job), Report.ACK, claimed=job), clock.boottime() + 60)])
        poll(intake.held_up)
        held_up: list[list[JobRecord]] = []
        monkeypatch.setattr(intake._claims, "on_empty", lambda left: held_up.append(intake.held_up()))
        intake.want(1, 1)
        poll(lambda: held_up)
        assert held_up[0] == [job]
    poll(lambda: not intake.unwritten)
    assert not intake.held_up()
    assert now_stored(job).state == "completed"
