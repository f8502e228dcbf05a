"""Bugs that other queues have had, planted into django_ojs: a test that misses one of them is no test.

``with MUTANTS["no-fence"]():`` plants one for a block, :func:`apply` for the rest of the process,
:func:`apply_from_environment` the ones that ``OJS_TEST_MUTANT`` names (separated by commas), for
processes that a test starts: to be called when Django is ready. Each replaces the smallest function
that a real bug of its kind would be in.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

from django_ojs.domain import lifecycle, silence
from django_ojs.domain.job import NO_LEASE, JobRow, Transition
from django_ojs.domain.leases import Lease
from django_ojs.domain.states import State
from django_ojs.models import Job, Workflow
from django_ojs.services import operate, promote, reap, reaper, settle, sightings
from django_ojs.services.settle import Outcome, Report, SettleResult, Verdict
from django_ojs.services.workflows import tree
from django_ojs.store import candidates, claiming, leases, locking, pairs, sources, transitions
from django_ojs.store.contention import in_transaction
from django_ojs.worker.prefork import child, leased, pool, zygote
from django_ojs.worker.supervisor import assignment
from django_ojs.worker.threads import fetcher
from tests.support import alive

ENVIRONMENT = "OJS_TEST_MUTANT"
Mutant = Callable[[], AbstractContextManager[None]]
MUTANTS: dict[str, Mutant] = {}
"""The planted bugs by name."""

_applied = ExitStack()


def apply(name: str) -> None:
    """Plant a bug into this process, for good."""
    _applied.enter_context(MUTANTS[name]())


def apply_from_environment() -> list[str]:
    """Plant what the environment names; returns the names."""
    names = [name for name in os.environ.get(ENVIRONMENT, "").split(",") if name]
    for name in names:
        apply(name)
    return names


def _mutant(name: str) -> Callable[[Callable[[], Iterator[None]]], Mutant]:
    def register(plant: Callable[[], Iterator[None]]) -> Mutant:
        MUTANTS[name] = contextmanager(plant)
        return MUTANTS[name]

    return register


@contextmanager
def _replaced(*replacements: tuple[Any, str, Callable[[Any], Any]]) -> Iterator[None]:
    """Functions of modules, each made anew from the real one."""
    before = [(place, name, getattr(place, name)) for place, name, _ in replacements]
    try:
        for place, name, make in replacements:
            setattr(place, name, make(getattr(place, name)))
        yield
    finally:
        for place, name, real in before:
            setattr(place, name, real)


@_mutant("no-fence")
def _no_fence() -> Iterator[None]:
    """A report counts for its job, whatever the lease and whatever the state."""
    with _reports(_any_state):
        yield


@_mutant("state-only-fence")
def _state_only_fence() -> Iterator[None]:
    """A report counts if its job is active, whatever the lease."""
    with _reports(lambda outcome, using: None):
        yield


Otherwise = Callable[[Outcome, str], SettleResult | None]


def _reports(otherwise: Otherwise) -> AbstractContextManager[None]:
    """Reports of active jobs count under any lease; of the others as ``otherwise`` says."""

    def settling(real: Any) -> Any:
        def _settle(outcomes: Sequence[Outcome], using: str, **_: bool) -> list[SettleResult | None]:
            found = locking.jobs((outcome.lease.job_id for outcome in outcomes), using=using)
            answers: list[SettleResult | None] = []
            for outcome in outcomes:
                job = found.get(outcome.lease.job_id)
                if job is not None and job.lease_id is not None:
                    lease = Lease(job.id, job.lease_id)
                    outcome = outcome._replace(lease=lease, principal=job.lease_principal)
                    answers += real([outcome], using)
                else:
                    forced = None if job is None else otherwise(outcome, using)
                    answers += [forced] if forced else real([outcome], using)
            return answers

        return _settle

    def reporting(real: Any) -> Any:
        @in_transaction
        def _report(job_id: UUID, lease_claim: Any, kind: Report, *rest: Any, using: str = "") -> Any:
            result, failure, _ = rest
            lease = Lease(job_id, lease_claim.lease_id or uuid4())
            settled = settle._settle([Outcome(lease, kind, result, failure)], using)[0]
            if settled.verdict in (Verdict.SETTLED, Verdict.REPLAYED):
                return settled
            return real(job_id, lease_claim, kind, *rest, using=using)

        return _report

    return _replaced(
        (settle, "_is_plain", lambda real: lambda outcome, tried_at: False),
        (settle, "_settle", settling),
        (settle, "_report", reporting),
    )


def _any_state(outcome: Outcome, using: str) -> SettleResult | None:
    """``UPDATE job SET state = 'completed' WHERE id = ...``."""
    if outcome.report is not Report.ACK:
        return None
    job_id = outcome.lease.job_id
    _force(job_id, State.COMPLETED, using)
    return SettleResult(Verdict.SETTLED, locking.jobs([job_id], using=using)[job_id])


def _force(job_id: UUID, state: State, using: str) -> None:
    changes = {**NO_LEASE, "deadline_at": None, "state": str(state)}
    Job.objects.using(using).filter(pk=job_id).update(**changes)


@_mutant("unfenced-beat")
def _unfenced_beat() -> Iterator[None]:
    """A beat, progress or a checkpoint counts for its job, whatever the lease, and is told so; so is
    who only asks.
    """

    def writing(real: Any) -> Any:
        def write(held: Sequence[Lease], *rest: Any, using: str, **named: Any) -> Any:
            running = Job.objects.using(using).filter(state=State.ACTIVE, pk__in={h[0] for h in held})
            current = dict(running.values_list("pk", "lease_id"))
            theirs = [Lease(h.job_id, current.get(h.job_id) or h.lease_id) for h in held]
            asked = dict(held)
            kept = real(theirs, *rest, using=using, **named)
            return [one._replace(lease_id=asked[one.job_id]) for one in kept]

        return write

    with _replaced((leases, "write", writing), (leases, "find", writing)):
        yield


def _deciding(change: Callable[[JobRow], JobRow]) -> AbstractContextManager[None]:
    """Whether a failure is retried is decided as if the job were another one."""

    def deciding(real: Any) -> Any:
        return lambda job, *rest, **named: real(change(job), *rest, **named)

    return _replaced((lifecycle, "decide_retry", deciding))


@_mutant("no-look-ahead")
def _no_look_ahead() -> Iterator[None]:
    """A retry is planned even if it cannot end within the total timeout."""
    with _deciding(lambda job: job._replace(total_timeout_ms=None)):
        yield


@_mutant("one-attempt-too-many")
def _one_attempt_too_many() -> Iterator[None]:
    """``attempt <= max_attempts`` where ``<`` is meant."""
    with _deciding(lambda job: job._replace(max_attempts=max(1, job.max_attempts) + 1)):
        yield


@_mutant("no-catch-up")
def _no_catch_up() -> Iterator[None]:
    """Time in which nobody could be heard counts as silence."""
    with _replaced((sightings, "spans_of", _none), (reaper, "spans_of", _none)):
        yield


def _none(real: Any) -> Any:
    return lambda run: []


@_mutant("judge-after-wait")
def _judge_after_wait() -> Iterator[None]:
    """A silence is judged by the time at which the reaper got its turn."""

    def uncounted(real: Any) -> Any:
        return lambda self, start, now: silence.unheard(self.spans, start, now)

    with _replaced((silence.Hearing, "uncounted", uncounted)):
        yield


@_mutant("beats-not-put-aside")
def _beats_not_put_aside() -> Iterator[None]:
    """The beat of a row that somebody holds is dropped."""
    with _replaced((leases, "put_aside", lambda real: lambda beats, **named: None)):
        yield


@_mutant("unguarded-cancel")
def _unguarded_cancel() -> Iterator[None]:
    """``UPDATE job SET state = 'cancelled' WHERE id = ...``."""

    def making(real: Any) -> Any:
        def cancelling(**named: Any) -> Any:
            decide = real(**named)

            def forced(job: JobRow, now: datetime) -> Transition | None:
                if job.state in (State.COMPLETED, State.DISCARDED):
                    _force(job.id, State.CANCELLED, "default")
                    return None
                done: Transition | None = decide(job, now)
                return done

            return forced

        return cancelling

    with _replaced((operate, "cancelling", making)):
        yield


@_mutant("unguarded-reap")
def _unguarded_reap() -> Iterator[None]:
    """The reaper reads, and later writes by the key alone, as if nobody else had written."""

    def reading(real: Any) -> Any:
        def _decide(ids: Any, *rest: Any) -> Any:
            with _replaced((transitions, "_write", _unguarded)):
                return real(ids, *rest)

        return _decide

    def transacting(real: Any) -> Any:
        def atomically(using: str, work: Any) -> Any:
            if not isinstance(work, partial) or work.func is not reap._decide:
                return real(using, work)
            stale = locking.jobs(work.args[0], skip_locked=True, brief=True, using=using)
            with _replaced((locking, "jobs", partial(_as_read_before, stale))):
                return real(using, work)

        return atomically

    with _replaced((reap, "_decide", reading), (reap, "atomically", transacting)):
        yield


def _as_read_before(stale: Any, real: Any) -> Any:
    def jobs(ids: Any, **named: Any) -> Any:
        return dict(stale) if named.get("brief") else real(ids, **named)

    return jobs


def _unguarded(real: Any) -> Any:
    def _write(group: Sequence[Transition], shape: Any, known: Sequence[str], using: str) -> None:
        for move in group:
            found = locking.jobs([move.job.id], using=using)[move.job.id]
            row = SimpleNamespace(job=found, changes=move.changes)
            real([row], (found.state, *shape[1:]), known, using)

    return _write


@_mutant("claim-ignores-pause")
def _claim_ignores_pause() -> Iterator[None]:
    """A claim does not look whether its queue is paused."""
    nothing = "(SELECT '' AS name, 1 = 1 AS paused) z"
    none = f"(SELECT name FROM {nothing})"
    with _replaced(
        (claiming, "_states", lambda real: lambda rows: real([])),
        (candidates, "QUEUES", lambda real: nothing),
        (candidates, "PAUSED", lambda real: none),
        (pairs, "PAUSED", lambda real: none),
    ):
        yield


@_mutant("claim-out-of-order")
def _claim_out_of_order() -> Iterator[None]:
    """A claim takes the newest of the jobs, whatever their priority."""
    places = (sources, candidates, pairs)
    with _replaced(*((place, "ORDER", lambda real: "j.enqueued_at DESC, j.id") for place in places)):
        yield


@_mutant("late-deadlines")
def _late_deadlines() -> Iterator[None]:
    """Running attempts get five seconds more than their limits say."""

    def starting(real: Any) -> Any:
        def starting_deadline(*rest: Any, **named: Any) -> Any:
            return real(*rest, **named) + timedelta(seconds=5)

        return starting_deadline

    with _replaced((lifecycle, "starting_deadline", starting)):
        yield


@_mutant("announced-claim-ignores-pause")
def _announced_claim_ignores_pause() -> Iterator[None]:
    """A worker that goes to a queue because it was notified does not look whether it is paused."""

    def claiming_at_once(real: Any) -> Any:
        def claim(where: Any, **named: Any) -> Any:
            if named["probe"]:
                return real(where, **named)
            with MUTANTS["claim-ignores-pause"]():
                return real(where, **named)

        return claim

    with _replaced((fetcher, "claim", claiming_at_once)):
        yield


@_mutant("single-attempts-ahead")
def _single_attempts_ahead() -> Iterator[None]:
    """Jobs that have one attempt only are claimed ahead like any other, and queued in executors."""

    def claiming_ahead(real: Any) -> Any:
        return lambda where, **named: real(where, **{**named, "immediate": None})

    def having_room(real: Any) -> Any:
        def room(self: Any, slot: child.Slot, held: int, running: leased.LeasedJob) -> Any:
            job = running.job._replace(max_attempts=2)
            return real(self, slot, held, replace(running, job=job))

        return room

    with _replaced(
        (fetcher, "claim", claiming_ahead), (assignment.Assignment, "_has_room", having_room)
    ):
        yield


@_mutant("promotes-expired")
def _promotes_expired() -> Iterator[None]:
    """What falls due becomes available, whether it has expired meanwhile or not."""

    def deciding(real: Any) -> Any:
        return SimpleNamespace(promote=real.promote, overdue=lambda job, **named: None)

    with _replaced((promote, "lifecycle", deciding)):
        yield


@_mutant("unread-last-frames")
def _unread_last_frames() -> Iterator[None]:
    """What an executor has written is not read any more once it has ended."""

    def reading(real: Any) -> Any:
        def read(self: pool.Pool, one: child.Child, mask: int) -> None:
            if one.pid and not alive(one.pid):
                self._unregister(one.channel)
                self._begin_close(one)
            else:
                real(self, one, mask)

        return read

    with _replaced(
        (pool.Pool, "_read_channel", reading),
        (pool.Pool, "_drain", lambda real: lambda self, child: None),
    ):
        yield


@_mutant("kill-spares-descendants")
def _kill_spares_descendants() -> Iterator[None]:
    """A kill reaches the executor alone. What is below it in other sessions is killed only where its
    monitor is still there to notice that the executor has ended.
    """

    def killing(real: Any) -> Any:
        def kill(self: pool.Pool, one: child.Child) -> None:
            one.phase = child.Phase.DYING
            with suppress(ProcessLookupError):
                os.kill(one.pid, signal.SIGKILL)

        return kill

    with _replaced(
        (pool.Pool, "kill", killing),
        (zygote.ForkServer, "sweep", lambda real: lambda self, dead: None),
    ):
        yield


@_mutant("callbacks-again")
def _callbacks_again() -> Iterator[None]:
    """A workflow does not remember that its callbacks were fired: their own ends fire them again."""

    def firing(real: Any) -> Any:
        def _fire(self: tree.Tree, workflow: Workflow) -> None:
            again = Job.objects.using(self.using).filter(workflow_id=workflow.id, workflow_step__lt=0)
            real(self, workflow)
            workflow.callbacks_fired = again.count() > 1

        return _fire

    with _replaced((tree.Tree, "_fire", firing)):
        yield


@_mutant("unlocked-workflow")
def _unlocked_workflow() -> Iterator[None]:
    """The counters of a workflow are read without a lock, and written as they were computed."""

    def locking_none(real: Any) -> Any:
        def lock_roots(roots: Any, using: str, **_: Any) -> list[Workflow]:
            rows = Workflow.objects.using(using).filter(pk__in=set(roots))
            return list(rows.order_by("pk"))

        return lock_roots

    with _replaced((tree, "lock_roots", locking_none)):
        yield
