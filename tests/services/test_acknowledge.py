"""ACKs by the records that were claimed: together, what still holds; by their rows, the others."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from django_ojs.clock import FrozenClock
from django_ojs.domain.job import JobRow
from django_ojs.domain.leases import Lease
from django_ojs.management.logs import LineHandler, TextFormatter
from django_ojs.models import Attempt, Event
from django_ojs.services import leases, operate, promote
from django_ojs.services.acknowledge import acknowledge_by_lease
from django_ojs.services.settle import Outcome, Report, SettleResult, Verdict, settle
from django_ojs.signals import EventRecord, job_completed
from tests.conftest import empty_tables

from .support import bounded, fail, held, holding, make, now_stored, take

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("ojs_db")]


@pytest.fixture(autouse=True)
def few_events(settings: Any) -> None:
    """As by default, no event of a success is stored."""
    settings.OJS = {**settings.OJS, "EVENTS": "problems"}


RETRY = {"max_attempts": 3, "initial_interval": "PT1S", "jitter": False}


def acked(*jobs: JobRow, result: str | None = None) -> list[SettleResult]:
    """Report success as a worker does: with the records as they were claimed, without waiting."""
    return settle([Outcome(held(job), Report.ACK, result, claimed=job) for job in jobs], wait=False)


def verdicts(answers: list[SettleResult]) -> list[str]:
    return [str(answer.verdict) for answer in answers]


OPTIONS: list[dict[str, Any]] = [
    {},
    {"total_timeout": 3600, "timeout": 90},
    {"total_timeout": 60},
    {"heartbeat_timeout": 7, "tags": ["a", "b"]},
    {"meta": {"order": 'ü\\ "7"'}, "visibility_timeout": 40},
    {"priority": 5, "retry": {"max_attempts": None, "jitter": False}},
]
RESULTS = [None, "null", "7", '{"sent": [1, "\\u00fc"]}', None, "0.5"]


@pytest.mark.slow
@pytest.mark.parametrize("results", [RESULTS, [None] * len(RESULTS)], ids=["some", "none"])
@pytest.mark.parametrize("failures", [0, 2])
def test_one_decision_writes_what_the_lifecycle_decides(
    frozen: FrozenClock, results: list[str | None], failures: int
) -> None:
    """Every column of every job and attempt is as the way over rows and transitions writes it."""
    began, found = frozen.time, []
    for way in ("by rows", "alone", "in a transaction", "by lease"):
        frozen.time = began
        found.append(written(frozen, results, failures, way))
    assert found[1:] == found[:1] * 3


def written(
    frozen: FrozenClock, results: list[str | None], failures: int, way: str
) -> list[list[dict[str, Any]]]:
    """The rows of these jobs after their ACK."""
    empty_tables()
    for options in OPTIONS:
        make(**{"retry": RETRY, **options})
    for _ in range(failures):
        for tried in take(len(OPTIONS)):
            fail(tried)
        frozen.advance(2)
        promote.promote()
    claimed = take(len(OPTIONS))
    outcomes = [
        Outcome(held(job), Report.ACK, result, claimed=None if way == "by rows" else job)
        for job, result in zip(claimed, results, strict=True)
    ]
    frozen.advance(0.25)
    ended = {}
    with CaptureQueriesContext(connection) as queries:
        if way == "by lease":
            reports = {outcome.lease: outcome.result for outcome in outcomes}
            ended = acknowledge_by_lease(reports, None, using="default")
            assert len(queries) == (2 if connection.vendor == "postgresql" else 0)
        if way == "in a transaction":
            with transaction.atomic():
                answers = settle(outcomes, wait=False)
        else:
            answers = settle(
                [outcome for outcome in outcomes if outcome.lease not in ended], wait=False
            )
    if connection.vendor == "postgresql" and way == "by lease":
        assert ended == {held(job): now_stored(job).small() for job in claimed}
        answers = [SettleResult(Verdict.SETTLED, job) for job in ended.values()]
    if way == "alone":
        writes = [query for query in queries if query["sql"].startswith(("UPDATE", "INSERT", "WITH"))]
        assert len(writes) == (1 if connection.vendor == "postgresql" else 2)
    assert verdicts(answers) == ["settled"] * len(claimed)
    rows = [now_stored(job)._asdict() for job in claimed]
    attempts = [
        vars(attempt)
        for job in claimed
        for attempt in Attempt.objects.filter(job_id=job.id).order_by("lease_seq")
    ]
    assert len(attempts) == len(claimed) * (failures + 1)
    hidden = {"id", "lease_id", "job_id", "_state"}
    return [
        [{name: value for name, value in row.items() if name not in hidden} for row in table]
        for table in (rows, attempts)
    ]


def test_what_has_changed_since_the_claim_is_judged_by_its_row() -> None:
    make(6)
    plain, cancelled, extended, told, retried, last = claimed = take(6)
    operate.cancel([cancelled.id])
    operate.extend_timeout([extended.id], 60_000)
    leases.progress([leases.Progress(held(told), 0.5, "half", None, told)], wait=False)
    fail(retried, retryable=False)
    answers = acked(*claimed, result="7")
    assert verdicts(answers) == ["settled", "lost", "settled", "settled", "lost", "settled"]
    states = [now_stored(job).state for job in claimed]
    assert states == ["completed", "cancelled", "completed", "completed", "discarded", "completed"]
    assert [now_stored(job).progress for job in (plain, told)] == [None, 1.0]
    assert Attempt.objects.count() == 6
    assert verdicts(acked(plain, last)) == ["replayed", "replayed"]


@pytest.mark.slow
def test_a_held_row_holds_up_no_other() -> None:
    if connection.vendor == "sqlite":
        pytest.skip("SQLite locks no rows")
    make(3)
    claimed = take(3)
    with holding(claimed[1]), bounded():
        assert verdicts(acked(*claimed)) == ["settled", "held", "settled"]
    assert verdicts(acked(claimed[1])) == ["settled"]


def by_lease(*jobs: JobRow, principal: str | None = None) -> list[bool]:
    """Report success as over HTTP, by the leases alone; of each whether that was enough."""
    reports: dict[Lease, str | None] = dict.fromkeys(map(held, jobs), "7")
    ended = acknowledge_by_lease(reports, principal, using="default")
    assert all(job.state == "completed" for job in ended.values())
    return [held(job) in ended for job in jobs]


@pytest.mark.slow
def test_by_lease_what_still_holds_and_nobody_else_waits_for(frozen: FrozenClock) -> None:
    if connection.vendor != "postgresql":
        pytest.skip("by what the rows say, where it takes more than one statement")
    make(4)
    plain, cancelled, told, taken = claimed = take(4)
    operate.cancel([cancelled.id])
    leases.progress([leases.Progress(held(told), 0.5, "half", None, told)], wait=False)
    with holding(taken):
        assert by_lease(*claimed) == [True, False, False, False]
    make(timeout=60)
    (late,) = take()
    make(2)
    (others,) = take(worker="w2")
    (mine,) = take()
    assert by_lease(late, mine, others) == [True, True, False], "one worker's"
    assert by_lease(others, principal="somebody else") == [False]
    make(timeout=60)
    (late,) = take()
    frozen.advance(100)
    assert by_lease(late) == [False]
    states = [now_stored(job).state for job in (plain, told, taken, mine, others, late)]
    assert states == ["completed", "active", "active", "completed", "active", "active"]


def test_an_event_that_somebody_wants_is_made(settings: Any) -> None:
    heard: list[EventRecord] = []

    def receive(event: EventRecord, **more: Any) -> None:
        heard.append(event)

    make(2)
    first, second = take(2)
    job_completed.connect(receive)
    try:
        acked(first, result="7")
    finally:
        job_completed.disconnect(receive)
    assert [(event.data["job_id"], event.data["result"]) for event in heard] == [(str(first.id), 7)]
    settings.OJS = {**settings.OJS, "EVENTS": "all"}
    acked(second)
    assert [event.job_id for event in Event.objects.filter(kind="job.completed")] == [second.id]


@pytest.fixture
def written_text() -> Iterator[io.StringIO]:
    """What a worker that logs text writes of jobs."""
    logger, stream = logging.getLogger("django_ojs.job"), io.StringIO()
    before = logger.level, logger.propagate
    handler = LineHandler(stream)
    handler.setFormatter(TextFormatter())
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(logging.INFO)
    yield stream
    logger.removeHandler(handler)
    logger.setLevel(before[0])
    logger.propagate = before[1]


def test_a_line_is_the_same_with_and_without_a_record(
    frozen: FrozenClock, written_text: io.StringIO
) -> None:
    """Where a filter wants to see the records, they are made."""
    handler = logging.getLogger("django_ojs.job").handlers[0]
    found = []
    for record in (False, True):
        if record:
            handler.addFilter(lambda record: getattr(record, "job_type", "") == "test.job")
        make(2, retry=RETRY)
        good, bad = take(2)
        frozen.advance(0.3)
        acked(good)
        fail(bad, backtrace=["Traceback:", "  \x1b[2J"])
        text = written_text.getvalue().replace(str(good.id), "good").replace(str(bad.id), "bad")
        found.append([line.split(" ", 2)[-1] for line in text.splitlines()])
        written_text.truncate(0)
        written_text.seek(0)
    assert found[0] == found[1]
    assert found[0] == [
        "INFO test.job good completed: queue default, attempt 1 of 3, 0.300 s",
        "WARNING test.job bad retryable: queue default, attempt 1 of 3, 0.300 s, again in 1.000 s:"
        " test.Error: no",
        "  Traceback:",
        "    \\x1b[2J",
    ]
