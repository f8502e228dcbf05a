"""The judgement finds each violation that is planted, and nothing else."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.soak.ledger import Entry
from tests.soak.oracle import AttemptRow, JobRow, Verdict, judge, percentile

pytestmark = pytest.mark.tool

START = datetime(2026, 1, 1, tzinfo=UTC)
ORIGIN = START.timestamp()


def entry(event: str, when: float = 0.0, pid: int = 1, **data: Any) -> Entry:
    """A line of the ledger, ``when`` seconds from the start."""
    return Entry(int(when * 1e9), pid, event, data)


class World:
    """A run in which one job was completed by its second attempt; to be spoilt by the tests."""

    def __init__(self) -> None:
        self.entries = [
            entry("try", job="j", kind="slow"),
            entry("acknowledged", job="j"),
            entry("start", job="j", attempt=1),
            entry("effect", job="j", attempt=1),
            entry("start", job="j", attempt=2),
            entry("effect", job="j", attempt=2),
            entry("fault", kind="suspend worker", worker="w.1", at=int(1e9)),
        ]
        self.jobs = [JobRow("j", "soak.slow", "completed", {"attempt": 2}, None)]
        self.attempts = [
            self.attempt(1, "stalled", worker="w.1", start=0, end=5),
            self.attempt(2, "completed", worker="w.2", start=5.5, end=6),
        ]

    @staticmethod
    def attempt(
        seq: int,
        outcome: str,
        *,
        start: float = 0,
        end: float = 1,
        worker: str = "w.1",
        attempt: int = 0,
        error: dict[str, Any] | None = None,
    ) -> AttemptRow:
        """A row of job ``j`` under the lease ``l<seq>``."""
        began, ended = (START + timedelta(seconds=seconds) for seconds in (start, end))
        number = attempt or seq
        return AttemptRow("j", seq, f"l{seq}", number, worker, outcome, began, ended, error)

    def honoured(self, seq: int, verb: str = "ack") -> None:
        """An HTTP worker was told that its report under this lease counts."""
        self.entries.append(
            entry("honoured", job="j", lease=f"l{seq}", attempt=seq, verb=verb, bare=True)
        )

    def judge(self) -> Verdict:
        """The verdict."""
        return judge(
            self.entries,
            self.jobs,
            self.attempts,
            backoff=0.2,
            origin=ORIGIN,
            lasts_at_most=lambda job_type: 4.0,
        )

    def wrong(self) -> dict[str, int]:
        """How often each rule is broken, of those that are."""
        verdict = self.judge()
        assert verdict.passed is not any(verdict.wrong.values())
        return {rule: len(found) for rule, found in verdict.wrong.items() if found}


def test_a_good_run_passes_and_its_duplicate_is_explained() -> None:
    world = World()
    world.honoured(2)
    assert world.wrong() == {}
    assert world.judge().duplicates == {"stalled": 1}
    assert world.judge().jobs == {"completed": 1, "enqueued": 1}


def test_an_acknowledged_job_that_is_nowhere_is_lost() -> None:
    world = World()
    world.entries += [entry("try", job="k", kind="quick"), entry("acknowledged", job="k")]
    assert world.wrong() == {"lost": 1}


def test_a_job_that_was_only_tried_need_not_exist() -> None:
    world = World()
    world.entries.append(entry("try", job="k", kind="quick"))
    assert world.wrong() == {}


def test_a_job_that_nobody_tried_is_unexpected() -> None:
    world = World()
    world.jobs.append(JobRow("k", "soak.quick", "discarded", None, {"type": "timeout"}))
    assert world.wrong() == {"unexpected": 1}
    assert world.judge().discarded == {"timeout": 1}


@pytest.mark.parametrize("state", ["available", "active", "retryable", "scheduled", "pending"])
def test_a_live_job_is_stuck_and_lost(state: str) -> None:
    world = World()
    world.jobs[0] = world.jobs[0]._replace(state=state)
    assert world.wrong() == {"lost": 1, "stuck": 1}


def test_a_cancelled_job_must_stay_so() -> None:
    world = World()
    world.entries.append(entry("cancelled", job="j"))
    assert world.wrong() == {"uncancelled": 1}


def test_two_completed_attempts_are_double() -> None:
    world = World()
    world.attempts[0] = world.attempt(1, "completed")
    assert world.wrong()["double-settled"] == 1


def test_two_honoured_acks_are_double_but_a_repeated_one_is_not() -> None:
    world = World()
    world.honoured(2)
    world.honoured(2)
    assert world.wrong() == {}
    world.honoured(1)
    assert world.wrong() == {"double-settled": 1, "stale reports honoured": 1}


def test_a_result_of_another_attempt_is_a_stale_report() -> None:
    world = World()
    world.jobs[0] = world.jobs[0]._replace(result={"attempt": 1})
    assert world.wrong() == {"stale reports honoured": 1}


def test_a_result_under_another_lease_is_a_stale_report() -> None:
    world = World()
    world.jobs[0] = world.jobs[0]._replace(result={"attempt": 2, "lease": "l1"})
    assert world.wrong() == {"stale reports honoured": 1}


def test_a_failure_of_another_attempt_is_a_stale_report() -> None:
    world = World()
    for number, expected in ((1, {}), (7, {"stale reports honoured": 1})):
        world.attempts[0] = world.attempt(1, "failed", error={"message": f"attempt {number}"})
        world.entries[3] = entry("end", job="j", attempt=1)
        assert world.wrong() == expected


def test_a_nack_is_honoured_for_the_attempt_that_failed_by_it() -> None:
    world = World()
    world.attempts[0] = world.attempt(1, "failed", error={"message": "attempt 1"})
    world.entries[3] = entry("end", job="j", attempt=1)
    world.honoured(1, "nack")
    assert world.wrong() == {}
    world.honoured(2, "nack")
    assert world.wrong() == {"stale reports honoured": 1}


def test_completed_without_the_effect_of_that_attempt() -> None:
    world = World()
    del world.entries[5]
    assert world.wrong() == {"completed without effect": 1}


@pytest.mark.parametrize("outcome", ["failed", "released", "requeued"])
def test_a_duplicate_after_an_attempt_that_ended_in_order_is_not_explained(outcome: str) -> None:
    world = World()
    world.attempts[0] = world.attempt(1, outcome)
    assert world.wrong() == {"unexplained duplicates": 1}


def test_a_worker_that_nobody_touched_has_no_stalled_attempt() -> None:
    world = World()
    world.entries[6] = entry("fault", kind="suspend worker", worker="w.2", at=int(1e9))
    assert world.wrong() == {"stalled though alive": 1}
    verdict = judge(world.entries, world.jobs, world.attempts, origin=ORIGIN, one_writer=True)
    assert verdict.passed, "whoever is suspended may hold the one lock"
    del world.entries[2]
    assert world.wrong() == {}, "it never knew of it"


@pytest.mark.parametrize("kind", ["restart database", "freeze database", "hold table", "hold rows"])
def test_no_outage_stalls_a_living_worker(kind: str) -> None:
    world = World()
    world.entries[6] = entry("fault", when=4, kind=kind, at=int(2e9))
    assert world.wrong() == {"stalled though alive": 1}


def test_what_outlives_its_executor_is_wrong() -> None:
    world = World()
    world.entries.append(entry("outlived", job="j", pids=[17]))
    assert world.wrong() == {"outlived its executor": 1}


def test_an_attempt_runs_once() -> None:
    world = World()
    world.entries.append(entry("start", job="j", attempt=2))
    assert world.wrong() == {"unexplained duplicates": 1}
    world.entries.append(entry("effect", job="j", attempt=2))
    assert world.wrong() == {"unexplained duplicates": 2}


def test_a_released_attempt_does_not_hide_the_one_that_ran() -> None:
    world = World()
    world.attempts.insert(0, world.attempt(1, "released"))
    world.attempts[1] = world.attempt(2, "timeout", attempt=1)
    world.attempts[2] = world.attempt(3, "completed", attempt=2)
    assert world.wrong() == {}
    assert world.judge().duplicates == {"timeout": 1}


def test_recovery_is_from_the_kill_to_the_next_start_without_the_backoff() -> None:
    world = World()
    world.entries.append(entry("fault", kind="kill worker", worker="w.1", at=0, killed=int(2e9)))
    assert world.judge().recovery == pytest.approx([3.3])
    world.entries[-1] = entry("fault", kind="kill worker", worker="w.1", at=0, killed=int(5.2e9))
    assert world.judge().recovery == [], "it ran nothing any more"


def test_a_crash_is_timed_from_the_end_of_the_executor() -> None:
    world = World()
    world.attempts[0] = world.attempt(1, "worker_crash", end=1.25)
    world.entries.append(entry("crash", when=1.0, job="j", attempt=1))
    world.entries.append(
        entry("fault", when=9, kind="kill executor", job="j", attempt=1, killed=int(1.1e9))
    )
    assert world.judge().crashes == pytest.approx([0.15, 0.25])
    assert world.judge().faults == {"kill executor": 1, "suspend worker": 1}


def test_percentiles() -> None:
    assert percentile([], 0.5) is None
    assert percentile([1, 2, 3, 4], 0.5) == 3
    assert percentile([1, 2, 3, 4], 0.99) == 4


@pytest.mark.parametrize(("at", "found"), [(4.0, 0), (9.9, 0), (12.0, 1)])
def test_a_handler_that_goes_on_without_its_lease(at: float, found: int) -> None:
    """Its worker was suspended until 7, the server had ended the attempt at 5."""
    world = World()
    world.entries[-1] = entry("fault", 1.0, kind="suspend worker", worker="w.1", at=int(1e9), lasts=6.0)
    world.entries.append(entry("step", at, job="j", attempt=1))
    assert world.wrong().get("worked on without a lease", 0) == found
    world.entries.append(entry("fault", 3.0, kind="end sessions", at=int(2.9e9)))
    assert world.wrong().get("worked on without a lease", 0) == found, "it was over long before"
    world.entries.append(entry("fault", 8.0, kind="freeze database", at=int(8e9), lasts=10.0))
    assert "worked on without a lease" not in world.wrong(), "it could not learn of it"


@pytest.mark.parametrize(
    ("end", "fault", "found"), [(4.5, None, 0), (9, None, 1), (9, "stop database", 0)]
)
def test_a_deadline_that_is_late(end: float, fault: str | None, found: int) -> None:
    world = World()
    world.entries.pop()
    world.attempts = [
        world.attempt(1, "timeout", start=0, end=end),
        world.attempt(2, "completed", worker="w.2", start=end, end=end + 1),
    ]
    if fault is not None:
        world.entries.append(entry("fault", 3.0, kind=fault, at=int(2e9)))
    assert world.wrong().get("late deadlines", 0) == found


@pytest.mark.parametrize(("queue", "claimed", "found"), [("a", 3, 1), ("a", 5.5, 0), ("b", 3, 0)])
def test_a_claim_from_a_paused_queue(queue: str, claimed: float, found: int) -> None:
    world = World()
    world.jobs[0] = world.jobs[0]._replace(queue="a")
    world.attempts[1] = world.attempt(2, "completed", worker="w.2", start=claimed, end=6)
    world.entries.append(entry("paused", queue=queue, since=int(2e9), until=int(5e9)))
    assert world.wrong().get("claimed while paused", 0) == found


def test_a_queue_that_was_paused_twice_at_once() -> None:
    """The first that ends resumes it."""
    world = World()
    world.jobs[0] = world.jobs[0]._replace(queue="a")
    world.attempts[1] = world.attempt(2, "completed", worker="w.2", start=5.5, end=6)
    for since, until in ((2, 5), (3, 7)):
        world.entries.append(entry("paused", queue="a", since=int(since * 1e9), until=int(until * 1e9)))
    assert world.wrong() == {}


def test_attempts_that_were_counted_anew() -> None:
    """As those of a workflow that was resumed: each effect needs an outcome of its own."""
    world = World()
    world.attempts = [
        world.attempt(1, "timeout", end=5),
        world.attempt(2, "completed", worker="w.2", start=5.5, end=6, attempt=1),
    ]
    world.jobs[0] = world.jobs[0]._replace(result={"attempt": 1})
    for one in world.entries:
        if "attempt" in one.data:
            one.data["attempt"] = 1
    assert world.wrong() == {}
    world.attempts.pop(0)
    assert world.wrong() == {"unexplained duplicates": 2}


def test_a_job_that_was_made_available_when_it_had_expired() -> None:
    world = World()
    world.jobs[0] = world.jobs[0]._replace(promoted_late=True)
    assert world.wrong() == {"promoted though expired": 1}


@pytest.mark.parametrize(
    ("heard", "outcome", "found"),
    [(3000, "worker_crash", 0), (7, "worker_crash", 1), (None, "worker_crash", 1), (7, "stalled", 0)],
)
def test_the_last_words_of_an_executor(heard: int | None, outcome: str, found: int) -> None:
    """Only where it crashed by itself: a worker that was suspended or killed may have heard less."""
    world = World()
    world.jobs[0] = world.jobs[0]._replace(result={"attempt": 2, "heard": heard})
    world.attempts[0] = world.attempt(1, outcome, start=0, end=5)
    assert world.wrong().get("last words unread", 0) == found
    world.entries.append(entry("fault", kind="kill executor", job="j", attempt=1, killed=0, at=0))
    assert world.wrong().get("last words unread", 0) == 0


@pytest.mark.parametrize(("count", "found"), [(3, 0), (4, 4)])
def test_jobs_of_one_attempt_that_were_claimed_ahead(count: int, found: int) -> None:
    world = World()
    world.jobs[0] = world.jobs[0]._replace(type="soak.single")
    world.attempts += [world.attempt(seq, "released", attempt=2) for seq in range(3, 3 + count)]
    assert world.wrong().get("single attempts claimed ahead", 0) == found
