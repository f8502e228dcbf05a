"""Unique jobs: what becomes of the second, whichever verb it comes by (OJS unique jobs)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from django_ojs import clock, hooks, signals
from django_ojs.api import (
    cancel,
    chain,
    enqueue,
    enqueue_many,
    get,
    get_workflow,
    group,
    new_id,
    resume_workflow,
    retry,
    step,
)
from django_ojs.clock import FrozenClock, using_clock
from django_ojs.conf import job_defaults
from django_ojs.domain.envelope import from_call
from django_ojs.domain.errors import Duplicate, InvalidRequest
from django_ojs.domain.job_record import JobRecord
from django_ojs.handlers.workflows import steps
from django_ojs.models import Event, Job, UniqueKey
from django_ojs.services import operate, totals, unique
from django_ojs.services.enqueue import enqueue as enqueue_each
from django_ojs.services.explain import explain
from django_ojs.services.promote import promote
from django_ojs.services.prune import prune
from django_ojs.services.reap import reap
from django_ojs.services.settle import Verdict
from django_ojs.signals import EventRecord
from django_ojs.store import invariants
from tests.apart import Apart
from tests.services.support import ack, elsewhere, fail, make, take
from tests.support import family, not_none

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("ojs_db")]
TYPE = "test.job"
ARGS = {"keys": ["type", "args"]}


@pytest.fixture
def frozen() -> Iterator[FrozenClock]:
    found = FrozenClock()
    with using_clock(found):
        yield found


def refused(call: Callable[[], object]) -> Duplicate:
    with pytest.raises(Duplicate) as caught:
        call()
    return caught.value


def states() -> dict[str, str]:
    return {str(job.pk): job.state for job in Job.objects.all()}


class TestConflicts:
    def test_an_equal_job_is_refused_and_named(self) -> None:
        first = enqueue(TYPE, [1], unique=ARGS)
        error = refused(lambda: enqueue(TYPE, [1], unique=ARGS))
        assert error.details == {
            "existing_job_id": str(first.id),
            "existing_job_state": "available",
            "unique_key": first.unique_key,
        }
        assert error.existing == get(first).row
        assert Job.objects.count() == 1
        assert not enqueue(TYPE, [2], unique=ARGS).deduplicated

    @pytest.mark.parametrize("word", ["ignore", "use_existing"])
    def test_an_equal_job_is_given_back(self, word: str) -> None:
        first = enqueue(TYPE, [1], unique={**ARGS, "on_conflict": word})
        again = enqueue(TYPE, [1], unique={**ARGS, "on_conflict": word})
        assert (again.id, again.deduplicated, first.deduplicated) == (first.id, True, False)
        assert Job.objects.count() == 1

    def test_an_equal_job_is_replaced(self) -> None:
        policy = {"keys": ["type"], "on_conflict": "replace"}
        first = enqueue(TYPE, [1], unique=policy)
        second = enqueue(TYPE, [2], unique=policy)
        assert states() == {str(first.id): "cancelled", str(second.id): "available"}
        (event,) = Event.objects.filter(kind="job.cancelled")
        assert event.data["cancelled_by"] == "unique"
        assert event.data["replaced_by"] == str(second.id)
        assert second.created_at <= not_none(get(first).finished_at)

    def test_a_running_job_is_replaced(self) -> None:
        policy = {"keys": ["type"], "on_conflict": "replace"}
        enqueue(TYPE, [1], unique=policy)
        (running,) = take()
        second = enqueue(TYPE, [2], unique=policy)
        assert states() == {str(running.id): "cancelled", str(second.id): "available"}
        assert ack(running)[0].verdict is Verdict.LOST

    def test_the_schedule_of_a_replaced_job_is_kept(self) -> None:
        policy = {"keys": ["type"], "on_conflict": "replace_except_schedule"}
        first = enqueue(TYPE, [1], unique=policy, delay="1h")
        second = enqueue(TYPE, [2], unique=policy)
        assert (second.state, second.scheduled_at) == ("scheduled", first.scheduled_at)
        assert get(second).scheduled_at == get(first).scheduled_at
        assert get(first).state == "cancelled"

    def test_a_job_that_waits_already_has_no_schedule_to_keep(self) -> None:
        policy = {"keys": ["type"], "on_conflict": "replace_except_schedule"}
        enqueue(TYPE, [1], unique=policy)
        assert enqueue(TYPE, [2], unique=policy, delay="1h").state == "scheduled"

    def test_every_equal_job_is_replaced(self) -> None:
        """Policies may differ: those of ``available`` jobs only let a running one be."""
        narrow = {"keys": ["type"], "states": ["available"]}
        enqueue(TYPE, [1], unique=narrow)
        (running,) = take()
        waiting = enqueue(TYPE, [2], unique=narrow)
        last = enqueue(TYPE, [3], unique={"keys": ["type"], "on_conflict": "replace"})
        assert states() == {
            str(running.id): "cancelled",
            str(waiting.id): "cancelled",
            str(last.id): "available",
        }

    def test_what_is_compared(self) -> None:
        whole = {"keys": ["type", "queue", "args", "meta"], "meta_keys": ["tenant"]}
        meta = {"tenant": "a", "trace": "1"}
        enqueue(TYPE, [1], unique=whole, meta=meta)
        refused(lambda: enqueue(TYPE, [1], unique=whole, meta={**meta, "trace": "2"}))
        enqueue(TYPE, [1], unique=whole, meta=meta, queue="other")
        enqueue(TYPE, [1], unique=whole, meta={"tenant": "b"})
        enqueue("test.other", [1], unique=whole, meta=meta)
        enqueue(TYPE, [1.5], unique=whole, meta=meta)
        refused(lambda: enqueue(TYPE, [1.0], unique=whole, meta=meta))

    def test_jobs_without_a_policy_do_not_count(self) -> None:
        enqueue(TYPE, [1])
        enqueue(TYPE, [1], unique=ARGS)
        enqueue(TYPE, [1])

    def test_unique_false_takes_no_part(self) -> None:
        enqueue(TYPE, [1], unique=True)
        assert enqueue(TYPE, [1], unique=False).unique_key is None
        assert "unique" not in enqueue(TYPE, [1], unique=False).row.json("extra")


class TestStatesAndPeriods:
    def test_an_ended_job_lets_the_next_one_in(self) -> None:
        enqueue(TYPE, [1], unique=ARGS)
        refused(lambda: enqueue(TYPE, [1], unique=ARGS))
        ack(*take())
        enqueue(TYPE, [1], unique=ARGS)

    def test_a_job_that_is_retried_counts(self) -> None:
        enqueue(TYPE, [1], unique=ARGS)
        fail(*take())
        assert refused(lambda: enqueue(TYPE, [1], unique=ARGS)).existing.state == "retryable"

    def test_only_the_named_states_count(self) -> None:
        policy = {**ARGS, "states": ["completed"]}
        enqueue(TYPE, [1], unique=policy)
        enqueue(TYPE, [1], unique=policy)
        ack(*take())
        assert refused(lambda: enqueue(TYPE, [1], unique=policy)).existing.state == "completed"

    def test_an_ended_job_is_remembered_behind_others(self) -> None:
        """The row of a key keeps the last job of each final state."""
        once = {**ARGS, "states": ["available", "completed"], "on_conflict": "ignore"}
        done = enqueue(TYPE, [1], unique=once)
        ack(*take())
        for _ in range(3):
            cancel(enqueue(TYPE, [1], unique=ARGS))
        assert enqueue(TYPE, [1], unique=once).id == done.id
        assert len(UniqueKey.objects.get().holders) == 2

    def test_a_period_begins_with_the_existing_job(self, frozen: FrozenClock) -> None:
        policy = {**ARGS, "period": "PT10S"}
        first = enqueue(TYPE, [1], unique=policy)
        frozen.advance(9)
        assert refused(lambda: enqueue(TYPE, [1], unique=policy)).existing.id == first.id
        frozen.advance(1)
        second = enqueue(TYPE, [1], unique=policy)
        frozen.advance(9)
        assert refused(lambda: enqueue(TYPE, [1], unique=policy)).existing.id == second.id

    def test_the_policy_of_the_new_job_decides(self, frozen: FrozenClock) -> None:
        enqueue(TYPE, [1], unique={**ARGS, "period": "PT1S"})
        frozen.advance(60)
        refused(lambda: enqueue(TYPE, [1], unique=ARGS))


class TestThrottle:
    def test_one_job_in_a_time(self, frozen: FrozenClock) -> None:
        first = enqueue(TYPE, [1], throttle="10m")
        assert enqueue(TYPE, [1], throttle="10m").id == first.id
        assert enqueue(TYPE, [2], throttle="10m").id != first.id
        ack(*take())
        frozen.advance(599)
        assert enqueue(TYPE, [1], throttle="10m").deduplicated
        frozen.advance(1)
        assert not enqueue(TYPE, [1], throttle="10m").deduplicated

    def test_a_cancelled_job_does_not_throttle(self) -> None:
        cancel(enqueue(TYPE, [1], throttle="10m"))
        assert not enqueue(TYPE, [1], throttle="10m").deduplicated

    def test_what_is_compared_can_be_said(self) -> None:
        first = enqueue(TYPE, [1], throttle="10m", unique={"keys": ["type"]})
        assert enqueue(TYPE, [2], throttle="10m", unique={"keys": ["type"]}).id == first.id


class TestDebounce:
    def test_each_call_puts_the_start_off(self, frozen: FrozenClock) -> None:
        first = enqueue(TYPE, [1], debounce="30s")
        assert (first.state, first.scheduled_at) == (
            "scheduled",
            frozen.now("") + timedelta(seconds=30),
        )
        frozen.advance(20)
        second = enqueue(TYPE, [1], debounce="30s")
        assert get(first).state == "cancelled"
        assert get(second).scheduled_at == frozen.now("") + timedelta(seconds=30)

    def test_no_longer_than_the_longest_wait(self, frozen: FrozenClock) -> None:
        began = frozen.now("")
        options: dict[str, Any] = {"debounce": {"wait": "30s", "max_wait": "45s"}}
        enqueue(TYPE, [1], **options)
        frozen.advance(20)
        assert enqueue(TYPE, [1], **options).scheduled_at == began + timedelta(seconds=45)
        frozen.advance(20)
        third = enqueue(TYPE, [1], **options)
        assert (third.state, third.scheduled_at) == ("scheduled", began + timedelta(seconds=45))
        frozen.advance(6)
        assert enqueue(TYPE, [1], **options).state == "available"

    @pytest.mark.parametrize(("attempt_ttl", "enqueue_ttl"), [(5, None), (5, 3), (None, 3)])
    def test_what_starts_at_once_has_to_start_in_time(
        self, frozen: FrozenClock, attempt_ttl: int | None, enqueue_ttl: int | None
    ) -> None:
        """It has become available, though it was to be put off."""
        options: dict[str, Any] = {"debounce": {"wait": "10s", "max_wait": "10s"}}
        limits: dict[str, Any] = {"attempt_ttl": attempt_ttl, "enqueue_ttl": enqueue_ttl}
        enqueue(TYPE, [1], **options)
        frozen.advance(11)
        promote()
        second = enqueue(TYPE, [1], **options, **limits)
        assert second.state == "available"
        first_end = min(one for one in (attempt_ttl, enqueue_ttl) if one is not None)
        assert get(second).deadline_at == frozen.now("") + timedelta(seconds=first_end)
        frozen.advance(first_end)
        assert dict(reap().counts) == {"enqueue_ttl": 1}
        assert get(second).state == "discarded"

    def test_a_kept_schedule_that_is_due_counts_as_available(self, frozen: FrozenClock) -> None:
        policy = {"keys": ["type"], "on_conflict": "replace_except_schedule"}
        limits: dict[str, Any] = {"unique": policy, "attempt_ttl": "5s"}
        enqueue(TYPE, [1], **limits, delay="10s")
        frozen.advance(11)
        second = enqueue(TYPE, [2], **limits, delay="1h")
        assert second.state == "available"
        assert get(second).deadline_at == frozen.now("") + timedelta(seconds=5)
        enqueue(TYPE, [1], **{**limits, "unique": {**policy, "key": "later"}}, delay="10s")
        third = enqueue(TYPE, [2], **{**limits, "unique": {**policy, "key": "later"}})
        assert (third.state, get(third).deadline_at) == ("scheduled", None)

    def test_a_running_job_goes_on(self, frozen: FrozenClock) -> None:
        first = enqueue(TYPE, [1], debounce="30s")
        frozen.advance(30)
        promote()
        (running,) = take()
        second = enqueue(TYPE, [1], debounce="30s")
        assert running.id == first.id
        assert states() == {str(first.id): "active", str(second.id): "scheduled"}


class TestManyAtOnce:
    def test_jobs_of_one_call_count_against_each_other(self) -> None:
        jobs = enqueue_many(TYPE, [[1], [2], [1]], unique={**ARGS, "on_conflict": "ignore"})
        assert [job.deduplicated for job in jobs] == [False, False, True]
        assert jobs[2].id == jobs[0].id
        assert Job.objects.count() == 2

    def test_a_refused_one_refuses_all(self) -> None:
        error = refused(lambda: enqueue_many(TYPE, [[1], [2], [1]], unique=ARGS))
        assert error.details["index"] == 2
        assert not Job.objects.exists()
        assert enqueue(TYPE, [1], unique=ARGS)

    def test_one_of_a_call_replaces_another(self) -> None:
        jobs = enqueue_many(TYPE, [[1], [2]], unique={"keys": ["type"], "on_conflict": "replace"})
        assert [job.state for job in jobs] == ["cancelled", "available"]
        assert states() == {str(jobs[0].id): "cancelled", str(jobs[1].id): "available"}

    def test_unique_and_other_jobs_in_one_call(self) -> None:
        now = clock.now("default")
        plain, one = from_call(TYPE, [1], now=now), from_call(TYPE, [1], now=now, unique=ARGS)
        other = from_call("test.other", [1], now=now, unique={"on_conflict": "ignore"})
        jobs = enqueue_each([plain, one, plain, other, other])
        assert [job.deduplicated for job in jobs] == [False, False, False, False, True]
        assert Job.objects.count() == 4

    def test_many_cost_few_statements(self) -> None:
        with CaptureQueriesContext(connection) as queries:
            enqueue_many(TYPE, [[number] for number in range(400)], unique=ARGS)
        assert len(queries) < 12
        with CaptureQueriesContext(connection) as queries:
            enqueue_many(TYPE, [[1], [2]], unique={**ARGS, "on_conflict": "ignore"})
        assert len(queries) < 10


class TestIds:
    def test_a_repeated_request_goes_before_the_policy(self) -> None:
        given = new_id()
        first = enqueue(TYPE, [1], unique=ARGS, id=given)
        again = enqueue(TYPE, [1], unique=ARGS, id=given)
        assert (again.id, again.deduplicated) == (given, True)
        cancel(first)
        enqueue(TYPE, [1], unique=ARGS)
        assert enqueue(TYPE, [1], unique=ARGS, id=given).state == "cancelled"

    def test_an_id_for_other_content_is_refused(self) -> None:
        given = new_id()
        enqueue(TYPE, [1], unique=ARGS, id=given)
        assert refused(lambda: enqueue(TYPE, [2], unique=ARGS, id=given)).existing is None

    def test_a_replacing_request_can_be_repeated(self) -> None:
        policy = {"keys": ["type"], "on_conflict": "replace"}
        enqueue(TYPE, [1], unique=policy)
        given = new_id()
        for _ in range(2):
            assert enqueue(TYPE, [2], unique=policy, id=given).state == "available"
        assert sorted(states().values()) == ["available", "cancelled"]


class TestTransactions:
    def test_a_refusal_leaves_the_callers_transaction_usable(self) -> None:
        enqueue(TYPE, [1], unique=ARGS)
        with transaction.atomic():
            make(job_type="test.before")
            refused(lambda: enqueue(TYPE, [1], unique=ARGS))
            make(job_type="test.after")
        assert set(Job.objects.values_list("type", flat=True)) == {TYPE, "test.before", "test.after"}

    def test_what_is_rolled_back_does_not_count(self) -> None:
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            enqueue(TYPE, [1], unique=ARGS)
            raise ZeroDivisionError
        enqueue(TYPE, [1], unique=ARGS)

    def test_a_replaced_job_lives_on_when_its_successor_is_rolled_back(self) -> None:
        policy = {"keys": ["type"], "on_conflict": "replace"}
        first = enqueue(TYPE, [1], unique=policy)
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            enqueue(TYPE, [2], unique=policy)
            raise ZeroDivisionError
        assert states() == {str(first.id): "available"}
        assert enqueue(TYPE, [3], unique={**policy, "on_conflict": "ignore"}).id == first.id

    @pytest.mark.skipif(family() == "sqlite", reason="has one writer")
    def test_an_equal_job_waits_for_the_first_transaction(self) -> None:
        policy = {**ARGS, "on_conflict": "ignore"}
        with transaction.atomic():
            first = enqueue(TYPE, [1], unique=policy)
            second = Apart(lambda: enqueue(TYPE, [1], unique=policy).id)
            assert second.goes_as_far_as_it_can(), "it waits for this one"
            # Other keys do not wait.
            with elsewhere(lambda: enqueue(TYPE, [2], unique=policy)):
                pass
        assert second.outcome() == first.id

    def test_events_tell_of_what_was_not_stored(self) -> None:
        heard: list[EventRecord] = []

        def hear(event: EventRecord, **_: Any) -> None:
            heard.append(event)

        signals.job_deduplicated.connect(hear)
        try:
            first = enqueue(TYPE, [1], throttle="1h")
            enqueue(TYPE, [1], throttle="1h")
        finally:
            signals.job_deduplicated.disconnect(hear)
        (event,) = heard
        assert event.data["job_id"] == str(first.id)
        assert event.data["on_conflict"] == "ignore"
        assert event.data["unique_key"] == first.unique_key


class TestNewLives:
    def dead(self, **options: Any) -> JobRecord:
        enqueue(TYPE, [1], retry={"max_attempts": 1}, **options)
        (job,) = take()
        fail(job)
        return get(job)

    def test_a_retry_that_would_collide_says_with_what(self) -> None:
        job = self.dead(unique=ARGS)
        other = enqueue(TYPE, [1], unique=ARGS)
        assert refused(lambda: retry(job)).existing.id == other.id
        assert get(job).state == "discarded"
        assert retry(job, allow_duplicate=True).state == "available"

    def test_a_retried_job_holds_its_key_again(self) -> None:
        job = self.dead(unique=ARGS)
        for _ in range(2):
            cancel(enqueue(TYPE, [1], unique=ARGS))
        retry(job)
        assert refused(lambda: enqueue(TYPE, [1], unique=ARGS)).existing.id == job.id

    def test_of_equal_jobs_one_is_retried(self) -> None:
        first, second = (self.dead(unique=ARGS) for _ in range(2))
        error = refused(lambda: operate.retry_dead([first.id, second.id]))
        assert error.existing.id == min(first.id, second.id)
        assert set(states().values()) == {"discarded"}
        assert {job.state for job in operate.retry_dead([first.id])} == {"available"}

    def test_an_ended_job_does_not_stand_in_the_way(self) -> None:
        job = self.dead(throttle="1h")
        assert retry(job).state == "available"

    def test_a_requeued_job_is_neither_swallowed_nor_does_it_replace(self) -> None:
        job = self.dead(unique={"keys": ["type"], "on_conflict": "replace"})
        other = enqueue(TYPE, [2], unique={"keys": ["type"]})
        error = refused(lambda: operate.requeue(job.id, [3], queue="default", meta={}))
        assert error.existing.id == other.id
        cancel(other)
        assert operate.requeue(job.id, [3], queue="default", meta={}).state == "available"


class TestWorkflows:
    def test_only_the_first_step_may_be_unique(self) -> None:
        with pytest.raises(InvalidRequest, match=r"steps\[1\].unique: is for the first step"):
            chain(step(TYPE), step(TYPE, unique=True)).enqueue()
        flow = chain(step(TYPE, unique=True), step("test.next")).enqueue()
        refused(lambda: chain(step(TYPE, unique=True), step("test.next")).enqueue())
        ack(*take())
        assert get_workflow(flow.id).state == "running"
        chain(step(TYPE, unique=True)).enqueue()

    @pytest.mark.parametrize("unique", [{"args_keys": ["order"]}, {"meta_keys": ["tenant"]}])
    def test_what_a_type_declares_is_not_asked_of_its_steps(
        self, monkeypatch: pytest.MonkeyPatch, unique: dict[str, Any]
    ) -> None:
        """A fan has its arguments beside its call, and steps have no keys."""
        monkeypatch.setitem(hooks._job_types, TYPE, job_defaults({"unique": unique}, TYPE))
        flow = group(steps(TYPE, [[{"order": 1}], [{"order": 1}]]), step(TYPE)).enqueue()
        jobs = Job.objects.filter(workflow_id=flow.id)
        assert [job.unique_key for job in jobs] == [None] * 3
        assert enqueue(TYPE, [{"order": 1}], meta={"tenant": "a"}).unique_key is not None
        with pytest.raises(InvalidRequest, match=r"jobs\[0\]\.unique: is for the first step"):
            group(steps(TYPE, [[1]], unique=True)).enqueue()

    def test_the_first_step_cannot_be_left_out(self) -> None:
        with pytest.raises(InvalidRequest, match="on_conflict: must not be ignore"):
            chain(step(TYPE, throttle="1h")).enqueue()

    def test_a_running_member_is_not_replaced(self) -> None:
        policy = {"keys": ["type"], "on_conflict": "replace"}
        chain(step(TYPE, unique=policy), step("test.next")).enqueue()
        (running,) = take()
        error = refused(lambda: enqueue(TYPE, [2], unique=policy))
        assert "runs as part of the workflow" in error.message
        assert error.existing.id == running.id
        assert get(running).state == "active"

    def test_a_resumed_workflow_collides_like_a_retry(self) -> None:
        flow = chain(step(TYPE, unique=True, retry={"max_attempts": 1})).enqueue()
        fail(*take())
        other = enqueue(TYPE, unique=True)
        assert refused(lambda: resume_workflow(flow.id)).existing.id == other.id
        cancel(other)
        resume_workflow(flow.id)
        refused(lambda: enqueue(TYPE, unique=True))


class TestPruning:
    def test_keys_are_forgotten_with_their_jobs(self) -> None:
        job = enqueue(TYPE, [1], unique=ARGS)
        gone = enqueue(TYPE, [2], unique=ARGS)
        Job.objects.filter(pk=gone.id).delete()
        old = clock.now("default") - timedelta(days=2)
        UniqueKey.objects.update(used_at=old)
        assert prune().counts["unique_keys"] == 1
        row = UniqueKey.objects.get()
        assert row.key == job.unique_key
        assert row.used_at > old
        refused(lambda: enqueue(TYPE, [1], unique=ARGS))

    def test_used_keys_are_not_looked_at(self) -> None:
        gone = enqueue(TYPE, [2], unique=ARGS)
        Job.objects.filter(pk=gone.id).delete()
        assert prune().counts["unique_keys"] == 0
        assert UniqueKey.objects.exists()


class TestLooks:
    def test_a_discarded_job_says_what_a_retry_would_meet(self) -> None:
        enqueue(TYPE, [1], unique=ARGS, retry={"max_attempts": 1})
        (job,) = take()
        fail(job)
        assert not any("equal" in reason for reason in explain(job.id).reasons)
        other = enqueue(TYPE, [1], unique=ARGS)
        assert any(str(other.id) in reason for reason in explain(job.id).reasons)

    def test_equal_jobs_are_found_by_their_key(self) -> None:
        first = enqueue(TYPE, [1], unique=ARGS)
        ack(*take())
        second = enqueue(TYPE, [1], unique=ARGS)
        found = [job.id for job in unique.other_holders(second.row)]
        assert found == [first.id]
        assert unique.other_holders(enqueue(TYPE, [1]).row) == []

    def test_what_was_deduplicated_is_counted_where_it_is_stored(self) -> None:
        with override_settings(OJS={"EVENTS": "all"}):
            enqueue(TYPE, [1], throttle="1h")
            enqueue(TYPE, [1], throttle="1h")
        now, around = clock.now("default"), timedelta(minutes=5)
        increments = totals.of_minute(now - around, now + around, [], using="default")
        key = totals.Key(totals.Metric.DEDUPLICATED, "default", TYPE, "ignore")
        assert increments[key].count == 1


class TestInvariant:
    def found(self) -> list[str]:
        now = clock.now("default")
        every = invariants.check(now=now, slack=timedelta(minutes=1), using="default")
        return [one for finding in every if finding.name == "I15" for one in finding.examples]

    def test_a_job_that_lost_its_key_is_found(self) -> None:
        first, second = (enqueue(TYPE, [number], unique=ARGS) for number in range(2))
        assert self.found() == []
        UniqueKey.objects.filter(pk=first.unique_key).update(holders=[])
        assert self.found() == [str(first.id)]
        UniqueKey.objects.filter(pk=second.unique_key).delete()
        assert len(self.found()) == 2
        for job in (first, second):
            cancel(job)
        assert self.found() == []
