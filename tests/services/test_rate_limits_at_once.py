"""Jobs that are let in by the transaction that enqueues them, or that frees a place (ADR 59)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest
from django.db import connection, connections, transaction
from django.test.utils import CaptureQueriesContext

from django_ojs import enqueue_many, get_workflow, group, resume_workflow, step
from django_ojs.clock import FrozenClock
from django_ojs.domain.job import JobRow
from django_ojs.models import Event, Job, Queue, RateLimit, RateLimitDue, RateLimitPlace
from django_ojs.services import operate, queues
from django_ojs.services.rate_limits import admission, policies
from django_ojs.services.rate_limits import operate as limits
from django_ojs.store.contention import atomically, is_own_transaction
from django_ojs.store.dialect import dialect

from .support import ack, elsewhere, make, nobody_admits, now_stored, take

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("ojs_db")]

ONE = {"key": "a", "concurrency": 1}
TEN = {"key": "a", "concurrency": 10}


def statements(work: Callable[[], object]) -> list[str]:
    """The statements of ours, without those that begin and end a transaction, or store events."""
    with CaptureQueriesContext(connection) as seen:
        work()
    texts = [query["sql"] for query in seen]
    aside = ("BEGIN", "COMMIT", "SAVEPOINT", "RELEASE")
    return [text for text in texts if not text.startswith(aside) and "django_ojs_event" not in text]


def known(limit: dict[str, Any]) -> None:
    """The key has a row: a job of it has been before."""
    ack_all(make(1, rate_limit=limit))


def begin_anew(ours: Any) -> None:
    """What was asked of the last session is asked again."""
    ours.close()
    vars(ours).pop("_ojs_dialect", None)


@contextmanager
def other_level(level: str) -> Iterator[None]:
    """Sessions of this level of isolation."""
    ours = connections["default"]
    given: Any = level
    if connection.vendor == "postgresql":
        from django.db.backends.postgresql.psycopg_any import IsolationLevel

        given = IsolationLevel[level.upper().replace(" ", "_")]
    try:
        with patch.dict(ours.settings_dict["OPTIONS"], isolation_level=given):
            begin_anew(ours)
            yield
    finally:
        begin_anew(ours)


def ack_all(jobs: list[JobRow]) -> None:
    for job in take(len(jobs)):
        ack(job)


def test_who_finds_room_is_never_held() -> None:
    known(TEN)
    (job,) = make(1, rate_limit=TEN)
    assert not job.held
    assert not now_stored(job).held
    assert not RateLimitDue.objects.exists()
    assert [place.status for place in RateLimitPlace.objects.all()] == [RateLimitPlace.Status.ADMITTED]


def test_it_takes_few_statements() -> None:
    known(TEN)
    make(1, rate_limit=TEN)
    assert len(statements(lambda: make(1, rate_limit=TEN))) == 4


def test_all_jobs_of_a_call_or_none() -> None:
    known(TEN)
    calls = [enqueue_many("test.job", [[n] for n in range(6)], rate_limit=TEN) for _ in range(2)]
    assert {job.row.held for job in calls[0]} == {False}
    held = [now_stored(job.row).held for job in calls[1]]
    assert held == [False] * 4 + [True] * 2


def test_behind_others_it_waits_without_an_admission() -> None:
    first, second = make(2, rate_limit=ONE)
    with patch.object(admission, "admit") as admit:
        (third,) = make(1, rate_limit=ONE)
    assert not admit.called
    assert now_stored(third).held
    assert not RateLimitDue.objects.exists()
    order = []
    for _ in range(3):
        (job,) = take(3)
        order.append(job.id)
        ack(job)
    assert order == [first.id, second.id, third.id]


def test_a_time_that_opens_the_key_lets_in_who_came_behind(frozen: FrozenClock) -> None:
    rate = {"key": "a", "rate": {"limit": 1, "period": "10s"}}
    jobs = make(3, rate_limit=rate)
    ack_all(jobs[:1])
    jobs += make(1, rate_limit=rate)
    for job in jobs[1:]:
        frozen.advance(11)
        admission.admit_due(using="default")
        assert [one.id for one in take(3)] == [job.id]


@pytest.mark.parametrize("left_out", ["exceeded", "due"])
def test_who_waits_goes_first_where_a_place_is_free(left_out: str) -> None:
    """The admission that follows the end of a job has not been yet."""
    first, second = make(2, rate_limit=ONE)
    (running,) = take(2)
    assert running.id == first.id
    with nobody_admits():
        ack(running)
    if left_out == "exceeded":
        RateLimit.objects.update(exceeded=False)
    (third,) = make(1, rate_limit=ONE)
    assert [job.id for job in take(3)] == [second.id]
    assert now_stored(third).held


def test_other_limits_of_a_job_lower_those_of_the_key() -> None:
    known(TEN)
    jobs = make(3, rate_limit=TEN)
    (last,) = make(1, rate_limit=ONE)
    assert [now_stored(job).held for job in (*jobs, last)] == [False, True, True, True]


def test_an_override_holds() -> None:
    known(TEN)
    limits.override("a", {"concurrency": 0})
    (job,) = make(1, rate_limit=TEN)
    assert now_stored(job).held
    limits.clear_override("a")
    assert not now_stored(job).held


def test_a_place_that_is_over_is_given_up_first(frozen: FrozenClock) -> None:
    make(1, rate_limit=ONE)
    (running,) = take()
    operate.cancel([running.id])
    frozen.advance(3600)
    (job,) = make(1, rate_limit=ONE)
    assert not now_stored(job).held


def test_a_job_of_two_keys_needs_both() -> None:
    known(TEN)
    Queue.objects.filter(name="default").update(limited=True)
    policies.know_limited(["default"], using="default")
    limits.override("queue:default", {"concurrency": 1})
    jobs = make(2, rate_limit=TEN)
    assert [now_stored(job).held for job in jobs] == [False, True]
    keys = RateLimitPlace.objects.filter(job_id=jobs[1].id).values_list("key", flat=True)
    assert sorted(keys) == ["a", "queue:default"]


def test_jobs_of_a_paused_queue_take_no_place_and_keep_nobody_out() -> None:
    known(ONE)
    make(1, queue="slow")
    queues.pause(["slow"])
    (slow,) = make(1, queue="slow", rate_limit=ONE)
    assert now_stored(slow).held
    (job,) = make(1, rate_limit=ONE)
    assert [one.id for one in take(3)] == [job.id]
    queues.resume(["slow"])
    assert now_stored(slow).held


def test_an_id_that_is_taken_is_the_same_job_with_one_place() -> None:
    known(TEN)
    (job,) = make(1, rate_limit=TEN, id="0198f000-0000-7000-8000-000000000001")
    (again,) = make(1, rate_limit=TEN, id="0198f000-0000-7000-8000-000000000001")
    assert again.id == job.id
    assert RateLimitPlace.objects.count() == 1
    assert not now_stored(job).held


def test_a_transaction_of_the_caller_locks_no_key(vendor: str) -> None:
    if vendor == "sqlite":
        pytest.skip("SQLite locks no rows")
    known(TEN)
    with transaction.atomic():
        make(1, rate_limit=TEN)
        with elsewhere(lambda: list(RateLimit.objects.select_for_update(nowait=True).filter(pk="a"))):
            assert RateLimitDue.objects.count() == 1
    assert not RateLimitDue.objects.exists()


def test_a_key_that_is_locked_is_not_waited_for(vendor: str) -> None:
    if vendor == "sqlite":
        pytest.skip("SQLite locks no rows")
    known(ONE)
    (running,) = make(1, rate_limit=ONE) and take()
    with elsewhere(lambda: list(RateLimit.objects.select_for_update().filter(pk="a"))):
        with patch.object(admission, "admit", lambda keys, *, using: 0):
            (job,) = make(1, rate_limit=ONE)
            ack(running)
        assert now_stored(job).held
    assert RateLimitDue.objects.count() == 2
    admission.admit_due(at_once=True, using="default")
    assert not now_stored(job).held


def test_an_end_lets_the_next_in_by_its_own_transaction() -> None:
    first, second = make(2, rate_limit=ONE)
    (running,) = take(2)
    with patch.object(admission, "admit") as admit:
        ack(running)
    assert not admit.called
    assert not now_stored(second).held
    assert first.id == running.id


def test_what_an_admission_drops_is_admitted_for_afterwards() -> None:
    """One within the other would go as deep as the backlog is long."""
    drop = {**ONE, "on_limit": "drop"}
    make(1, rate_limit=drop)
    with nobody_admits():
        jobs = make(450, rate_limit=drop)
    with patch.object(admission, "_at_once") as nested:
        admission.admit_due(at_once=True, using="default")
    assert not nested.called
    assert {now_stored(job).state for job in jobs} == {"discarded"}


def test_a_key_that_turns_away_is_for_the_admission_after_the_commit() -> None:
    """A job is announced before its end is."""
    drop = {**ONE, "on_limit": "drop"}
    make(1, rate_limit=drop)
    (job,) = make(1, rate_limit=drop)
    kinds = Event.objects.filter(job_id=job.id).order_by("id").values_list("kind", flat=True)
    assert list(kinds) == ["job.enqueued", "rate_limit.dropped", "job.discarded"]


def test_a_resumed_workflow_counts_what_its_limit_turns_away() -> None:
    limited = step("test.job", rate_limit={**ONE, "on_limit": "drop"})
    record = group(limited, limited, limited).enqueue()
    ack(*take(3))
    assert get_workflow(record).state == "failed"
    resume_workflow(record)
    ack(*take(3))
    found = get_workflow(record)
    assert (found.state, found.completed, found.failed) == ("failed", 2, 1)


def test_a_place_of_what_is_replaced_in_the_same_call_is_given_up() -> None:
    known(ONE)
    unique = {"keys": ["type"], "on_conflict": "replace"}
    replaced, job = enqueue_many("test.job", [[1], [2]], unique=unique, rate_limit=ONE)
    assert (replaced.state, now_stored(replaced).state) == ("cancelled", "cancelled")
    assert [one.id for one in take(2)] == [job.id]


def test_a_claim_that_takes_jobs_in_takes_nothing_back_that_it_starts() -> None:
    make(1, queue="mail")
    limits.override("queue:mail", {"concurrency": 2})
    admitted = make(2, queue="mail", priority=5)
    with nobody_admits():
        limits.override("queue:mail", {"concurrency": 1})
    assert [job.held for job in map(now_stored, admitted)] == [False, False]
    started = take(3, queues=("mail",))
    assert {job.id for job in started} == {job.id for job in admitted}
    assert not Job.objects.filter(state="active", held=True).exists()


def test_where_a_lock_does_not_show_the_latest_admissions_write_the_row(frozen: FrozenClock) -> None:
    """Of two on two nodes, or by an old snapshot, the later one fails and is run again."""
    known(TEN)
    before = RateLimit.objects.get().used_at
    frozen.advance(1)
    with patch.dict(vars(dialect("default")), lock_shows_latest=False):
        (job,) = make(1, rate_limit=TEN)
    assert job.held, "only after the commit it was let in"
    assert not now_stored(job).held
    assert RateLimit.objects.get().used_at > before


def test_the_level_of_isolation_decides(vendor: str) -> None:
    assert dialect("default").lock_shows_latest
    if vendor == "sqlite":
        return
    with other_level("repeatable read"):
        assert not dialect("default").lock_shows_latest
        known(TEN)
        (job,) = make(1, rate_limit=TEN)
        assert job.held
        assert not now_stored(job).held


def test_what_follows_the_commit_is_no_transaction_of_ours() -> None:
    """A receiver may keep its own transaction open as long as it likes."""
    known(TEN)
    found: list[tuple[bool, bool]] = []

    def later() -> None:
        with transaction.atomic():
            (job,) = make(1, rate_limit=TEN)
            found.append((is_own_transaction("default"), job.held))

    atomically("default", lambda: transaction.on_commit(later))
    assert found == [(False, True)]


def test_a_key_whose_limits_cannot_be_read_costs_no_report() -> None:
    _, waiting = make(2, rate_limit=ONE)
    (running,) = take(2)
    RateLimit.objects.update(policy={"concurrency": "many"})
    ack(running)
    assert now_stored(running).state == "completed"
    assert now_stored(waiting).held
    (job,) = make(1, rate_limit=ONE)
    assert now_stored(waiting).held is False, "the limits of the newest job can be read"
    assert now_stored(job).held


def test_what_is_admitted_next_is_due_once() -> None:
    known(TEN)
    Queue.objects.filter(name="default").update(limited=True)
    policies.know_limited(["default"], using="default")
    limits.override("queue:default", {"concurrency": 1})
    with nobody_admits():
        make(1, rate_limit=TEN)
    RateLimitDue.objects.all().delete()
    with patch.object(admission, "admit", lambda keys, *, using: 0):
        limits.override("a", {"concurrency": 5})
    assert [due.key for due in RateLimitDue.objects.all()] == ["queue:default"]
