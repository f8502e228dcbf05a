"""Enqueueing is part of the caller's transaction, all or nothing, and idempotent by id."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from django_ojs import api, clock
from django_ojs.api import enqueue, enqueue_many, enqueue_on_commit, get, new_id
from django_ojs.domain.envelope import from_call
from django_ojs.domain.errors import Duplicate, InvalidRequest
from django_ojs.domain.job import JobRow
from django_ojs.models import Event, Job, Queue
from django_ojs.services.enqueue import enqueue as _enqueue
from django_ojs.store import inserting
from django_ojs.store.columns import JOB, ColumnType

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("ojs_db")]


def test_what_is_stored_is_what_was_returned() -> None:
    job = enqueue(
        "test.job",
        [1, "ü", {"a": [None, True, 1.5]}],
        queue="mail",
        priority=7,
        meta={"tenant": "acme"},
        tags=["a", "b"],
        timeout=30,
        grace_period=0,
        total_timeout="1h",
        enqueue_ttl="5m",
        heartbeat_timeout="PT10S",
        retry={"max_attempts": 9},
    )
    row = Job.objects.get(pk=job.id)
    assert row.args == [1, "ü", {"a": [None, True, 1.5]}]
    assert (row.queue, row.priority, row.meta, row.tags) == (
        "mail",
        7,
        {"tenant": "acme"},
        ["a", "b"],
    )
    assert (row.timeout_ms, row.grace_period_ms, row.heartbeat_timeout_ms) == (30_000, 0, 10_000)
    assert (row.total_timeout_ms, row.enqueue_ttl_ms) == (3_600_000, 300_000)
    assert (row.max_attempts, row.retry["max_attempts"]) == (9, 9)
    assert row.retry["max_interval"] == "PT5M"
    assert row.state == "available"
    assert row.deadline_at is not None
    assert (row.deadline_at - row.created_at).total_seconds() == 300
    assert Queue.objects.filter(name="mail").exists()


@pytest.mark.fault("F91")
def test_a_rolled_back_transaction_leaves_no_job() -> None:
    with pytest.raises(RuntimeError), transaction.atomic():
        enqueue("test.job")
        enqueue_many("test.job", [[1], [2]])
        raise RuntimeError
    assert not Job.objects.exists()
    assert not Event.objects.exists()


def test_on_commit_inserts_after_the_outermost_commit() -> None:
    with transaction.atomic():
        with transaction.atomic():
            enqueue_on_commit("test.job", [1])
        assert not Job.objects.exists()
    assert Job.objects.count() == 1


def test_on_commit_checks_at_once() -> None:
    with pytest.raises(InvalidRequest, match="args"):
        enqueue_on_commit("test.job", [object()])


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 999, 2500])
@override_settings(OJS={"EVENTS": "problems"})
def test_many_take_one_statement_per_thousand(count: int) -> None:
    enqueue("test.job")
    with CaptureQueriesContext(connection) as queries:
        jobs = enqueue_many("test.job", ([n] for n in range(count)))
    inserts = [q["sql"] for q in queries if "INSERT INTO" in q["sql"]]
    assert len(inserts) == -(-count // 1000)
    assert Job.objects.count() == count + 1
    assert [job.args for job in jobs[:2]] == [[n] for n in range(min(2, count))]


def _read(job: JobRow) -> dict[str, Any]:
    """A record with its JSON parsed: PostgreSQL keeps values, not their spelling."""
    kinds = {column: kind is ColumnType.JSON for column, kind in JOB.items()}
    return {name: job.json(name) if kinds[name] else getattr(job, name) for name in job._fields}


@pytest.mark.parametrize("count", [1, 2])
def test_every_column_is_stored_as_it_was_returned(count: int) -> None:
    options: dict[str, Any] = {
        "queue": "available",
        "priority": 0,
        "meta": {"%s": "'\\"},
        "tags": ["[]", "%"],
        "delay": "10s",
        "expires_at": "1h",
        "enqueue_ttl": "5m",
        "visibility_timeout": "1m",
    }
    for given in ({}, options, {"pending": True, "id": clock.new_id()}):
        args = [["{}", "%(a)s", "{}", {"": []}]] * count
        returned = enqueue_many("test.job", args, **given)
        assert [_read(get(job).row) for job in returned] == [_read(job.row) for job in returned]


def test_a_batch_of_different_requests_is_stored_as_it_was_returned() -> None:
    now = clock.now("default")
    requests = [
        from_call("test.a", [], now=now),
        from_call("test.b", [None], now=now, queue="mail", priority=-1, tags=["x"], delay=5),
        from_call("test.a", [], now=now, expires_at="1h", retry={"max_attempts": 0}, id=clock.new_id()),
        from_call("test.a", ["\\"], now=now, pending=True, meta={"a": "'"}, timeout=7),
    ]
    returned = _enqueue(requests, now=now)
    assert [job.type for job in returned] == ["test.a", "test.b", "test.a", "test.a"]
    assert [_read(get(job).row) for job in returned] == [_read(job) for job in returned]


def test_many_of_one_id_are_one_job_or_refused() -> None:
    job_id = clock.new_id()
    first, second = enqueue_many("test.job", [[1], [1]], id=job_id)
    assert first == second
    assert Job.objects.count() == 1
    with pytest.raises(Duplicate):
        enqueue_many("test.job", [[1], [2]], id=job_id)
    with pytest.raises(Duplicate):
        enqueue_many("test.job", [[3], [4]], id=clock.new_id())
    assert Job.objects.count() == 1


def test_options_of_many_are_checked_once_and_for_all() -> None:
    for calls in ([], [[1], [2]]):
        with pytest.raises(TypeError, match="tiemout"):
            enqueue_many("test.job", calls, tiemout=5)  # type: ignore[call-arg]
        with pytest.raises(InvalidRequest, match="queue"):
            enqueue_many("test.job", calls, queue="No Good")
    with pytest.raises(InvalidRequest, match="args"):
        enqueue_many("test.job", [[1], "ab"])
    assert enqueue_many("test.job", []) == []
    assert not Job.objects.exists()


@pytest.mark.skipif(connection.vendor != "postgresql", reason="only PostgreSQL notifies")
@override_settings(OJS={"NOTIFY": True})
def test_each_commit_rings_once_for_each_queue() -> None:
    heard: list[str] = []

    def hear(notice: Any) -> None:
        heard.append(notice.payload)

    def rings() -> list[str]:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        told = sorted(heard)
        heard.clear()
        return told

    with connection.cursor() as cursor:
        cursor.execute("LISTEN django_ojs")
    connection.connection.add_notify_handler(hear)
    try:
        enqueue("test.job")
        assert rings() == ["q:default/test.job"]
        enqueue_many("test.job", [[n] for n in range(3)])
        assert rings() == ["q:default/test.job"]
        enqueue("test.job", delay="1h")
        assert rings() == []
        now = clock.now("default")
        _enqueue([from_call("test.job", [], now=now, queue=queue) for queue in "aba"], now=now)
        assert rings() == ["q:a/test.job", "q:b/test.job"]
        kinds = [from_call(f"test.{kind}", [], now=now) for kind in ("one", "two", "one")]
        _enqueue(kinds, now=now)
        assert rings() == ["q:default"]
        with pytest.raises(RuntimeError), transaction.atomic():
            enqueue("test.job")
            raise RuntimeError
        assert rings() == []
    finally:
        connection.connection.remove_notify_handler(hear)
        with connection.cursor() as cursor:
            cursor.execute("UNLISTEN django_ojs")


@pytest.mark.fault("F122")
def test_one_bad_job_keeps_all_out() -> None:
    with pytest.raises(InvalidRequest):
        enqueue_many("test.job", [[1], [float("nan")], [2]])
    assert not Job.objects.exists()


@pytest.mark.fault("F87")
def test_the_same_id_and_content_give_the_same_job() -> None:
    job_id = clock.new_id()
    first = enqueue("test.job", [1], id=job_id)
    again = enqueue("test.job", [1], id=str(job_id))
    assert again == first
    assert Job.objects.count() == 1
    assert Event.objects.filter(kind="job.enqueued").count() == 1


def test_the_same_request_twice_in_a_batch_is_one_job_and_one_event() -> None:
    now = clock.now("default")
    request = from_call("test.job", [1], now=now, id=clock.new_id())
    first, second = _enqueue([request, request], now=now)
    assert first == second
    assert Job.objects.count() == 1
    assert Event.objects.filter(kind="job.enqueued").count() == 1


def test_the_same_request_twice_in_one_microsecond_is_one_job_and_one_event() -> None:
    now = clock.now("default")
    request = from_call("test.job", [1], now=now, id=clock.new_id())
    other = from_call("test.job", [1], now=now, id=clock.new_id())
    (first,) = _enqueue([request], now=now)
    assert _enqueue([request, other], now=now)[0] == first
    assert Job.objects.count() == Event.objects.filter(kind="job.enqueued").count() == 2


def test_the_same_id_with_other_content_is_refused_and_nothing_is_written() -> None:
    job_id = clock.new_id()
    enqueue("test.job", [1], id=job_id)
    with pytest.raises(Duplicate) as caught, transaction.atomic():
        enqueue("test.job", [2], id=job_id)
    assert caught.value.details["existing_job_id"] == str(job_id)
    assert Job.objects.count() == 1


@pytest.mark.fault("F115", "F116")
@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"timeout": 0}, "timeout"),
        ({"timeout": 1.5}, "timeout"),
        ({"timeout": True}, "timeout"),
        ({"timeout": 60, "total_timeout": 30}, "total_timeout"),
        ({"priority": 101}, "priority"),
        ({"queue": "No Good"}, "queue"),
        ({"meta": []}, "meta"),
        ({"retry": {"max_attempts": -1}}, "retry.max_attempts"),
        ({"delay": 5, "scheduled_at": "5s"}, "delay"),
        ({"delay": 1.5}, "delay"),
        ({"id": "not-a-uuid"}, "id"),
        ({"tags": "x"}, "tags"),
    ],
)
def test_bad_options_name_the_field(options: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        enqueue("test.job", [], **options)
    assert caught.value.field == field
    assert not Job.objects.exists()


def test_an_unknown_option_is_a_type_error() -> None:
    with pytest.raises(TypeError) as refused:
        enqueue("test.job", [], tiemout=5)  # type: ignore[call-arg]
    assert str(refused.value) == "enqueue() has no option 'tiemout': did you mean 'timeout'?"


def test_where_no_option_is_near_all_are_named() -> None:
    """What another system calls ``countdown`` is ``delay`` here: nobody can guess that."""
    with pytest.raises(TypeError) as refused:
        enqueue("test.job", [], countdown=5)  # type: ignore[call-arg]
    listed = str(refused.value).removeprefix("enqueue() has no option 'countdown': the options are ")
    documented = api.enqueue.__doc__ or ""
    assert "pending" in listed
    for option in listed.split(", "):
        assert f"``{option}``" in documented, option


def test_an_id_of_ones_own_makes_repeating_harmless() -> None:
    """Python has no UUIDv7 before 3.14: the ids that we take can be made with us."""
    mine = new_id()
    assert (mine.version, new_id() > mine) == (7, True)
    first, again = (enqueue("test.job", [1], id=mine) for _ in range(2))
    assert first.id == again.id == mine
    assert Job.objects.count() == 1


def test_the_same_thing_is_one_job_with_nothing_stored_before() -> None:
    placed = datetime(2026, 1, 1, 12, tzinfo=UTC)
    for order in (1, 2, 1):
        enqueue("test.job", [order], id=api.uuid7(placed, "test.job", order))
    assert sorted(job.args[0] for job in Job.objects.all()) == [1, 2]
    with pytest.raises(Duplicate):
        enqueue("test.job", [3], id=api.uuid7(placed, "test.job", 1))


@pytest.mark.slow
@pytest.mark.fault("F109")
def test_json_that_one_database_would_refuse_is_refused_by_all() -> None:
    deep: object = 1
    for _ in range(31):
        deep = [deep]
    for bad in (["\x00"], ["\ud800"], [deep], [float("inf")], [10**5000]):
        with pytest.raises(InvalidRequest):
            enqueue("test.job", bad)
    deepest: object = 1
    for _ in range(29):
        deepest = [deepest]
    job = enqueue("test.job", [deepest])
    assert Job.objects.get(pk=job.id).args == [deepest]


def test_a_large_float_is_one_again() -> None:
    """PostgreSQL writes out its digits, which without a fraction would be read as an integer: as one
    that does not even equal the float.
    """
    job_id = new_id()
    numbers = [1e15, 1e16, -1.5e22, 1e308, 1e-300]
    enqueue("test.job", numbers, meta={"n": 1e17}, id=job_id)
    found = get(job_id)
    assert found.args == numbers
    assert [type(n) for n in found.args] == [float] * len(numbers)
    assert type(found.meta["n"]) is float


def test_a_delayed_job_is_scheduled() -> None:
    job = enqueue("test.job", delay="10s")
    assert job.state == "scheduled"
    assert job.scheduled_at is not None
    assert 9.9 < (job.scheduled_at - job.created_at).total_seconds() <= 10.0


@override_settings(
    OJS={
        "DEFAULTS": {"timeout": 100, "grace_period": "5s", "retry": {"max_attempts": 7}},
        "QUEUES": {"slow": {"timeout": "1h", "priority": -5}},
    }
)
def test_queue_settings_beat_the_defaults() -> None:
    plain, slow = enqueue("test.job"), enqueue("test.job", queue="slow")
    assert (plain.timeout_ms, plain.grace_period_ms, plain.max_attempts) == (100_000, 5000, 7)
    assert (slow.timeout_ms, slow.priority, slow.row.timeout_explicit) == (3_600_000, -5, False)


@pytest.mark.fault("F92")
@pytest.mark.parametrize("within", [True, False])
def test_a_hook_that_fails_after_the_commit_does_not_fail_the_enqueue(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, within: bool
) -> None:
    """The queue gets its row after the commit; by then the database may be gone."""

    def gone(names: list[str], using: str) -> None:
        raise OperationalError("server has gone away")

    monkeypatch.setattr(inserting, "queues", gone)
    with transaction.atomic() if within else nullcontext():
        job = enqueue("test.job", queue="first-use")
    assert get(job).state == "available"
    assert "server has gone away" in caplog.text
    assert not Queue.objects.filter(name="first-use").exists()
