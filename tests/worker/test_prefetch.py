"""How far ahead a worker claims, and how much may wait in an executor."""

from __future__ import annotations

import random
from datetime import UTC, datetime

from django_ojs.worker.supervisor.claiming import is_busy
from django_ojs.worker.supervisor.prefetch import PrefetchPolicy
from django_ojs.worker.threads.fetcher import AHEAD_BYTES
from tests.store.records import record

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def experienced(
    horizon: float, seconds: float, count: int = 1000, needed: float | None = None
) -> PrefetchPolicy:
    """An estimate after so many jobs that took so long, and kept their executors ``needed``."""
    estimate = PrefetchPolicy(horizon)
    for _ in range(count):
        estimate.add("test.job", seconds, seconds if needed is None else needed)
    return estimate


def test_a_worker_claims_ahead_while_it_is_busy() -> None:
    assert is_busy(0.04, turn=0.002)
    assert not is_busy(0.06, turn=0.002), "the next job may be for a worker that is idle"


def test_a_slow_database_does_not_make_a_busy_worker_idle() -> None:
    """Else each claim takes as many jobs as can begin, and of fifty workers none gets far."""
    assert is_busy(0.5, turn=0.3)
    assert not is_busy(0.7, turn=0.3)


def test_nothing_is_claimed_ahead_before_anything_is_known() -> None:
    assert experienced(0.1, 0.001, count=3).prefetch(2, 2) == 0
    assert experienced(0.1, 0.001, count=4).prefetch(2, 2) == 4


def test_a_drain_is_soon_in_full_swing() -> None:
    """What counts is how many claims it takes, for each is a journey to the database."""
    estimate, claims, seen = PrefetchPolicy(0.1), 0, 0
    while estimate.prefetch(2, 2) < 1000:
        claims += 1
        for _ in range(max(2, estimate.prefetch(2, 2))):
            seen += 1
            estimate.add("test.job", 0.00005, 0.00015)
    assert claims <= 8
    assert seen <= 1100
    assert experienced(0.1, 0.0001, count=100).queue_depth("test.job") == 25
    assert experienced(0.1, 0.0001, count=4).queue_depth("test.job") == 1


def test_jobs_that_did_not_begin_in_time_make_it_claim_less() -> None:
    """On a machine that is slower than its executors, else thousands are claimed and given back."""
    estimate = experienced(0.1, 0.001)
    full = estimate.prefetch(2, 2)
    for part in (2, 4, 8, 16, 16):
        estimate.not_begun()
        assert abs(estimate.prefetch(2, 2) - full / part) <= 1
    jobs = 0
    while estimate.prefetch(2, 2) < full / 8:
        estimate.add("test.job", 0.001, 0.001)
        jobs += 1
    assert 2000 < jobs < 5000, "not at once: it would be too much again"
    for _ in range(15_000):
        estimate.add("test.job", 0.001, 0.001)
    assert estimate.prefetch(2, 2) == full


def test_one_slow_job_among_the_first_hundred_lets_none_wait() -> None:
    for place in (0, 50, 98):
        estimate = PrefetchPolicy(0.1)
        for number in range(99):
            estimate.add("test.job", 0.006 if number == place else 0.0001, 0.001)
        assert estimate.queue_depth("test.job") == 1


def test_quick_jobs_are_claimed_ahead_as_far_as_the_horizon() -> None:
    assert abs(experienced(0.1, 0.001).prefetch(1, 1) - 100) <= 1
    assert abs(experienced(0.1, 0.001).prefetch(2, 2) - 200) <= 1
    assert abs(experienced(0.2, 0.001).prefetch(1, 1) - 200) <= 1
    assert experienced(0.1, 0.02).prefetch(1, 1) in (4, 5)
    assert experienced(0.1, 1.0).prefetch(4, 4) == 0


def test_what_counts_is_the_time_that_executors_need() -> None:
    """Of a busy machine, or of jobs that travel longer than they run."""
    assert 350 <= experienced(0.1, 0.00005, needed=0.001).prefetch(4, 4) <= 450
    assert experienced(10, 0.00001, count=3000).prefetch(64, 64) == 2000


def test_an_executor_that_has_become_quicker_gets_more_within_a_hundred_jobs() -> None:
    """Where each job travels for as long as the horizon, one by one they would go on to do so."""
    estimate = experienced(0.1, 0.00005, needed=0.05)
    assert estimate.prefetch(1, 1) in (1, 2)
    for _ in range(100):
        estimate.add("test.job", 0.00005, 0.001)
    assert estimate.prefetch(1, 1) > 50


def test_few_jobs_are_claimed_ahead_where_some_are_long() -> None:
    """One in a hundred is enough to have both executors stuck before a long queue is through."""
    dice = random.Random(1)
    estimate = PrefetchPolicy(0.1)
    most = 0
    for number in range(5000):
        seconds = 0.15 if dice.random() < 0.01 else 0.0005
        estimate.add("test.job", seconds, seconds)
        if number > 1000:
            most = max(most, estimate.prefetch(2, 2))
    assert 5 < most < 60
    assert estimate.prefetch(2, 1) <= estimate.prefetch(2, 2) // 2 + 1
    assert estimate.prefetch(2, 0) == 0


def test_large_jobs_are_claimed_ahead_by_their_size() -> None:
    estimate = experienced(0.1, 0.0001)
    assert estimate.prefetch(2, 2) > 500
    small, large = (
        record("default", "test.job", NOW, args="[" + size * "1" + "]") for size in (100, 1_000_000)
    )
    for job in (small, large, small):
        estimate.claimed([job.text_bytes])
    assert estimate.prefetch(2, 2) in (7, 8)
    for _ in range(2000):
        estimate.claimed([small.text_bytes])
    assert estimate.prefetch(2, 2) > 500
    assert large.text_bytes <= AHEAD_BYTES


def test_depth_follows_the_duration_of_the_type() -> None:
    estimate = experienced(0.1, 0.001)
    assert estimate.queue_depth("test.job") == 20
    assert experienced(0.1, 0.0001).queue_depth("test.job") == 128
    assert experienced(0.1, 0.006).queue_depth("test.job") == 1


def test_a_type_that_is_not_known_yet_is_taken_to_be_like_all_others() -> None:
    """A drain over two hundred types of short jobs is as quick as over one."""
    estimate = PrefetchPolicy(0.1)
    assert estimate.queue_depth("test.unknown") == 1
    for number in range(400):
        estimate.add(f"test.t{number % 200}", 0.001, 0.001)
    assert estimate.queue_depth("test.unknown") == 20
    assert estimate.queue_depth("test.t7") == 20
    estimate.add("test.slow", 0.5, 0.5)
    assert estimate.queue_depth("test.slow") == 1
    assert estimate.queue_depth("test.t7") == 20
    assert experienced(0.1, 0.006).queue_depth("test.unknown") == 1


def test_one_slow_job_in_a_few_makes_a_type_wait_alone() -> None:
    estimate = experienced(0.1, 0.001)
    for number in range(100):
        seconds = 0.5 if number % 10 == 0 else 0.001
        estimate.add("test.job", seconds, seconds)
    assert estimate.queue_depth("test.job") == 1


def test_without_a_horizon_nothing_waits() -> None:
    estimate = experienced(0, 0.0001)
    assert estimate.prefetch(8, 8) == 0
    assert estimate.queue_depth("test.job") == estimate.queue_depth("test.unknown") == 0
