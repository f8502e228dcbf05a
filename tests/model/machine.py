"""The state machine: what may happen, in any order.

The bundle keeps every lease that there ever was, so stale ones come back all the time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    initialize,
    multiple,
    rule,
)

from django_ojs import clock
from django_ojs.domain.job import JobRow
from django_ojs.domain.leases import Lease
from django_ojs.services import leases, operate, queues, workers
from django_ojs.services.promote import promote
from tests.model import choices
from tests.model.history import Step
from tests.model.lives import Life
from tests.model.steps import LOOP, Steps, allowed, known, until


class Machine(Steps):
    """Everything that clients, workers, operators, reapers and clocks do."""

    leases: Bundle[JobRow] = Bundle("leases")

    @initialize(
        target=leases,
        several=st.lists(choices.OPTIONS, min_size=1, max_size=3),
        loss=choices.BEGINNINGS,
        late=choices.LATE,
        report=choices.REPORTS,
    )
    def begin(self, several: list[dict[str, Any]], loss: str, late: str, report: str) -> Any:
        """Some jobs, a reaper that has run, and a first lease that is lost."""
        self._scan(LOOP)
        for options in [choices.FIRST, *several]:
            self._enqueue(options)
        first = self._hand_out(choices.QUEUES, 2, "w1", True, None)
        self.holds()
        return multiple(*first.values, *self._exchange(0, loss, "w2", late, report).values)

    @rule(options=choices.OPTIONS, twice=st.booleans())
    def enqueue(self, options: dict[str, Any], twice: bool) -> None:
        """One more job; ``twice`` by a client that sends its id again, and then for another job."""
        self.step = Step("enqueue")
        if twice:
            self._enqueue_twice({name: options[name] for name in ("queue", "priority", "policy")})
        else:
            self._enqueue(options)

    @rule(
        target=leases,
        both=st.sampled_from([("q1", "q2"), ("q2", "q1"), ("q1",), ("q2",)]),
        limit=st.integers(1, 3),
        worker=st.sampled_from(choices.WORKERS),
        beats=st.booleans(),
        asked=st.sampled_from([None, None, 9000]),
    )
    def claim(
        self, both: Sequence[str], limit: int, worker: str, beats: bool, asked: int | None
    ) -> Any:
        """A worker fetches."""
        return self._hand_out(both, limit, worker, beats, asked)

    @rule(
        target=leases,
        pick=choices.PICKS,
        worker=st.sampled_from(choices.WORKERS),
        late=choices.LATE,
        report=choices.REPORTS,
    )
    def take_over(self, pick: int, worker: str, late: str, report: str) -> Any:
        """A lease is lost by time, its job goes to somebody else, then the old holder is heard."""
        return self._exchange(pick, "time", worker, late, report)

    @rule(
        target=leases,
        pick=choices.PICKS,
        loss=choices.LOSSES,
        worker=st.sampled_from(choices.WORKERS),
        late=choices.LATE,
        report=choices.REPORTS,
    )
    def give_up(self, pick: int, loss: str, worker: str, late: str, report: str) -> Any:
        """The same, by what its holder or an operator does."""
        return self._exchange(pick, loss, worker, late, report)

    def _exchange(self, pick: int, loss: str, worker: str, late: str, report: str) -> Any:
        job = self._running(pick)
        if job is None:
            return self._hand_out(choices.QUEUES, 3, worker, True, None)
        record = self.history.before.jobs[job.id]
        self._lose(job, record, loss)
        self.holds()
        self.history.hold("I9", job.lease is None, lambda: f"{job.id} is still held")
        if job.state == "discarded":
            self._operate(job.id, "retry", True, True)
            self.holds()
        self.step = Step("promote")
        assert promote() == self.world.promote(), "model: promoted"
        self.holds()
        claimed = self._hand_out(choices.QUEUES, 3, worker, True, None)
        self.holds()
        if late == "settle":
            self._settle([self._said(record, report, {}, True)], [record])
        elif late in choices.EVIDENCES:
            self._report(record, late, report, {})
        else:
            self._send([record], late)
        return claimed

    def _lose(self, job: Life, record: JobRow, loss: str) -> None:
        lease = job.lease
        if loss == "cancel":
            self._operate(job.id, "cancel", False, False)
        elif loss == "time":
            # The first scan may find that there was an outage, and give more time: once. Each time that
            # the clock was set back the end is two hours further off.
            for most in (1_000_000, *[14] * 8):
                if job.lease == lease:
                    self.step = Step("time for a lease to end")
                    self._advance(min(most, until(self.world.now, job.ends())))
                    self._advance(self.world.grain.total_seconds())
                    self._scan(LOOP)
                    self.holds()
        else:
            if loss == "fail, late":
                self._advance(12)
            self._settle([self._said(record, loss.partition(",")[0], {}, False)], [record])
        if job.state == "retryable":
            self.holds()
            self.step = Step("time for a retry")
            self._advance(until(self.world.now, [job.scheduled]))
            if loss == "fail, cancel":
                self._operate(job.id, "cancel", False, False)

    @rule(
        pick=choices.PICKS,
        report=choices.REPORTS,
        failure=choices.FAILURES,
        whole=st.booleans(),
        again=st.booleans(),
    )
    def finish(self, pick: int, report: str, failure: dict[str, Any], whole: bool, again: bool) -> None:
        """The holder of a lease reports; and again, since it has heard no answer."""
        if job := self._running(pick):
            record = self.history.before.jobs[job.id]
            reports = [self._said(record, report, failure, whole)]
            self._settle(reports, [record])
            if again:
                self.holds()
                self._settle(reports, [record])

    @rule(
        records=st.lists(leases, min_size=1, max_size=3),
        report=choices.REPORTS,
        failure=choices.FAILURES,
        whole=st.booleans(),
    )
    def finish_any(
        self, records: list[JobRow], report: str, failure: dict[str, Any], whole: bool
    ) -> None:
        """Those who had a lease once report, several at a time."""
        self._settle([self._said(one, report, failure, whole) for one in records], records)

    @rule(
        record=leases,
        lease_claim=choices.EVIDENCE,
        report=choices.REPORTS,
        failure=choices.FAILURES,
    )
    def report(self, record: JobRow, lease_claim: str, report: str, failure: dict[str, Any]) -> None:
        """One report over HTTP, with the evidence that its sender has (decision L1)."""
        self._report(record, lease_claim, report, failure)

    @rule(seconds=st.sampled_from([5, 15]), rounds=st.integers(1, 4))
    def live(self, seconds: int, rounds: int) -> None:
        """Workers that beat for what they have, and a reaper that scans: nothing is stalled (I10)."""
        for _ in range(rounds):
            self._advance(seconds)
            held = [Lease(job.id, known(job.lease)) for job in self.world.active()]
            self._sign("live", held, partial(leases.beat, held), None)
            self.step = Step("live")
            self._scan(LOOP, "between beats")
            self.holds()

    @rule(records=st.lists(leases, min_size=1, max_size=3), what=choices.SIGNS)
    def sign(self, records: list[JobRow], what: str) -> None:
        """Beats, progress and checkpoints, under any leases: those that hold are renewed."""
        self._send(records, what)

    @rule(pick=choices.PICKS, verb=choices.VERBS, clear=st.booleans(), strict=st.booleans())
    def operate(self, pick: int, verb: str, clear: bool, strict: bool) -> None:
        """Somebody cancels, retries, discards, activates, deletes; what is gone too."""
        self._operate(self.ever[pick % len(self.ever)], verb, clear, strict)

    def _operate(self, job_id: UUID, verb: str, clear: bool, strict: bool) -> None:
        world, job = self.world, self.world.jobs.get(job_id)
        state = job.state if job else "gone"
        self.step = Step(f"{verb} of what is {state}")
        calls: dict[str, Callable[[], object]] = {
            "cancel": partial(operate.cancel, [job_id], strict=strict),
            "retry": partial(operate.retry_dead, [job_id], expires_at=None if clear else False),
            "discard": partial(operate.discard, [job_id]),
            "activate": partial(operate.activate, [job_id]),
            "purge": partial(operate.purge, [job_id]),
        }
        done = allowed(calls[verb])
        if job is None:
            assert not done, f"model: {self.step.name}"
            return
        world.faults["F58"] += verb == "cancel" and state == "active"
        due = job.scheduled is not None and job.scheduled <= world.now
        world.faults["F59"] += verb == "cancel" and state in ("scheduled", "retryable") and due
        predicted = {
            "cancel": lambda: world.cancel(job) or not strict,
            "retry": lambda: world.retry(job, clear=clear),
            "discard": lambda: world.discard(job),
            "activate": lambda: world.activate(job),
            "purge": lambda: self._purged(job),
        }[verb]()
        if verb == "retry" and predicted:
            self.step.retried.add(job_id)
        final = state in ("completed", "cancelled", "discarded")
        if final and not predicted:
            self.step.stale = True
            self.history.hold("I2", not done, lambda: self.step.name)
        self._agree(done, predicted)

    def _purged(self, job: Life) -> bool:
        if job.state not in ("completed", "cancelled", "discarded"):
            return False
        del self.world.jobs[job.id]
        self.step.purged.add(job.id)
        return True

    @rule(pick=choices.PICKS, minutes=st.sampled_from([-1, 0.1, 1]))
    def reschedule(self, pick: int, minutes: float) -> None:
        """Somebody moves the start of what waits for its time, or of something else."""
        if job := self._any(pick):
            when = self.world.now + timedelta(minutes=minutes)
            self.step = Step(f"reschedule of what is {job.state}")
            done = allowed(partial(operate.reschedule, [job.id], when))
            self._agree(done, self.world.reschedule(job, when))

    @rule(record=leases, seconds=st.sampled_from([5, 60]), leased=st.booleans())
    def extend(self, record: JobRow, seconds: int, leased: bool) -> None:
        """More time for a running attempt: by its holder, or by somebody else."""
        lease = Lease(record.id, known(record.lease_id)) if leased else None
        job = self.world.jobs.get(record.id)
        stale = leased and (job is None or job.lease != record.lease_id)
        self.step = Step("extend", stale=stale)
        call = partial(operate.extend_timeout, [record.id], seconds * 1000, lease=lease)
        predicted = job is not None and self.world.extend(
            job, seconds * 1000, record.lease_id if leased else None
        )
        self._agree(allowed(call), predicted)

    @rule(pick=choices.PICKS, priority=st.sampled_from([0, 5]), total=st.sampled_from([None, 60]))
    def edit(self, pick: int, priority: int, total: int | None) -> None:
        """Somebody changes what waits."""
        if job := self._any(pick):
            self.step = Step(f"edit of what is {job.state}")
            total_ms = None if total is None else total * 1000
            changes = {"priority": priority, "total_timeout": total}
            done = allowed(partial(operate.edit, [job.id], changes))
            self._agree(done, self.world.edit(job, priority=priority, total=total_ms))
            self.slack_known = False

    @rule(name=st.sampled_from(choices.WORKERS), what=st.sampled_from(["start", "beat", "stop"]))
    def worker(self, name: str, what: str) -> None:
        """Worker processes come, beat and go, also two of one name: that moves no job."""
        self.step = Step(f"a worker's {what}", stale=True)
        known_as = self.workers.setdefault(name, [])
        if what == "start" or not known_as:
            known_as.append(workers.WorkerInfo(name, clock.new_id()))
            workers.register(known_as[-1])
        elif what == "stop":
            workers.deregister(known_as[0].id, None, incarnation=known_as[0].incarnation)
        for info in known_as:
            order = workers.report(info, phase="running", running=0)
            assert order == (None if info is known_as[-1] else "replaced"), f"{info}: {order}"
        self.world.heard[name] = self.world.now
        self.world.faults["F17"] += len(known_as) > 1

    @rule(queue=st.sampled_from(choices.QUEUES), stop=st.booleans())
    def pause_or_resume(self, queue: str, stop: bool) -> None:
        """Somebody pauses a queue, or resumes it; no job changes (decision T11)."""
        self.step = Step("pause" if stop else "resume", stale=True)
        changed = (queues.pause if stop else queues.resume)([queue])
        assert changed == ([queue] if (queue in self.world.paused) is not stop else [])
        (self.world.paused.add if stop else self.world.paused.discard)(queue)

    @rule(seconds=choices.SECONDS, look=choices.LOOKS, dice=choices.DICE)
    def time(self, seconds: float, look: str, dice: float) -> None:
        """Time passes; a reaper looks that loops, one that is started now and then, or none; and there
        is other luck with the retries to come (I16).
        """
        self.step = Step(f"time, {look} looks", stale=look == "nobody")
        self.world.dice = dice
        self._advance(seconds)
        if look == "promotion":
            assert promote() == self.world.promote(), "model: promoted"
        elif look != "nobody":
            self._scan(LOOP if look == "loop" else None)

    @rule(early=st.booleans(), look=st.booleans())
    def edge(self, early: bool, look: bool) -> None:
        """The very moment at which something falls due, or the one before it."""
        self.step = Step("edge")
        ends = [end for job in self.world.jobs.values() for end in [*job.ends(), job.scheduled]]
        ahead = until(self.world.now, ends)
        # Never back: with nothing ahead, or less than a step of it, no time passes.
        self._advance(max(0.0, ahead - 0.001) if early else ahead)
        if look:
            self._scan(LOOP)

    @rule(seconds=st.sampled_from([70, 200, 7200, -7200]))
    def outage(self, seconds: int) -> None:
        """Workers beat; then no scan and no beat for longer than any heartbeat timeout, or the clock of
        the database is set; then a scan: no job of a living worker counts as stalled (decision T9).
        """
        self.live(1, 1)
        self.step = Step(f"outage of {seconds} s")
        living = self.world.active()
        self._advance(seconds)
        self.set_back = self.set_back or seconds < 0
        if living:
            self.world.faults["F75" if seconds < 1000 and not self.set_back else "F100"] += 1
        self._scan(LOOP, "after an outage")
