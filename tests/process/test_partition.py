"""What must never overlap, when its worker is suspended past the heartbeat timeout."""

from __future__ import annotations

import os
import signal
from functools import partial

import pytest

from django_ojs.boottime import boottime
from tests.process.tools import Diary, Flag, Start, StartWorker, in_state, outcomes, parent_of, suspend
from tests.support import alive, descendants, poll
from tests.workload import exclusive

pytestmark = [pytest.mark.every_database, pytest.mark.process]


def gone(*pids: int) -> bool:
    """Whether none of these runs any more."""
    return not any(alive(pid) for pid in pids)


@pytest.mark.fault("F129")
def test_handlers_die_in_time_while_the_worker_itself_is_suspended(
    worker: StartWorker, manage: Start, diary: Diary, flag: Flag
) -> None:
    """The rest of the worker runs: nothing is left of the job, nor of what helped it."""
    job = exclusive.deaf.enqueue(diary.path, flag.path)
    first = worker("--no-maintenance")
    _, pid, helper = map(int, diary.wait("started"))
    suspend(first.pid)
    suspended_at = boottime()
    poll(partial(gone, pid, helper))
    assert exclusive.ticks(diary.path)[-1].moment < suspended_at + exclusive.HEARTBEAT
    manage("reap_timeouts", "--loop")
    worker("--no-maintenance")
    diary.wait("started", 2)
    os.kill(first.pid, signal.SIGCONT)
    flag.set()
    assert in_state(job, "completed").attempt == 2
    assert outcomes(job) == ["stalled", "completed"]
    assert first.running


@pytest.mark.fault("F129")
def test_handlers_die_in_time_while_every_process_of_the_worker_is_suspended(
    worker: StartWorker, manage: Start, diary: Diary, flag: Flag
) -> None:
    """Nobody is left to kill them but the system; when all go on, not an instruction of theirs runs."""
    job = exclusive.obedient.enqueue(diary.path, flag.path)
    first = worker("--no-maintenance")
    pid = int(diary.wait("started")[1])
    monitor = parent_of(pid)
    everybody = [first.pid, *descendants(first.pid)]
    assert {pid, monitor} < set(everybody)
    suspend(*everybody)
    before = exclusive.ticks(diary.path)
    poll(partial(gone, pid, monitor))
    manage("reap_timeouts", "--loop")
    second = worker("--no-maintenance")
    diary.wait("started", 2)
    for one in everybody:
        if alive(one):
            os.kill(one, signal.SIGCONT)
    flag.set()
    assert in_state(job, "completed").attempt == 2
    assert outcomes(job) == ["stalled", "completed"]
    assert [tick for tick in exclusive.ticks(diary.path) if tick.attempt == 1] == before
    again = exclusive.obedient.enqueue(diary.path, flag.path)
    second.end()
    in_state(again, "completed")
    assert first.running, "it has started another executor"
