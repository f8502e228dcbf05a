"""What clients and operators do, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.test import override_settings
from django.utils.translation import gettext_lazy

from django_ojs import api, clock
from django_ojs.api import activate, cancel, edit, enqueue, extend_timeout, get, reschedule, retry
from django_ojs.clock import FrozenClock
from django_ojs.domain.errors import Conflict, InvalidRequest, InvalidTransition, LeaseLost, NotFound
from django_ojs.domain.ids import uuid7
from django_ojs.domain.job import Actor
from django_ojs.models import Attempt, Event, Job
from django_ojs.services import leases, operate, promote, prune, workers
from django_ojs.services.leases import Progress
from django_ojs.services.workers import WorkerInfo
from django_ojs.store import invariants

from .support import ack, fail, held, make, now_stored, take

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("ojs_db")]


@pytest.mark.fault("F58")
def test_cancel_ends_waiting_and_running_jobs_at_once() -> None:
    waiting, running = make(2)
    take(1)
    for job in (waiting, running):
        assert cancel(job, reason="no longer needed", by="ada").state == "cancelled"
    assert [a.outcome for a in Attempt.objects.all()] == ["cancelled"]
    data = Event.objects.filter(kind="job.cancelled").first().data  # type: ignore[union-attr]
    assert (data["reason"], data["actor"], data["source"]) == ("no longer needed", "ada", "api")


def test_cancelling_what_is_over_changes_nothing_or_is_refused_when_strict() -> None:
    make()
    (job,) = take()
    ack(job)
    assert cancel(job).state == "completed"
    with pytest.raises(InvalidTransition):
        operate.cancel([job.id], strict=True)


def test_a_batch_with_one_bad_id_changes_nothing() -> None:
    (job,) = make()
    with pytest.raises(NotFound):
        operate.cancel([job.id, clock.new_id()])
    assert now_stored(job).state == "available"


def test_pending_jobs_wait_for_activation() -> None:
    job = enqueue("test.job", pending=True)
    later = enqueue("test.job", pending=True, delay=60)
    assert (activate(job).state, activate(later).state) == ("available", "scheduled")
    with pytest.raises(InvalidTransition):
        activate(job)


def test_manual_retry_starts_a_new_life(frozen: FrozenClock) -> None:
    make(retry={"max_attempts": 1}, total_timeout=60)
    (first,) = take()
    frozen.advance(30)
    fail(first)
    frozen.advance(20)
    again = retry(first.id)
    assert (again.state, again.attempt, again.error, again.row.lease_seq) == ("available", 0, None, 1)
    assert len(again.errors) == 1
    assert again.created_at == first.created_at
    assert again.deadline_at == frozen.time + timedelta(seconds=60)
    with pytest.raises(InvalidTransition):
        retry(first.id)


def test_an_expiry_in_the_past_must_be_replaced(frozen: FrozenClock) -> None:
    job = enqueue("test.job", expires_at="5s")
    frozen.advance(6)
    from django_ojs.services.reap import reap

    reap()
    with pytest.raises(Conflict, match="expires_at"):
        retry(job)
    assert get(job).state == "discarded"
    assert retry(job, expires_at=None).expires_at is None


def test_reschedule_moves_the_start(frozen: FrozenClock) -> None:
    job = enqueue("test.job", delay=60)
    moved = reschedule(job, timedelta(seconds=5))
    assert moved.scheduled_at == frozen.time + timedelta(seconds=5)
    assert reschedule(job, timedelta(0)).state == "available"


def test_extension_needs_a_running_job_and_room() -> None:
    (job,) = make(total_timeout=10, timeout=10)
    with pytest.raises(InvalidTransition):
        extend_timeout(job, 5)
    (running,) = take()
    with pytest.raises(Conflict, match="total"):
        extend_timeout(running, 5)
    with pytest.raises(LeaseLost):
        operate.extend_timeout([job.id], 1000, lease=held(running)._replace(lease_id=clock.new_lease()))


@pytest.mark.every_database
def test_an_extension_says_what_was_granted(frozen: FrozenClock) -> None:
    make(timeout=60, total_timeout=80)
    (job,) = take()
    start = frozen.time
    frozen.advance(1)
    made = extend_timeout(job, "10s")
    assert (made.extended_by_ms, made.job.extended_ms) == (10_000, 10_000)
    assert made.soft_deadline_at == start + timedelta(seconds=70)
    made = extend_timeout(job, "1h")
    assert (made.extended_by_ms, made.job.extended_ms) == (10_000, 20_000)
    assert made.soft_deadline_at == made.deadline_at == start + timedelta(seconds=80)
    assert now_stored(job) == made.job
    with pytest.raises(Conflict, match="total"):
        extend_timeout(job, 1)


@pytest.mark.every_database
def test_no_extension_when_the_time_is_up(frozen: FrozenClock) -> None:
    """Nobody has ended the attempt yet, which changes nothing."""
    make(timeout=2, grace_period=1)
    (job,) = take()
    frozen.advance(3)
    with pytest.raises(Conflict, match="time of the attempt is up"):
        extend_timeout(job, 60)
    assert now_stored(job).extended_ms == 0


def test_promotion_is_by_time(frozen: FrozenClock) -> None:
    enqueue("test.job", [0], delay=10)
    enqueue("test.job", [1], delay=5)
    assert promote.promote() == 0
    frozen.advance(5)
    assert promote.promote() == 1
    frozen.advance(5)
    assert promote.promote() == 1
    assert [job.json("args")[0] for job in take(5)] == [1, 0]


def test_progress_and_checkpoints_need_the_lease_and_count_as_beats(frozen: FrozenClock) -> None:
    make()
    (job,) = take()
    frozen.advance(7)
    assert len(leases.progress([Progress(held(job), 1.7, "half", '{"n":1}')])) == 1
    assert leases.checkpoint(held(job), '{"at":10}')
    stored = now_stored(job)
    assert (stored.progress, stored.progress_message) == (1.0, "half")
    assert (stored.json("progress_data"), stored.json("checkpoint")) == ({"n": 1}, {"at": 10})
    assert stored.checkpoint_seq == 1
    assert stored.heartbeat_at == frozen.time
    stale = held(job)._replace(lease_id=clock.new_lease())
    assert leases.progress([Progress(stale, 0.1)]) == []
    assert not leases.checkpoint(stale, "{}")
    assert now_stored(job) == stored


def test_progress_renews_a_visibility_lease(frozen: FrozenClock) -> None:
    make()
    (job,) = take(visibility_ms=3000, beats=False)
    frozen.advance(2)
    leases.progress([Progress(held(job), 0.5)])
    assert now_stored(job).lease_expires_at == frozen.time + timedelta(seconds=3)
    assert now_stored(job).heartbeat_armed


def test_long_messages_are_stored_whole() -> None:
    make(2)
    jobs = take(2)
    leases.progress([Progress(held(job), 0.5, "ü" * 500) for job in jobs])
    assert {now_stored(job).progress_message for job in jobs} == {"ü" * 500}


def test_a_replaced_worker_does_not_announce_the_end_of_its_successor() -> None:
    old, new = WorkerInfo("w", clock.new_lease()), WorkerInfo("w", clock.new_lease())
    workers.register(old)
    workers.register(new)
    workers.deregister(old.id, None, incarnation=old.incarnation)
    assert not Event.objects.filter(kind="worker.stopped").exists()
    workers.deregister(new.id, None, incarnation=new.incarnation)
    assert Event.objects.filter(kind="worker.stopped").count() == 1


def test_a_second_worker_of_the_same_id_replaces_the_first() -> None:
    one = WorkerInfo("w", clock.new_lease())
    two = WorkerInfo("w", clock.new_lease())
    workers.register(one)
    assert workers.report(one, phase="running", running=0) is None
    workers.register(two)
    assert workers.report(one, phase="running", running=0) == "replaced"
    assert workers.report(two, phase="running", running=0) is None


def test_prune_keeps_what_retention_keeps(frozen: FrozenClock) -> None:
    make(3)
    done = take(1)
    ack(*done)
    frozen.advance(6 * 86_400)
    young = take(1)
    ack(*young)
    frozen.advance(2 * 86_400)
    assert prune.prune(dry_run=True).counts["completed"] == 1
    assert prune.prune().counts["completed"] == 1
    assert not Job.objects.filter(pk=done[0].id).exists()
    assert not Attempt.objects.filter(job_id=done[0].id).exists()
    assert Job.objects.count() == 2


class TestInvariants:
    """``ojs check`` finds what is broken, and nothing else."""

    def _broken(self) -> set[str]:
        found = invariants.check(now=clock.now("default"), slack=timedelta(seconds=5), using="default")
        return {finding.name for finding in found}

    def test_ordinary_life_breaks_nothing(self, frozen: FrozenClock) -> None:
        make(6, retry={"max_attempts": 2})
        jobs = take(5)
        ack(jobs[0])
        fail(jobs[1])
        operate.cancel([jobs[2].id])
        from .support import release

        release(jobs[3])
        assert self._broken() == set()

    def test_damage_is_found(self) -> None:
        make(4)
        jobs = take(3)
        ack(jobs[0])
        Job.objects.filter(pk=jobs[0].id).update(deadline_at=clock.now("default"))
        Job.objects.filter(pk=jobs[1].id).update(attempt=9)
        Job.objects.filter(pk=jobs[2].id).update(lease_seq=7)
        Attempt.objects.filter(job_id=jobs[0].id).update(outcome="failed")
        Event.objects.filter(kind="job.completed").delete()
        assert self._broken() == {"I3", "I5", "I7", "I17", "I21"}


class TestEdit:
    def test_a_waiting_job_changes_and_its_deadline_follows(self, frozen: FrozenClock) -> None:
        job = make(enqueue_ttl="1h")[0]
        edited = operate.edit([job.id], {"priority": 7, "queue": "q2", "enqueue_ttl": 5})[0]
        assert (edited.priority, edited.queue) == (7, "q2")
        assert edited.deadline_at == job.created_at + timedelta(seconds=5)
        assert now_stored(job) == edited
        assert take(queues=["default"]) == []
        assert [claimed.id for claimed in take(queues=["q2"])] == [job.id]

    def test_limits_are_checked_together(self, frozen: FrozenClock) -> None:
        job = now_stored(make(timeout="1h")[0])
        with pytest.raises(InvalidRequest):
            operate.edit([job.id], {"total_timeout": 1})
        assert now_stored(job) == job

    def test_a_running_job_stays_as_it_is(self, frozen: FrozenClock) -> None:
        job = make()[0]
        take()
        with pytest.raises(InvalidTransition):
            operate.edit([job.id], {"priority": 1})


class TestPurge:
    def test_a_finished_job_goes_with_its_attempts_and_the_event_stays(self) -> None:
        job = make()[0]
        ack(*take())
        operate.purge([job.id, job.id], actor=Actor("admin", "ada", "gdpr"))
        assert not Job.objects.exists()
        assert not Attempt.objects.exists()
        told = Event.objects.get(kind="job.purged").data
        assert (told["job_id"], told["actor"], told["previous_state"]) == (
            str(job.id),
            "ada",
            "completed",
        )

    def test_all_or_none(self) -> None:
        done = make()[0]
        ack(*take())
        waiting = make()[0]
        with pytest.raises(Conflict):
            operate.purge([done.id, waiting.id])
        assert Job.objects.count() == 2
        with pytest.raises(NotFound):
            operate.purge([uuid7(1, 1)])


@override_settings(OJS={"NOTIFY": True})
def test_a_job_that_moves_is_announced_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    from django_ojs.services import commit

    told: list[tuple[str, str]] = []

    def payloads(places: set[tuple[str, str]]) -> list[str]:
        told.extend(places)
        return []

    (job,) = make()
    monkeypatch.setattr(commit, "payloads", payloads)
    operate.edit([job.id], {"queue": "other"}, actor=Actor("api"))
    assert {*told} == {("other", "test.job")}


def test_a_requeued_job_has_the_defaults_of_now_and_the_limits_of_then() -> None:
    with override_settings(OJS={"DEFAULTS": {"timeout": 600}}):
        (default,) = make()
        limited = enqueue("test.job", timeout=7)
    for job in (default, limited):
        cancel(job)
    with override_settings(OJS={"DEFAULTS": {"timeout": 5}}):
        new = [operate.requeue(job.id, [], queue="default", meta={}) for job in (default, limited)]
    assert [(job.timeout_ms, job.timeout_explicit) for job in new] == [(5000, False), (7000, True)]


OPERATIONS: dict[str, tuple[Callable[..., Any], str]] = {
    "cancel": (cancel, "available"),
    "edit": (lambda job, **who: edit(job, timeout=5, **who), "available"),
    "extend_timeout": (lambda job, by: extend_timeout(job, 5, actor=by), "active"),
    "reschedule": (lambda job, by: reschedule(job, timedelta(hours=1), by=by), "scheduled"),
    "retry": (retry, "discarded"),
}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("by", [SimpleNamespace(username="ada"), 7, "a\x00b", "\udcff"])
def test_who_did_it_must_be_text(name: str, by: Any) -> None:
    """Such as the user of a request, in place of the user's name."""
    operation, state = OPERATIONS[name]
    job = enqueue("test.job", retry={"max_attempts": 1}, delay="1m" if state == "scheduled" else None)
    if state in ("active", "discarded"):
        (taken,) = take()
        fail(taken) if state == "discarded" else None
    before = now_stored(job)
    field = "actor" if name == "extend_timeout" else "by"
    with pytest.raises(InvalidRequest, match=f"^{field}: must "):
        operation(job, by=by)
    assert now_stored(job) == before
    assert before.state == state


def test_a_reason_must_be_text() -> None:
    job = enqueue("test.job")
    flow = api.chain(api.step("test.job")).enqueue()
    why: Any = gettext_lazy("wrong")
    for refused in (
        lambda: cancel(job, reason=why),
        lambda: api.cancel_workflow(flow, reason=why),
        lambda: api.resume_workflow(flow, reason=why),
    ):
        with pytest.raises(InvalidRequest, match=r"^reason: must be text, not __proxy__: write str"):
            refused()
    assert get(job).state == "available"


@pytest.mark.parametrize(
    ("when", "rule"),
    [
        (None, "must be an RFC 3339 time"),
        (5, "must be an RFC 3339 time"),
        ("soon", "must be an RFC 3339 time with a zone, whole seconds"),
        (datetime(2026, 1, 1), "must have a time zone"),
        (datetime.max.replace(tzinfo=UTC), "must be after 1970"),
        (timedelta.max, "must not be more than ten years"),
    ],
)
def test_a_time_that_is_none_names_its_parameter(when: Any, rule: str) -> None:
    later = enqueue("test.job", delay=60)
    make(retry={"max_attempts": 1})
    (taken,) = take()
    fail(taken)
    with pytest.raises(InvalidRequest, match=f"^when: {rule}"):
        reschedule(later, when)
    if when is not None:
        with pytest.raises(InvalidRequest, match=f"^expires_at: {rule}"):
            retry(taken.id, expires_at=when)
    assert get(later).scheduled_at == later.scheduled_at
    assert get(taken.id).state == "discarded"


def test_a_time_may_be_a_duration_from_now(frozen: FrozenClock) -> None:
    later = enqueue("test.job", delay=60)
    assert reschedule(later, "5m").scheduled_at == frozen.time + timedelta(minutes=5)
    assert reschedule(later, timedelta(seconds=-5)).state == "available"
