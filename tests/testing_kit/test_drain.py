"""``drain()`` runs jobs as a worker does, in this process and connection."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.contrib.auth.models import Group
from django.db import transaction

import django_ojs
from django_ojs import InvalidRequest, JobContext, batch, chain, group, job
from django_ojs.models import Attempt, Job
from django_ojs.services.workflows import results
from django_ojs.signals import job_completed
from django_ojs.testing import Drained, JobClock, drain, enqueued, fail_next
from tests.support import not_none

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("database")]
ONCE = {"max_attempts": 1}


@pytest.fixture(autouse=True)
def no_groups(database: str) -> Any:
    yield
    if database == "committed":
        Group.objects.all().delete()


def send(address: str) -> None:
    """What handlers call and tests replace."""
    raise AssertionError("not replaced")


def test_a_handler_runs_here_and_its_rows_are_there() -> None:
    @job("kit.group")
    def make(name: str) -> int:
        return Group.objects.create(name=name).pk

    one = make.enqueue("staff")
    assert drain() == Drained(completed=1)
    done = django_ojs.get(one)
    assert done.result == Group.objects.get(name="staff").pk
    assert (done.attempt, done.state) == (1, "completed")
    assert Attempt.objects.get(job_id=one.id).worker_id == "test"
    assert drain() == Drained()


def test_what_a_test_replaces_is_replaced() -> None:
    @job("kit.send")
    def mail(address: str) -> None:
        send(address)

    mail.enqueue("a@example.org")
    with mock.patch(f"{__name__}.send") as sent:
        drain()
    sent.assert_called_once_with("a@example.org")


def test_durable_blocks_and_callbacks_work_as_in_a_worker() -> None:
    seen: list[str] = []

    @job("kit.commits")
    def commits() -> None:
        with transaction.atomic(durable=True):
            Group.objects.create(name="durable")
            transaction.on_commit(lambda: seen.append("kept"))
        with pytest.raises(RuntimeError, match="taken back"), transaction.atomic():
            transaction.on_commit(lambda: seen.append("lost"))
            raise RuntimeError("taken back")

    commits.enqueue()
    transaction.on_commit(lambda: seen.append("of the test"))
    seen.clear()
    assert drain() == Drained(completed=1)
    assert seen == ["kept"]
    assert Group.objects.filter(name="durable").exists()


def test_a_callback_that_fails_fails_the_attempt() -> None:
    def refuse() -> None:
        raise ValueError("the queue of mails is full")

    @job("kit.callback", retry=ONCE)
    def callback() -> None:
        with transaction.atomic():
            transaction.on_commit(refuse)

    one = callback.enqueue()
    assert drain() == Drained(failed=1, discarded=1)
    assert not_none(django_ojs.get(one).error)["message"] == "the queue of mails is full"


def test_what_a_failing_handler_has_written_stays() -> None:
    @job("kit.half", retry=ONCE)
    def half(ctx: JobContext) -> None:
        Group.objects.create(name="half")
        with transaction.atomic():
            Group.objects.create(name="never")
            ctx.progress(0.5)
            ctx.checkpoint({"at": 1})
            raise ValueError("in the middle")

    one = half.enqueue()
    assert drain() == Drained(failed=1, discarded=1)
    assert list(Group.objects.values_list("name", flat=True)) == ["half"]
    done = django_ojs.get(one)
    assert (done.checkpoint, done.progress) == ({"at": 1}, 0.5)
    error = not_none(done.error)
    assert error["type"] == "builtins.ValueError"
    assert not [line for line in error["backtrace"] if "django_ojs/testing" in line]


def test_an_error_of_the_database_is_one_of_the_job() -> None:
    @job("kit.twice", retry=ONCE)
    def twice() -> None:
        Group.objects.create(pk=1, name="a")
        Group.objects.bulk_create([Group(pk=1, name="b")])

    one = twice.enqueue()
    assert drain() == Drained(failed=1, discarded=1)
    assert "IntegrityError" in not_none(django_ojs.get(one).error)["type"]
    assert Group.objects.count() in (0, 1)


def test_jobs_of_jobs_and_workflows_go_on() -> None:
    @job("kit.part")
    def part(number: int) -> int:
        return number * 10

    @job("kit.whole")
    def whole(ctx: JobContext) -> int:
        part.enqueue(9)
        return sum(ctx.parent_results)

    flow = batch(part.steps([(1,), (2,), (3,)]), on_success=whole.step()).enqueue()
    assert drain() == Drained(completed=5)
    assert django_ojs.get_workflow(flow).state == "completed"
    assert Job.objects.get(type="kit.whole").result == 60
    chain(part.step(1), part.step(2)).enqueue()
    assert drain() == Drained(completed=2)


@pytest.mark.parametrize(("size", "fits"), [(300, True), (400, False)])
@pytest.mark.parametrize("letter", ["x", "\N{FIRE}"])
def test_the_object_of_a_nested_workflow_is_as_large_as_a_worker_carries(
    size: int, fits: bool, letter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many members it has, and however many nested workflows are read together."""
    monkeypatch.setattr(results, "MOST_BYTES", 250)
    monkeypatch.setattr(results, "LARGEST", 1000)
    monkeypatch.setattr(results, "_MOST_INNER", 2)

    @job("kit.large")
    def large() -> str:
        return letter * (size // len(letter.encode()))

    @job("kit.reads", retry={"max_attempts": 1})
    def reads(ctx: JobContext) -> int:
        return sum(len(each) for each in ctx.iter_parent_results())

    nested = [group(*(large.step() for _ in range(3))) for _ in range(2)]
    chain(*nested, reads.step()).enqueue()
    drain()
    found = Job.objects.get(type="kit.reads")
    if fits:
        assert found.result == 6
    else:
        assert "at index 0 have more than 1000 bytes together" in not_none(found.error)["message"]


def test_a_member_adds_to_its_workflow() -> None:
    @job("kit.leaf")
    def leaf() -> str:
        return "leaf"

    @job("kit.root")
    def root(ctx: JobContext) -> None:
        assert ctx.workflow is not None
        ctx.workflow.add(leaf.step())

    @job("kit.count")
    def count(ctx: JobContext) -> int:
        return len(ctx.parent_results)

    batch([root.step()], on_complete=count.step()).enqueue()
    assert drain() == Drained(completed=3)
    assert Job.objects.get(type="kit.count").result == 2


def test_coroutines_use_this_connection() -> None:
    @job("kit.async")
    async def work(ctx: JobContext, name: str) -> int:
        ctx.checkpoint("begun")
        made = await Group.objects.acreate(name=name)
        await sync_to_async(lambda: ctx.progress(1.0))()
        return made.pk

    one = work.enqueue("async")
    assert drain(raise_failures=True) == Drained(completed=1)
    assert django_ojs.get(one).result == Group.objects.get(name="async").pk
    assert django_ojs.get(one).checkpoint == "begun"


def test_only_these_queues_and_the_first_first() -> None:
    seen: list[str] = []

    @job("kit.where")
    def where(name: str) -> None:
        seen.append(name)

    for name in ("a", "b", "c"):
        where.using(queue=name).enqueue(name)
    assert drain("b") == Drained(completed=1)
    assert drain(["c", "a"]) == Drained(completed=2)
    assert seen == ["b", "c", "a"]


def test_retries_wait_unless_all_are_due_now() -> None:
    @job("kit.flaky", retry={"max_attempts": 3})
    def flaky(ctx: JobContext) -> int:
        if ctx.attempt < 3:
            raise ValueError("not yet")
        return ctx.attempt

    one = flaky.enqueue()
    later = flaky.using(delay="1h").enqueue()
    assert drain() == Drained(failed=1, retryable=1)
    assert drain() == Drained()
    assert drain(with_scheduled=True) == Drained(completed=2, failed=3, retryable=3)
    assert [django_ojs.get(known).attempt for known in (one, later)] == [3, 3]


def test_failures_on_demand_and_raised() -> None:
    @job("kit.card", retry={"max_attempts": 2})
    def card() -> str:
        return "paid"

    class Declined(Exception):
        pass

    one = card.enqueue()
    fail_next(card, Declined("no money"))
    with pytest.raises(Declined, match="no money"):
        drain(raise_failures=True)
    assert django_ojs.get(one).state == "retryable"
    assert drain(with_scheduled=True) == Drained(completed=1)


def test_decisions_are_no_failures() -> None:
    @job("kit.decides")
    def decides() -> None:
        raise django_ojs.Discard("nothing to do")

    one = decides.enqueue()
    assert drain(raise_failures=True) == Drained(failed=1, discarded=1)
    assert not_none(django_ojs.get(one).error)["message"] == "nothing to do"


def test_a_job_that_is_cancelled_by_its_handler() -> None:
    seen: list[str] = []

    @job("kit.suicide")
    def gives_up(ctx: JobContext) -> None:
        django_ojs.cancel(ctx.id)
        try:
            ctx.check()
        except django_ojs.SoftStop as stop:
            seen.append(stop.reason)
            raise

    one = gives_up.enqueue()
    assert drain() == Drained(failed=1, cancelled=1)
    assert seen == ["cancelled"]
    assert django_ojs.get(one).state == "cancelled"


@pytest.mark.parametrize("how", ["cancelled", "total_timeout"])
def test_a_stop_inside_a_transaction_of_the_handler(how: str) -> None:
    """What has ended the attempt is taken back with it."""

    @job("kit.inside", timeout="1m", total_timeout="2m", retry=ONCE)
    def inside(ctx: JobContext) -> None:
        with transaction.atomic():
            if how == "cancelled":
                django_ojs.cancel(ctx.id)
            else:
                frozen.freeze(frozen.now + timedelta(minutes=3))
            ctx.check()

    with JobClock() as frozen:
        frozen.freeze()
        one = inside.enqueue()
        assert drain() == Drained(failed=1, discarded=1)
        kind = not_none(django_ojs.get(one).error)["type"]
    assert kind == ("total_timeout" if how == "total_timeout" else "django_ojs.SoftStop")


def test_in_an_asynchronous_test() -> None:
    @job("kit.async")
    async def work(ctx: JobContext) -> int:
        await ctx.acheckpoint("begun")
        return (await Group.objects.acreate(name="async")).pk

    async def a_test() -> Drained:
        await work.aenqueue()
        assert await sync_to_async(enqueued)(work)
        return await sync_to_async(drain)(raise_failures=True)

    assert async_to_sync(a_test)() == Drained(completed=1)
    assert Group.objects.filter(name="async").exists()


def test_a_drain_in_a_drain_is_refused() -> None:
    @job("kit.nested", retry=ONCE)
    def nested() -> None:
        drain()

    one = nested.enqueue()
    assert drain() == Drained(failed=1, discarded=1)
    assert "drain() runs" in not_none(django_ojs.get(one).error)["message"]


def test_a_drain_inside_atomic_is_refused() -> None:
    with transaction.atomic(), pytest.raises(RuntimeError, match="inside atomic"):
        drain()


def test_a_job_without_end_is_noticed() -> None:
    @job("kit.again")
    def again() -> None:
        again.enqueue()

    again.enqueue()
    with pytest.raises(RuntimeError, match="has run 5 attempts"):
        drain(max_jobs=5)
    assert Job.objects.filter(state="available", attempt=0).count() == 1
    assert Job.objects.filter(state="completed").count() == 5


def test_what_is_meant_for_the_run_of_tests_ends_it() -> None:
    @job("kit.fails-the-test")
    def stops(how: str) -> None:
        if how == "pytest":
            pytest.fail("seen")
        raise KeyboardInterrupt

    for how, kind in (("pytest", pytest.fail.Exception), ("keys", KeyboardInterrupt)):
        stops.enqueue(how)
        with pytest.raises(kind):
            drain()
    assert drain() == Drained()


def test_types_without_a_handler_stay() -> None:
    one = django_ojs.enqueue("kit.elsewhere")
    assert drain() == Drained()
    assert django_ojs.get(one).state == "available"


def test_signals_are_sent(database: str) -> None:
    seen: list[Any] = []

    def note(**named: Any) -> None:
        seen.append(named["event"].data["job_id"])

    @job("kit.signal")
    def signal() -> None: ...

    job_completed.connect(note)
    try:
        one = signal.enqueue()
        drain()
    finally:
        job_completed.disconnect(note)
    assert seen == [str(one.id)]


def test_middleware_and_the_current_job() -> None:
    seen: list[Any] = []

    def around(context: JobContext, call_next: Any) -> Any:
        seen.append(context.id)
        return call_next(context)

    @job("kit.current")
    def current() -> None:
        known = django_ojs.current()
        assert known is not None
        seen.append(known.id)

    one = current.enqueue()
    django_ojs.execution_middleware.add(around, "kit")
    try:
        assert drain() == Drained(completed=1)
    finally:
        django_ojs.execution_middleware.remove("kit")
    assert seen == [str(one.id)] * 2
    assert django_ojs.current() is None


def test_an_enqueue_is_one_query(database: str, django_assert_num_queries: Any, settings: Any) -> None:
    settings.OJS = {"EVENTS": []}

    @job("kit.one")
    def one() -> None: ...

    if database == "committed":
        one.enqueue()  # the first job of a queue makes its row, after the commit
    with django_assert_num_queries(1):
        one.enqueue()


@pytest.mark.parametrize("queue", ["No Queue", ["mail", "No Queue"], [3]])
def test_what_is_no_name_of_a_queue_is_refused(queue: Any) -> None:
    """It would have nothing to run, and a test would not notice."""
    with pytest.raises(InvalidRequest, match="queue: must be of a-z"):
        drain(queue)
    assert drain("mail") == Drained()
