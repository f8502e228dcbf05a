"""One job as the model knows it: what the documents say of limits, retries and outcomes.

Written from the documents, not from the code: it shares nothing with ``django_ojs.domain`` but names.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

TERMINAL = ("completed", "cancelled", "discarded")
WAITING = ("scheduled", "pending", "available", "retryable")
SERVER_ENDED = ("timeout", "stalled", "visibility_timeout", "total_timeout", "cancelled")
KINDS = {
    "execution": ("timeout", "job.timeout"),
    "stalled": ("stalled", "job.stalled"),
    "visibility": ("visibility_timeout", "job.stalled"),
}
"""What a clock is called in errors and outcomes, and its event."""


def ms(number: int) -> timedelta:
    """Milliseconds."""
    return timedelta(milliseconds=number)


@dataclass(frozen=True)
class Policy:
    """A retry policy (decision R2)."""

    max_attempts: int = 3
    initial_ms: int = 1000
    coefficient: float = 2.0
    most_ms: int = 300_000
    jitter: bool = True
    never: tuple[str, ...] = ()
    dead_letter: bool = False
    strategy: str = "exponential"

    def wire(self) -> dict[str, Any]:
        """As a client writes it."""
        return {
            "max_attempts": self.max_attempts,
            "initial_interval_ms": self.initial_ms,
            "backoff_coefficient": self.coefficient,
            "max_interval_ms": self.most_ms,
            "jitter": self.jitter,
            "non_retryable_errors": list(self.never),
            "on_exhaustion": "dead_letter" if self.dead_letter else "discard",
            "backoff_strategy": self.strategy,
        }

    def backoff_ms(self, attempt: int) -> float:
        """The delay before jitter."""
        factor = {
            "constant": 1.0,
            "linear": float(attempt),
            "exponential": self.coefficient ** (attempt - 1),
            "polynomial": float(attempt**self.coefficient),
        }[self.strategy]
        return min(self.initial_ms * factor, float(self.most_ms))

    def delay_ms(self, attempt: int, dice: float) -> int:
        """The delay before retry number ``attempt``."""
        delay = self.backoff_ms(attempt)
        if self.jitter:
            delay = min(delay * (0.5 + dice), self.most_ms)
        return int(delay + 1e-6)

    def refuses(self, name: str) -> bool:
        """Whether an error of this type is never retried (decision R3)."""
        return any(
            name.startswith(one[:-1]) if one.endswith(".*") else name == one for one in self.never
        )


@dataclass
class Ended:
    """One attempt that is over, and when its holder's late report came, if one did."""

    seq: int
    lease: UUID
    attempt: int
    worker: str | None
    started: datetime
    ended: datetime
    deadline: datetime | None
    outcome: str
    late: datetime | None = None


@dataclass
class Life:
    """One job; limits in milliseconds."""

    id: UUID
    queue: str
    created: datetime
    policy: Policy
    priority: int = 0
    state: str = "available"
    timeout: int = 1_800_000
    grace: int = 30_000
    silence: int = 60_000
    total: int | None = None
    ttl: int | None = None
    attempt_ttl: int | None = None
    expires: datetime | None = None
    visibility: int | None = None
    timeout_said: bool = False
    silence_said: bool = False
    since: datetime = field(init=False)
    """What the total timeout and the TTL count from."""
    enqueued: datetime | None = field(init=False)
    """``None`` of what has been pending since it was made."""
    attempt: int = 0
    seq: int = 0
    lease: UUID | None = None
    worker: str | None = None
    armed: bool = False
    scheduled: datetime | None = None
    started: datetime | None = None
    beat: datetime | None = None
    visible_until: datetime | None = None
    lease_visibility: int | None = None
    extended: int = 0
    deadline: datetime | None = None
    finished: datetime | None = None
    delay: int | None = None
    after: int | None = None
    """The delay that the last failure asked for."""
    dead: bool = False
    errors: list[str] = field(default_factory=list)
    error: str | None = None
    progress: float | None = None
    checkpoints: int = 0
    attempts: list[Ended] = field(default_factory=list)
    events: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.since = self.enqueued = self.created

    def columns(self) -> dict[str, Any]:
        """What the row must say."""
        return {
            "state": self.state,
            "queue": self.queue,
            "priority": self.priority,
            "attempt": self.attempt,
            "lease_seq": self.seq,
            "lease_id": self.lease,
            "worker_id": self.worker,
            "created_at": self.created,
            "limits_from": self.since,
            "enqueued_at": self.enqueued,
            "scheduled_at": self.scheduled,
            "expires_at": self.expires,
            "started_at": self.started,
            "heartbeat_at": self.beat,
            "heartbeat_armed": self.armed,
            "lease_expires_at": self.visible_until,
            "lease_visibility_ms": self.lease_visibility,
            "extended_ms": self.extended,
            "deadline_at": self.deadline,
            "finished_at": self.finished,
            "retry_delay_ms": self.delay,
            "dead_letter": self.dead,
            "progress": self.progress,
            "checkpoint_seq": self.checkpoints,
        }

    @property
    def most(self) -> int:
        """How many executions there may be (decision R1)."""
        return max(1, self.policy.max_attempts)

    def total_end(self) -> datetime | None:
        """When all attempts together must be over (decision T6)."""
        return None if self.total is None else self.since + ms(self.total)

    def start_end(self) -> datetime | None:
        """Until when it must have started: the first time (decision T5), and each time that it waits
        for a worker.
        """
        ends: list[datetime | None] = []
        if not self.attempt:
            ends = [self.expires, None if self.ttl is None else self.since + ms(self.ttl)]
        if self.state == "available" and self.attempt_ttl is not None:
            assert self.enqueued is not None
            ends.append(self.enqueued + ms(self.attempt_ttl))
        return min((end for end in ends if end is not None), default=None)

    def waiting_end(self) -> datetime | None:
        """The first of both."""
        ends = [end for end in (self.total_end(), self.start_end()) if end is not None]
        return min(ends, default=None)

    def running_end(self) -> datetime:
        """The execution deadline, within the total one (decision T2)."""
        assert self.started is not None
        end = self.started + ms(self.timeout + self.grace + self.extended)
        total = self.total_end()
        return end if total is None else min(end, total)

    def silent_at(self) -> datetime | None:
        """When it counts as stalled (decision T4)."""
        if self.beat is None or not self.armed:
            return None
        if self.visible_until is not None and not self.silence_said:
            return None
        return self.beat + ms(self.silence)

    def ends(self) -> list[datetime | None]:
        """When its clocks run out."""
        return [self.deadline, self.visible_until, self.silent_at()]

    def lapses(self, uncounted: timedelta) -> tuple[datetime | None, datetime | None]:
        """When its silence and its visibility lease run out, with time that does not count."""
        silent, visible = self.silent_at(), self.visible_until
        if visible is not None and self.deadline is not None:
            visible = min(visible + uncounted, self.deadline)
        return None if silent is None else silent + uncounted, visible

    def due(self, now: datetime, uncounted: timedelta = timedelta(0)) -> str | None:
        """Which clock has run out (decision T8)."""
        total = self.total_end()
        if self.state not in TERMINAL and total is not None and total <= now:
            return "total"
        if self.state == "active":
            silent, visible = self.lapses(uncounted)
            clocks = {"execution": self.deadline, "visibility": visible, "stalled": silent}
            return next((name for name, end in clocks.items() if end is not None and end <= now), None)
        start = self.start_end()
        if self.state in ("available", "scheduled", "pending") and start is not None and start <= now:
            return "enqueue_ttl"
        return None

    def told(self, *events: str) -> None:
        """These events have been stored."""
        self.events.update(events)

    def begin(self, lease: UUID, now: datetime, worker: str, beats: bool, asked: int | None) -> None:
        """A claim; the attempt counts from here."""
        self.state, self.lease, self.worker = "active", lease, worker
        self.attempt += 1
        self.seq += 1
        self.started = self.beat = now
        self.progress, self.extended = None, 0
        self.armed = self.silence_said or beats
        self.deadline = self.running_end()
        self.lease_visibility = self.visibility or asked
        if self.lease_visibility is not None:
            self.visible_until = min(now + ms(self.lease_visibility), self.deadline)
        self.told("job.started")

    def heard(self, now: datetime, asked: int | None = None) -> None:
        """A beat, or what counts as one."""
        assert self.deadline is not None and self.beat is not None
        self.beat, self.armed = max(now, self.beat), True
        visibility = self.visibility or asked or self.lease_visibility
        if visibility is not None:
            self.lease_visibility = visibility
            self.visible_until = min(self.beat + ms(visibility), self.deadline)

    def end_attempt(self, outcome: str, now: datetime) -> None:
        """The lease is over."""
        if self.lease is None:
            return
        assert self.started is not None
        self.attempts.append(
            Ended(
                self.seq,
                self.lease,
                self.attempt,
                self.worker,
                self.started,
                now,
                self.deadline,
                outcome,
            )
        )
        self.lease = self.worker = self.beat = self.visible_until = self.lease_visibility = None
        self.extended = 0

    def finish(self, state: str, now: datetime) -> None:
        """Nothing comes after this."""
        self.state, self.finished, self.deadline = state, now, None

    def ack(self, now: datetime) -> None:
        """Success."""
        self.end_attempt("completed", now)
        self.finish("completed", now)
        self.error = None
        self.progress = None if self.progress is None else 1.0
        self.told("job.completed")

    def wait_again(self, now: datetime, *, counted: bool) -> None:
        """Given back by its worker: ``counted`` after it began (requeue), otherwise a release."""
        self.end_attempt("requeued" if counted else "released", now)
        self.state, self.started = "available", None
        if counted:
            self.enqueued = now
            self.deadline = self.waiting_end()
            self.attempt = min(self.attempt, self.most - 1)
            if not self.attempt:
                self.ttl = self.expires = None
        else:
            self.attempt -= 1
            self.deadline = self.waiting_end()
        self.told("job.enqueued" if counted else "job.released")

    def fail(
        self,
        name: str,
        now: datetime,
        dice: float,
        *,
        retryable: bool = True,
        directive: str | None = None,
        after: int | None = None,
        clock: str | None = None,
    ) -> None:
        """Failure: retried or given up, in the order of decision R4."""
        total = self.total_end()
        if clock is None and name == "timeout":
            clock = "execution"
            if total is not None and total <= now:
                self.total_timeout(now)
                return
        self.after = after
        give_up = directive in ("DISCARD", "FAIL", "DEAD_LETTER")
        if directive != "RETRY":
            give_up = give_up or not retryable or self.policy.refuses(name)
        give_up = give_up or self.attempt >= self.most
        delay = self.policy.delay_ms(self.attempt, dice) if after is None else after
        delay = 0 if clock == "visibility" else delay
        attempt_outcome = name if clock or name in ("shutdown", "worker_crash") else "failed"
        if clock:
            self.told(KINDS[clock][1])
        self.told("job.failed")
        self._erred(name)
        needed = ms(delay + (self.timeout if self.timeout_said else 0))
        if not give_up and total is not None and total < now + needed:
            give_up, directive = True, None
            self._erred("total_timeout")
            self.told("job.total_timeout")
        self.end_attempt(attempt_outcome, now)
        if give_up:
            dead = directive not in ("DISCARD", "FAIL") and self.policy.dead_letter
            self._discard(dead or directive == "DEAD_LETTER", now)
            return
        if clock == "visibility":
            self.started = None
            self.available(now)
        else:
            self.deadline = total
            self.state, self.scheduled, self.delay = "retryable", now + ms(delay), delay
            self.told("job.retrying")

    def total_timeout(self, now: datetime) -> None:
        """The total timeout ran out, in any state."""
        extended = self.extended
        self.end_attempt("total_timeout", now)
        self.extended = extended
        self._erred("total_timeout")
        self.told("job.total_timeout")
        self._discard(self.policy.dead_letter, now)

    def never_started(self, now: datetime) -> None:
        """The TTL ran out; that is never dead letter."""
        self._erred("enqueue_ttl_expired")
        self.told("job.ttl_expired", "job.expired")
        self._discard(False, now)

    def _erred(self, name: str) -> None:
        self.error = name
        self.errors.append(name)

    def _discard(self, dead: bool, now: datetime) -> None:
        self.finish("discarded", now)
        self.dead = dead
        self.told("job.discarded", *(["dead_letter.added"] if dead else []))

    def available(self, now: datetime) -> None:
        """Its time has come."""
        self.state, self.enqueued = "available", now
        self.deadline = self.waiting_end()
        self.told("job.enqueued")

    def reborn(self, now: datetime, expires: datetime | None) -> None:
        """A manual retry: a new life under the same id (decision R5)."""
        self.told("job.retried", *(["dead_letter.retried"] if self.dead else []))
        self.attempt, self.since, self.expires = 0, now, expires
        self.scheduled = self.started = self.finished = self.error = self.delay = None
        self.dead = False
        self.available(now)
