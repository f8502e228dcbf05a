"""For how long the main loop waits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from django_ojs import clock
from django_ojs.worker.supervisor.runner import Runner
from django_ojs.worker.supervisor.shutdown import Shutdown, WorkerPhase


@pytest.mark.parametrize(
    ("left", "expected"), [(None, 2.0), (1.0, 1.0), (60.0, 2.0), (0.0, 0.05), (-3.0, 0.05)]
)
def test_the_loop_waits_after_the_end_of_the_shutdown_timeout_too(
    monkeypatch: pytest.MonkeyPatch, left: float | None, expected: float
) -> None:
    """Until the last report is written, or it gives up five seconds later, it must not spin."""
    monkeypatch.setattr(clock, "boottime", lambda: 1000.0)
    runner: Any = SimpleNamespace(
        _loop=SimpleNamespace(has_calls=False),
        _signals=[],
        _dispatcher=SimpleNamespace(next_wait=lambda now: None),
        _pool=[],
        _recycler=SimpleNamespace(missing=False),
        shutdown=Shutdown(
            WorkerPhase.RUNNING if left is None else WorkerPhase.TERMINATE,
            None if left is None else 1000.0 + left,
        ),
    )
    assert Runner._wait(runner, 2.0) == pytest.approx(expected)
