"""How far ahead a worker claims, and how much may wait in an executor."""

from __future__ import annotations

from django_ojs.worker.estimate import Estimate


def experienced(horizon: float, seconds: float, count: int = 1000, rate: float = 1000) -> Estimate:
    """An estimate after so many jobs that took so long, ``rate`` of which ended in a second."""
    estimate = Estimate(horizon)
    for number in range(count):
        estimate.add("test.job", seconds, number / rate)
    return estimate


def test_nothing_is_claimed_ahead_before_anything_is_known() -> None:
    assert experienced(0.1, 0.001, count=3).prefetch(2) == 0
    assert experienced(0.1, 0.001, count=4).prefetch(2) > 0


def test_quick_jobs_are_claimed_ahead_as_far_as_the_horizon() -> None:
    assert experienced(0.1, 0.001).prefetch(1) == 100
    assert experienced(0.1, 0.001).prefetch(2) == 200
    assert experienced(0.2, 0.001).prefetch(1) == 200
    assert experienced(0.1, 0.05).prefetch(1) == 2
    assert experienced(0.1, 1.0).prefetch(4) == 0


def test_no_more_than_end_within_the_horizon_of_late() -> None:
    """The figures of a busy machine: 50 microseconds each, and 4,000 in a second by four executors."""
    assert 350 <= experienced(0.1, 0.00005, rate=4000).prefetch(4) <= 450
    assert experienced(10, 0.00001, count=3000, rate=100_000).prefetch(64) == 2000


def test_depth_follows_the_duration_of_the_type() -> None:
    estimate = experienced(0.1, 0.001)
    assert estimate.depth("test.job") == 20
    assert experienced(0.1, 0.0001).depth("test.job") == 32
    assert estimate.depth("test.unknown") == 1
    assert experienced(0.1, 0.006).depth("test.job") == 1


def test_one_slow_job_in_a_few_makes_a_type_wait_alone() -> None:
    estimate = experienced(0.1, 0.001)
    for number in range(100):
        estimate.add("test.job", 0.5 if number % 10 == 0 else 0.001, 10 + number / 100)
    assert estimate.depth("test.job") == 1


def test_without_a_horizon_nothing_waits() -> None:
    estimate = experienced(0, 0.0001)
    assert estimate.prefetch(8) == 0
    assert estimate.depth("test.job") == estimate.depth("test.unknown") == 0
