"""All jobs as the model knows them, one decision after the other: claims, reports, scans, verbs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from tests.model.lives import SERVER_ENDED, TERMINAL, WAITING, Ended, Life, ms

STILL_ALIVE = timedelta(seconds=30)
OUTAGE_GRACE = timedelta(seconds=15)


class Said(NamedTuple):
    """A report: what it says, of which attempt; ``known`` are the deadline and the progress that its
    reporter was given with the lease.
    """

    job: UUID
    lease: UUID | None
    report: str
    error: str = "test.Error"
    retryable: bool = True
    directive: str | None = None
    after: int | None = None
    known: tuple[datetime | None, float | None] | None = None
    worker: str | None = None
    attempt: int | None = None


class World:
    """The predicted state of everything.

    ``grain`` is how much later than said a stalled job may be found: SQLite reads milliseconds.
    """

    def __init__(self, now: datetime, grain: timedelta) -> None:
        self.now = now
        self.dice = 0.5
        self.grain = grain
        self.jobs: dict[UUID, Life] = {}
        self.paused: set[str] = set()
        self.scanned: datetime | None = None
        self.cadence: timedelta | None = None
        self.unseen: list[tuple[datetime, datetime]] = []
        self.heard: dict[str, datetime] = {}
        """When each worker process last beat."""
        self.faults: Counter[str] = Counter()
        """What has been injected, by row of the catalogue."""

    def active(self) -> list[Life]:
        """Those that run, in order of their ids."""
        return [job for _, job in sorted(self.jobs.items()) if job.state == "active"]

    # Claims

    def claimable(self, queues: Sequence[str], limit: int) -> list[Life]:
        """What a claim looks at next, in order (decisions L6, T11)."""
        found = [
            job
            for job in self.jobs.values()
            if job.state == "available" and job.queue in queues and job.queue not in self.paused
        ]
        found.sort(key=lambda job: (queues.index(job.queue), -job.priority, job.enqueued, job.id))
        return found[:limit]

    def expire_or_give(self, queues: Sequence[str], limit: int) -> list[Life]:
        """The jobs that a claim gets; those that have expired are discarded on the way."""
        while True:
            found = self.claimable(queues, limit)
            late = [job for job in found if job.deadline is not None and job.deadline <= self.now]
            for job in late:
                self.overdue(job)
            if len(late) < len(found) or not found:
                return [job for job in found if job not in late]

    # Clocks

    def overdue(self, job: Life) -> str | None:
        """End what has run out; says which clock it was."""
        uncounted = self._uncounted(job) if job.state == "active" else timedelta(0)
        clock = job.due(self.now, uncounted)
        if clock == "total":
            self.faults["F69"] += job.state in WAITING
            job.total_timeout(self.now)
        elif clock == "enqueue_ttl":
            self.faults["F71"] += 1
            job.never_started(self.now)
        elif clock is not None:
            name = {"execution": "timeout", "visibility": "visibility_timeout"}.get(clock, clock)
            self._fail(job, name, clock=clock)
        return clock

    def _fail(self, job: Life, name: str, **how: Any) -> None:
        before = len(job.errors)
        job.fail(name, self.now, self.dice, **how)
        self.faults["F70"] += len(job.errors) - before > 1

    def promote(self) -> int:
        """Everything whose time has come."""
        due = [
            job
            for job in self.jobs.values()
            if job.state in ("scheduled", "retryable")
            and job.scheduled is not None
            and job.scheduled <= self.now
        ]
        for job in due:
            if self.overdue(job) is None:
                job.available(self.now)
        return len(due)

    def scan(self, cadence: timedelta | None, *, suspect: bool = False) -> Counter[str]:
        """A pass of the reaper, after the catch-up rule (decision T9); what it ended, by clock."""
        since = None if self.scanned is None else self.now - self.scanned
        apart = since is not None and self.cadence is not None and since > 3 * self.cadence
        self.unseen = [(start, min(end, self.now)) for start, end in self.unseen if start < self.now]
        if self.scanned is not None and since and since > timedelta(0) and (apart or suspect):
            self.unseen.append((self.scanned, self.now))
            for job in self.active():
                self._give_air(job, min(OUTAGE_GRACE, since))
        if cadence is not None:
            self.cadence = cadence
        else:
            self.cadence = None if since is None else max(timedelta(0), since)
        self.scanned = self.now
        ended: Counter[str] = Counter()
        for job in list(self.jobs.values()):
            if job.deadline is not None and job.deadline <= self.now:
                ended[self.overdue(job) or "nothing"] += 1
        for job in self.active():
            silent, visible = job.lapses(self._uncounted(job))
            ends = [visible, None if silent is None else silent + self.grain]
            if any(end is not None and end <= self.now for end in ends):
                ended[self.overdue(job) or "nothing"] += 1
        return ended

    def _give_air(self, job: Life, air: timedelta) -> None:
        assert job.deadline is not None and job.beat is not None
        total, cut_short = job.total_end(), job.visible_until == job.deadline
        job.deadline = max(job.deadline, self.now + air)
        if total is not None:
            job.deadline = min(job.deadline, total)
        if cut_short and job.lease_visibility is not None:
            job.visible_until = min(job.beat + ms(job.lease_visibility), job.deadline)

    def _uncounted(self, job: Life) -> timedelta:
        """For how long since it was heard nobody could hear it (decision T9)."""
        assert job.beat is not None
        total = timedelta(0)
        for start, end in self.unseen:
            total += max(timedelta(0), min(end, self.now) - max(start, job.beat))
        return total

    # Reports

    def settle(self, reports: Sequence[Said]) -> list[str]:
        """Many reports under leases; the verdict on each (decision L2)."""
        plain = [one for one in reports if one.report == "ack" and one.known is not None]
        leases = {one.lease for one in plain}
        if len(leases) < len(plain) or not all(map(self._as_known, plain)):
            plain = []
        answers = {id(one): self._under_lease(one) for one in plain}
        rest = [one for one in reports if id(one) not in answers]
        late = []
        for one in rest:
            answers[id(one)] = self._under_lease(one)
            if answers[id(one)] == "lost":
                late.append(one)
        # Notes are taken when everything is settled; the last word of a lease is the one noted.
        for one in {report.lease: report for report in late}.values():
            if not self._note(one):
                for same in late:
                    if same.lease == one.lease:
                        answers[id(same)] = "replayed"
        return [answers[id(one)] for one in reports]

    def _as_known(self, said: Said) -> bool:
        job = self.jobs.get(said.job)
        if job is None or job.lease is None or job.lease != said.lease:
            return False
        late = job.deadline is not None and job.deadline <= self.now
        return not late and said.known == (job.deadline, job.progress)

    def _under_lease(self, said: Said) -> str:
        job = self.jobs.get(said.job)
        if job is None:
            return "missing"
        if job.lease is None or job.lease != said.lease or self._ended_by(job, said):
            return "lost"
        self._honour(job, said)
        return "settled"

    def _ended_by(self, job: Life, said: Said) -> bool:
        """Whether the report came when the attempt's time was up, which it then ends: judged by the
        total and the execution deadline, while scans are regular; unless it says so itself.
        """
        if said.report == "release" or (said.report == "fail" and said.error == "timeout"):
            return False
        return self.over(job) and self.overdue(job) is not None

    def over(self, job: Life) -> bool:
        """Whether no report of a running attempt counts any more."""
        total = job.total_end()
        if total is not None and total <= self.now:
            return True
        return self.regular() and job.deadline is not None and job.deadline <= self.now

    def cleaning_up(self, job: Life, lease: UUID | None) -> bool:
        """Whether this attempt is in its grace period after the total timeout (decision T6a)."""
        if job.lease is not None:
            if job.lease != lease:
                return False
            began, ended = job.started, job.total_end()
            if ended is None or ended > self.now:
                return False
        else:
            last = job.attempts[-1] if job.attempts else None
            if last is None or (last.lease, last.outcome, last.seq) != (
                lease,
                "total_timeout",
                job.seq,
            ):
                return False
            began, ended = last.started, last.deadline
        # The end of an attempt that is over stands, also if the clock was set back behind it.
        if began is None or ended is None:
            return False
        soft = began + ms(job.timeout + job.extended)
        return self.now < min(soft, ended) + ms(job.grace)

    def regular(self) -> bool:
        """Whether the last scan is no longer ago than scans are apart (decision T9)."""
        if self.scanned is None:
            return True
        return self.now - self.scanned <= 3 * (self.cadence or timedelta(0))

    def _honour(self, job: Life, said: Said) -> None:
        if said.report == "ack":
            job.ack(self.now)
        elif said.report == "fail":
            how = {"retryable": said.retryable, "directive": said.directive, "after": said.after}
            self._fail(job, said.error, **how)
        else:
            job.wait_again(self.now, counted=said.report == "requeue")

    def _note(self, said: Said) -> bool:
        """Note a late report; false if it is an ACK that was honoured."""
        for attempt in self._attempts(said.job):
            if attempt.lease == said.lease:
                if attempt.outcome == "completed" and said.report == "ack":
                    return False
                attempt.late = attempt.late or self.now
        return True

    def _attempts(self, job_id: UUID) -> Iterator[Ended]:
        job = self.jobs.get(job_id)
        return iter(job.attempts if job else [])

    def report(self, said: Said) -> str:
        """One report with whatever evidence there is (decision L1): a verdict or a reason."""
        job = self.jobs.get(said.job)
        if job is None:
            return "missing"
        if said.lease is not None and said.lease != job.lease:
            if not self._note(said):
                return "replayed"
            return "lease_lost" if job.state == "active" else "not_active"
        if job.state != "active":
            senders = self._senders(job, said, job.seq + 1)
            if len(senders) == 1:
                senders[0].late = senders[0].late or self.now
            return "not_active"
        if said.lease is None:
            if said.worker not in (None, job.worker) or said.attempt not in (None, job.attempt):
                return "lease_lost"
            if any(self._lives(old, job) for old in self._senders(job, said, job.seq)):
                return "lease_required"
        if self._ended_by(job, said):
            self._note(said._replace(lease=job.attempts[-1].lease))
            return "not_active"
        self._honour(job, said)
        return "settled"

    def _lives(self, old: Ended, job: Life) -> bool:
        """Whether the worker of an ended attempt was heard since, and within 30 s."""
        if old.worker == job.worker:
            return True
        signs = [sign for sign in (self.heard.get(old.worker or ""), old.late) if sign is not None]
        return any(old.ended <= sign and self.now < sign + STILL_ALIVE for sign in signs)

    def _senders(self, job: Life, said: Said, before: int) -> list[Ended]:
        """Earlier attempts that the server ended, whose worker would send just this."""
        return [
            old
            for old in job.attempts
            if old.seq < before
            and old.outcome in SERVER_ENDED
            and (old.late is None or old.late + STILL_ALIVE > self.now)
            and not (old.outcome == "timeout" and old.deadline is not None and old.ended < old.deadline)
            and (old.deadline or old.ended) + STILL_ALIVE > self.now
            and said.worker in (None, old.worker)
            and said.attempt in (None, old.attempt)
        ]

    # Verbs of clients and operators: whether each may be

    def cancel(self, job: Life) -> bool:
        """At once, in every state that is not final (decision L3)."""
        if job.state in TERMINAL:
            return False
        job.end_attempt("cancelled", self.now)
        job.finish("cancelled", self.now)
        job.told("job.cancelled")
        return True

    def discard(self, job: Life) -> bool:
        """Of what waits."""
        if job.state not in WAITING:
            return False
        job.finish("discarded", self.now)
        job.told("job.discarded")
        return True

    def activate(self, job: Life) -> bool:
        """Of what is pending."""
        if job.state != "pending":
            return False
        if job.scheduled is not None and job.scheduled > self.now:
            job.state, job.enqueued = "scheduled", job.created
            job.told("job.scheduled")
        else:
            job.available(self.now)
        return True

    def retry(self, job: Life, *, clear: bool) -> bool:
        """Of what was discarded, unless its own expiry has passed (decision R5)."""
        expires = None if clear else job.expires
        if job.state != "discarded" or (expires is not None and expires <= self.now):
            return False
        job.reborn(self.now, expires)
        return True

    def reschedule(self, job: Life, when: datetime) -> bool:
        """Of what waits for its time."""
        if job.state not in ("scheduled", "retryable"):
            return False
        job.told("job.rescheduled")
        if when > self.now:
            job.scheduled = when
        else:
            job.scheduled = self.now
            job.available(self.now)
        return True

    def extend(self, job: Life, by: int, lease: UUID | None) -> bool:
        """Of what runs, as far as the total timeout leaves room before the signal (decision T2)."""
        if job.state != "active" or lease not in (None, job.lease) or self.over(job):
            return False
        assert job.deadline is not None
        assert job.started is not None
        total = job.total_end()
        if total is not None:
            room = total - job.started - ms(job.timeout + job.extended)
            by = min(by, room // ms(1))
        if by <= 0:
            return False
        job.extended += by
        job.deadline = max(job.deadline, job.running_end())
        job.told("job.timeout_extended")
        return True

    def edit(self, job: Life, *, priority: int, total: int | None) -> bool:
        """Of what waits."""
        fits = total is None or not job.timeout_said or total >= job.timeout
        if job.state not in WAITING or not fits:
            return False
        job.priority, job.total = priority, total
        job.deadline = job.waiting_end()
        job.told("job.edited")
        return True
