"""When a worker that polls looks again: often after work, seldom when idle, less in company."""

from __future__ import annotations

import heapq
import random
import threading
from collections.abc import Callable, Iterator
from itertools import count, pairwise

import pytest
from django.db import connections

from django_ojs import clock
from django_ojs.worker.threads.polling import (
    FileChangeSchedule,
    IdlenessSchedule,
    NotifiedSchedule,
    PollSchedule,
)

FIRST = 0.004
LOOK = 0.0005
_INSTANT = 1e-9
"""Seconds by which rounding may be off."""


class Time:
    """The clock of these tests; looks are spread as far as they can be, or not at all."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.dice: Callable[[], float] = lambda: 0.5

    def boottime(self) -> float:
        """The time of a process."""
        return self.now

    def jitter(self) -> float:
        """In the middle, unless told otherwise."""
        return self.dice()


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    """A clock that stands still."""
    made = Time()
    monkeypatch.setattr(clock, "boottime", made.boottime)
    monkeypatch.setattr(clock, "jitter", made.jitter)
    return made


def idle_looks(schedule: PollSchedule, time: Time, took: float = 0.0) -> Iterator[float]:
    """Claim something, then nothing: the pause after each look."""
    schedule.record(1)
    assert schedule.pause() == 0.0, "once at once: others may have come meanwhile"
    while True:
        time.now += took
        schedule.record(0, took)
        yield schedule.pause()
        time.now += schedule.pause() + _INSTANT
        assert schedule.due(connections["default"])


def looks_within(seconds: float, schedule: PollSchedule, time: Time, took: float = 0.0) -> list[float]:
    """The pauses after the looks of so many seconds without work."""
    until, pauses = time.now + seconds, []
    for pause in idle_looks(schedule, time, took):
        pauses.append(pause)
        if time.now + pause >= until:
            return pauses
    raise AssertionError


@pytest.mark.parametrize("luck", [0.0, 0.5, 0.999])
def test_a_worker_that_has_just_worked_looks_often(time: Time, luck: float) -> None:
    time.dice = lambda: luck
    schedule = IdlenessSchedule()
    worked_at = time.now
    for pause in idle_looks(schedule, time):
        idle = time.now - worked_at
        assert pause <= 1.25 * max(FIRST, idle / 50) or idle > 1
        if idle > 1:
            break
        assert pause >= 0.75 * FIRST - _INSTANT


def test_a_worker_that_is_idle_looks_seldom(time: Time) -> None:
    schedule = IdlenessSchedule()
    pauses = looks_within(65.0, schedule, time)
    assert 100 <= len(looks_within(1.0, IdlenessSchedule(), time)) <= 150
    assert len(pauses) <= 310
    assert len(looks_within(5.0, IdlenessSchedule(), time)) <= 190
    assert pauses[-100:] == pytest.approx([0.5] * 100)
    assert max(a - b for a, b in pairwise(pauses)) < _INSTANT, "and never more often again"


def test_a_worker_that_starts_looks_as_after_work(time: Time) -> None:
    schedule = IdlenessSchedule()
    assert schedule.due(connections["default"])
    schedule.record(0)
    assert schedule.pause() == pytest.approx(FIRST)


def test_a_pause_is_five_times_as_long_as_a_look(time: Time) -> None:
    assert looks_within(1.0, IdlenessSchedule(), time, 0.02)[4] == pytest.approx(0.1)
    assert looks_within(60.0, IdlenessSchedule(), time, 0.2)[10] == pytest.approx(0.5), (
        "but they are not put off for ever"
    )


def test_one_slow_look_puts_nothing_off(time: Time) -> None:
    schedule = IdlenessSchedule()
    schedule.record(1)
    for took in (0.0002, 0.0002, 0.0002, 0.3, 0.0002, 0.3, 0.3):
        schedule.record(0, took)
        assert schedule.pause() == pytest.approx(FIRST)


def test_the_end_of_a_job_ends_idleness(time: Time) -> None:
    schedule = IdlenessSchedule()
    looks_within(60.0, schedule, time)
    assert schedule.pause() == pytest.approx(0.5)
    schedule.active()
    assert schedule.pause() == pytest.approx(FIRST)
    time.now += FIRST
    schedule.record(0)
    assert schedule.pause() == pytest.approx(FIRST)


def test_the_end_of_a_job_puts_no_look_off(time: Time) -> None:
    schedule = IdlenessSchedule()
    schedule.record(1)
    schedule.record(0)
    time.now += FIRST - 0.001
    schedule.active()
    assert schedule.pause() == pytest.approx(0.001)
    schedule.record(1)
    schedule.active()
    assert schedule.pause() == 0.0


def test_a_wake_up_comes_before_any_pause(time: Time) -> None:
    schedule = IdlenessSchedule()
    looks_within(60.0, schedule, time)
    assert not schedule.due(connections["default"])
    schedule.wake()
    assert schedule.pause() == 0.0
    assert schedule.due(connections["default"])
    assert not schedule.due(connections["default"])


def test_who_finds_all_jobs_early_is_not_alone(time: Time) -> None:
    """Pauses grow while jobs have hardly waited, and shrink twice as fast once they have."""
    schedule = IdlenessSchedule()

    def pause_after(waited: float) -> float:
        schedule.record(0)
        schedule.record(1, waited=waited)
        schedule.record(0)
        return schedule.pause()

    early = [pause_after(0.001) for _ in range(100)]
    assert early == sorted(early)
    assert early[0] == pytest.approx(1.1 * FIRST)
    assert early[-1] == pytest.approx(20 * FIRST)
    assert [pause_after(0.05) for _ in range(6)] == pytest.approx(
        [10 * FIRST, 5 * FIRST, 2.5 * FIRST, 1.25 * FIRST, FIRST, FIRST]
    )


def test_a_job_that_no_pause_came_before_says_nothing_about_others(time: Time) -> None:
    """It was announced, made available by this process, or enqueued during the claim before."""
    schedule = IdlenessSchedule()
    schedule.record(1)
    for _ in range(50):
        schedule.record(1, waited=0.001)
    for _ in range(50):
        schedule.record(0)
        schedule.wake()
        assert schedule.due(connections["default"])
        schedule.record(1, waited=0.001)
    schedule.record(0)
    assert schedule.pause() == pytest.approx(FIRST)


def fleet(time: Time, workers: int, rate: float, seconds: float) -> tuple[float, list[float]]:
    """Looks a second of workers that share ``rate`` jobs a second, at random moments, and the waits
    of the jobs. What came before the second half is not counted.
    """
    dice = random.Random(5)
    time.dice = dice.random
    schedules = [IdlenessSchedule() for _ in range(workers)]
    began, half = time.now, time.now + seconds / 2
    number = count()
    events = [(began + 0.01 * dice.random(), next(number), schedule) for schedule in schedules]
    heapq.heapify(events)
    arrives = began + dice.expovariate(rate)
    waiting: list[float] = []
    looks, waits = 0, []
    while time.now < began + seconds:
        time.now, _, schedule = heapq.heappop(events)
        while arrives <= time.now:
            waiting.append(arrives)
            arrives += dice.expovariate(rate)
        found, waited = len(waiting), time.now - min(waiting, default=time.now)
        if time.now > half:
            looks += 1
            waits += [time.now - at for at in waiting]
        waiting.clear()
        time.now += LOOK
        # The commit of an enqueue takes a millisecond of what its job has waited.
        schedule.record(found, LOOK, waited + 0.001)
        if found:
            schedule.active()
        heapq.heappush(events, (time.now + schedule.pause(), next(number), schedule))
    return looks / (seconds / 2), sorted(waits)


@pytest.mark.parametrize(
    ("workers", "rate", "most"), [(1, 10, 250), (2, 10, 300), (50, 10, 800), (50, 100, 1200)]
)
def test_jobs_are_found_early_by_few_looks(time: Time, workers: int, rate: float, most: int) -> None:
    """Without the last part of the law fifty workers looked 3,500 times a second for 100 jobs."""
    looks, waits = fleet(time, workers, rate, 60)
    assert looks <= most
    assert waits[len(waits) // 2] < 0.0035
    assert waits[int(len(waits) * 0.99)] < 0.012


def test_who_listens_polls_seldom(time: Time) -> None:
    listening = threading.Event()
    listening.set()
    pauses = idle_looks(NotifiedSchedule(listening), time)
    assert [next(pauses) for _ in range(6)] == pytest.approx([0.25, 0.5, 1.0, 2.0, 2.0, 2.0])


def test_while_nobody_listens_pauses_double(time: Time) -> None:
    pauses = idle_looks(NotifiedSchedule(threading.Event()), time)
    expected = [0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.0, 2.0]
    assert [next(pauses) for _ in range(9)] == pytest.approx(expected)


def test_who_listens_waits_for_a_notification_after_a_job_too(time: Time) -> None:
    listening = threading.Event()
    listening.set()
    schedule = NotifiedSchedule(listening)
    schedule.record(0)
    schedule.active()
    assert schedule.pause() == pytest.approx(0.25)


def test_a_file_is_checked_by_idleness_too(time: Time) -> None:
    schedule = FileChangeSchedule("jobs.sqlite3")
    schedule.record(1)
    for idle, pause in ((0.0, 0.005), (0.2, 0.005), (1.0, 0.02), (2.0, 0.04), (30.0, 0.2)):
        assert schedule.check_after(1000.0 + idle) == pytest.approx(pause)
    time.now = 1030.0
    schedule.active()
    assert schedule.check_after(1030.0) == pytest.approx(0.005)
