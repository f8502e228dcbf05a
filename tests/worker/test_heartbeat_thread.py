"""When the heartbeat thread tries again."""

from __future__ import annotations

import os
from typing import Any

import pytest
from django.db import OperationalError

from django_ojs import clock
from django_ojs.domain.leases import Lease
from django_ojs.models import Worker
from django_ojs.services import leases, workers
from django_ojs.services.workers import WorkerInfo
from django_ojs.worker.prefork import linux
from django_ojs.worker.prefork.leased import Deadlines, LeasedJob
from django_ojs.worker.threads.heartbeat import HeartbeatThread, WorkerSnapshot
from tests.services.support import make, take

pytestmark = pytest.mark.usefixtures("ojs_db")


def a_thread() -> HeartbeatThread:
    """Of a worker without jobs."""
    return HeartbeatThread(
        WorkerInfo("w1", clock.new_lease()),
        lambda: WorkerSnapshot("running", []),
        lambda sent, kept, at: None,
        lambda directive: None,
        "default",
    )


@pytest.mark.parametrize(("took", "pause"), [(0.01, 0.99), (0.4, 0.6), (3.0, 0.05)])
def test_a_beat_that_fails_is_tried_again_within_a_second_of_its_beginning(
    monkeypatch: pytest.MonkeyPatch, took: float, pause: float
) -> None:
    """At once after one that hung: its jobs are judged as soon as the judge is connected again."""
    now = [1000.0]

    def away(*args: Any, **kwargs: Any) -> Any:
        now[0] += took
        raise OperationalError("no answer")

    monkeypatch.setattr(clock, "boottime", lambda: now[0])
    monkeypatch.setattr(workers, "report", away)
    beats = a_thread()
    assert beats.beat() == pytest.approx(pause)
    assert beats.silent_for(now[0]) == pytest.approx(took)


@pytest.mark.parametrize(("took", "pause"), [(0.01, 4.99), (3.0, 2.0), (20.0, 0.05)])
def test_the_interval_begins_with_the_beat(
    monkeypatch: pytest.MonkeyPatch, took: float, pause: float
) -> None:
    """One whose commit waited for a standby is as old as the wait when it lands."""
    now = [1000.0]

    def slow(*args: Any, **kwargs: Any) -> Any:
        now[0] += took

    monkeypatch.setattr(clock, "boottime", lambda: now[0])
    monkeypatch.setattr(workers, "report", slow)
    beats = a_thread()
    assert beats.beat() == pytest.approx(pause)
    assert beats.silent_for(now[0]) == 0


def test_a_beat_that_is_asked_for_during_a_beat_reports_the_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A directive may have been given after the report of that beat had read it."""
    reports = 0

    def report(*args: Any, **kwargs: Any) -> None:
        nonlocal reports
        reports += 1
        if reports == 1:
            beats.now()

    monkeypatch.setattr(workers, "report", report)
    beats = a_thread()
    for _ in range(3):
        beats.beat()
    assert reports == 2


def test_a_sign_of_life_counts_until_a_beat_has_arrived(monkeypatch: pytest.MonkeyPatch) -> None:
    """In manual mode each counts once: a beat that fails must not use it up."""
    make(1)
    (job,) = take(1)
    running = LeasedJob(job, clock.new_lease().hex, 1.0, Deadlines(100.0, 100.0))
    running.manual, running.began_at, running.seen_at = True, 1.0, 2.0
    sent: list[list[Lease]] = []
    real = leases.beat

    def once_away(held: list[Lease], **options: Any) -> Any:
        sent.append(held)
        if len(sent) == 1:
            raise OperationalError("no answer")
        return real(held, **options)

    monkeypatch.setattr(leases, "beat", once_away)
    beats = HeartbeatThread(
        WorkerInfo("w1", clock.new_lease()),
        lambda: WorkerSnapshot("running", [running]),
        lambda sent, kept, at: None,
        lambda directive: None,
        "default",
    )
    for _ in range(3):
        beats.beat()
    assert sent == [[running.held]] * 2, "the third beat has nothing new to vouch for"
    running.seen_at = 3.0
    beats.beat()
    assert len(sent) == 3


@pytest.mark.usefixtures("ojs_db")
@pytest.mark.parametrize("ids", [[os.getpid()], [os.getpid(), os.getpid(), 2**22 + 1], []])
def test_a_beat_reports_the_memory_of_the_processes(ids: list[int]) -> None:
    """Of those that there are."""
    info = WorkerInfo("w1", clock.new_lease())
    workers.register(info)
    beats = HeartbeatThread(
        info,
        lambda: WorkerSnapshot("running", [], (), ids),
        lambda sent, kept, at: None,
        lambda directive: None,
        "default",
    )
    beats.beat()
    found = Worker.objects.get().rss_bytes
    known = [linux.rss_bytes(pid) for pid in ids if pid == os.getpid()]
    assert (found or 0) == pytest.approx(sum(known), rel=0.2)
    assert (found is None) is (not known)
    workers.register(info)
    assert Worker.objects.get().rss_bytes is None
