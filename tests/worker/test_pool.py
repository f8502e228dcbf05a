"""How patient the pool is with executors that cannot start, and with those that are to end."""

from __future__ import annotations

import os
import selectors
from collections.abc import Iterator

import pytest

from django_ojs.worker.prefork import messages
from django_ojs.worker.prefork import pool as pool_module
from django_ojs.worker.prefork.child import Phase
from django_ojs.worker.prefork.frames import MAX_PACKET
from django_ojs.worker.prefork.pool import EXIT_TIMEOUT, Pool
from django_ojs.worker.prefork.zygote import SpawnServer


class Steady:
    """A steady clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def steady(monkeypatch: pytest.MonkeyPatch) -> Steady:
    """The clock of the pool."""
    stopped = Steady()
    monkeypatch.setattr(pool_module, "boottime", stopped)
    return stopped


class Silent(SpawnServer):
    """Starts nothing: whoever is asked to end does not."""

    def spawn(self, *ends: object) -> None:
        """Take the ends of a child that never comes."""


@pytest.fixture
def pool(steady: Steady) -> Iterator[Pool]:
    """A pool that starts nothing."""
    with selectors.DefaultSelector() as selector:
        made = Pool(selector, Silent(), on_frame=lambda *given: None, on_gone=lambda *given: None)
        yield made
        for child in made:
            child.channel.close()
            child.control.close()
            os.close(child.liveness)


def test_executors_that_end_together_are_waited_for_once(pool: Pool, steady: Steady) -> None:
    for _ in range(8):
        pool.record_start_failure()
        steady.now += 0.01
    assert pool.spawn_after == pytest.approx(1000.4)


def test_the_wait_grows_to_ten_seconds_and_begins_anew(pool: Pool, steady: Steady) -> None:
    waits = []
    for _ in range(8):
        pool.record_start_failure()
        waits.append(pool.spawn_after - steady.now)
        steady.now = pool.spawn_after
    assert waits == pytest.approx([0.4, 0.8, 1.6, 3.2, 6.4, 10, 10, 10])
    pool.started()
    pool.record_start_failure()
    assert pool.spawn_after - steady.now == pytest.approx(0.4)


def test_one_that_is_leaving_keeps_its_time_when_it_is_asked_again(pool: Pool, steady: Steady) -> None:
    """A worker that ended while it replaced an executor killed it before its ``before_exit`` calls."""
    child = pool.spawn()
    child.phase = Phase.READY
    pool.end(child)
    phases = []
    for wait in (EXIT_TIMEOUT / 2, EXIT_TIMEOUT):
        steady.now += wait
        pool.end(child)
        pool.check()
        phases.append(child.phase)
    assert phases == [Phase.LEAVING, Phase.DYING]


@pytest.mark.parametrize("text", ["\ud800", "x" * MAX_PACKET])
def test_what_cannot_be_packed_costs_only_the_executor_that_it_is_for(pool: Pool, text: str) -> None:
    child, other = pool.spawn(), pool.spawn()
    child.phase = other.phase = Phase.READY
    pool.send(child, {"op": "reply", "number": 1, "value": text})
    pool.send(other, messages.give_back("a lease"))
    pool.flush()
    assert (child.phase, other.phase) == (Phase.DYING, Phase.READY)
    assert not child.unsent
    pool.flush()


def test_a_process_that_may_not_be_signalled_ends_nothing_else(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handler may have replaced its executor by a program that runs as another user."""
    refused = []

    def kill(pid: int, number: int) -> None:
        refused.append(pid)
        raise PermissionError(pid)

    monkeypatch.setattr(os, "kill", kill)
    child = pool.spawn()
    child.phase, child.pid, child.monitor = Phase.READY, 101, 102
    pool.wake(child)
    pool.kill(child)
    assert refused == [101, 101, 102]
