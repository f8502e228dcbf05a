"""A worker is cut off from the database for three heartbeat timeouts; the other one is not."""

from __future__ import annotations

import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from django_ojs import api
from django_ojs.boottime import boottime
from django_ojs.domain.job_record import JobRecord
from django_ojs.models import Worker
from tests.clusters.clusters import Cluster
from tests.clusters.proxy import Proxy
from tests.clusters.test_restarts import nothing_is_violated
from tests.process.tools import Diary, Flag, StartWorker, in_state, outcomes
from tests.support import poll
from tests.workload import exclusive

CUT_OFF = 3 * exclusive.HEARTBEAT


def overlap(diary: str, job: JobRecord) -> float:
    """Seconds for which two attempts of the job ran at a time; negative if none did."""
    ticks = [tick for tick in exclusive.ticks(diary) if tick.job == str(job.id)]
    first, second = ([tick.moment for tick in ticks if tick.attempt == number] for number in (1, 2))
    return max(first) - min(second)


def phase_is(phase: str) -> bool:
    """Whether the worker that is not cut off is in this phase."""
    return Worker.objects.filter(name="other", phase=phase).exists()


@pytest.mark.fault("F129")
@pytest.mark.parametrize(
    "rounds", [1, pytest.param(20, marks=[pytest.mark.long, pytest.mark.timeout(1200)])]
)
def test_what_must_not_overlap_ends_before_it_runs_elsewhere(
    cluster: Cluster, proxy: Callable[[], Proxy], worker: StartWorker, tmp_path: Path, rounds: int
) -> None:
    """Handlers say all the while that they run: that, and nothing else, is the judge."""
    way = proxy()
    url = cluster.url(way.port)
    other = worker("--concurrency=2", "--worker-id=other")
    cut_off = worker("--concurrency=2", "--worker-id=cut-off", "--no-maintenance", DATABASE_URL=url)
    poll(partial(phase_is, "running"))
    for number in range(1, rounds + 1):
        other.send(signal.SIGTSTP)
        poll(partial(phase_is, "quiet"))
        diary, flag = Diary(tmp_path / f"diary-{number}"), Flag(tmp_path / f"flag-{number}")
        jobs = [one.enqueue(diary.path, flag.path) for one in (exclusive.obedient, exclusive.deaf)]
        try:
            diary.wait("started", 2)
        except AssertionError:
            # Shown with the failure.
            print(f"round {number}", cut_off.running, cut_off.stderr[-4000:])
            raise
        assert {api.get(job).worker_id for job in jobs} == {"cut-off"}
        way.silence()
        until = boottime() + CUT_OFF
        other.send(signal.SIGCONT)
        diary.wait("started", 4)
        assert {api.get(job).worker_id for job in jobs} == {"other"}
        poll(lambda until=until: boottime() > until)  # type: ignore[misc]
        way.speak()
        flag.set()
        for job in jobs:
            assert in_state(job, "completed").attempt == 2
            assert outcomes(job) == ["stalled", "completed"]
            assert overlap(diary.path, job) < 0
        assert ["lost"] in diary.lines("stopped")
    nothing_is_violated()
