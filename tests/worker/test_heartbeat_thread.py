"""When the heartbeat thread tries again."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import OperationalError

from django_ojs import clock
from django_ojs.services import workers
from django_ojs.services.workers import WorkerInfo
from django_ojs.worker.threads.heartbeat import HeartbeatThread, WorkerSnapshot

pytestmark = pytest.mark.usefixtures("ojs_db")


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
    beats = HeartbeatThread(
        WorkerInfo("w1", clock.new_lease()),
        lambda: WorkerSnapshot("running", []),
        lambda sent, kept, at: None,
        lambda directive: None,
        "default",
    )
    assert beats.beat() == pytest.approx(pause)
    assert beats.silent_for(now[0]) == pytest.approx(took)
