"""What an operator tells a worker process reaches it with its next beat, and can be taken back."""

from __future__ import annotations

import signal

import pytest

from django_ojs import api
from django_ojs.models import Worker
from django_ojs.services import workers
from tests.process.tools import StartWorker, in_state, sabotaged
from tests.support import poll
from tests.workload import jobs

pytestmark = pytest.mark.process


def phase_is(phase: str) -> None:
    """Wait until the worker says so: it beats at least every five seconds."""
    poll(lambda: Worker.objects.filter(phase=phase).exists())


def beats(count: int) -> None:
    """Wait until the worker has sent so many."""
    for _ in range(count):
        before = Worker.objects.get().heartbeat_at
        poll(Worker.objects.exclude(heartbeat_at=before).exists)


def test_quiet_taken_back_and_told_to_stop(worker: StartWorker) -> None:
    runner = worker(**sabotaged("beats often"))
    phase_is("running")
    key = Worker.objects.get().pk
    workers.direct(key, "quiet")
    phase_is("quiet")
    waiting = jobs.echo.enqueue("quiet")
    workers.direct(key, None)
    in_state(waiting, "completed", timeout=30)
    phase_is("running")
    runner.send(signal.SIGTSTP)
    phase_is("quiet")
    late = jobs.echo.enqueue("late")
    workers.direct(key, "terminate")
    assert runner.wait() == 0
    assert api.get(late).state == "available", "what a signal said is not undone by a beat"
    phase_is("stopped")


def test_a_signal_outlives_a_directive_that_came_after_it(worker: StartWorker) -> None:
    """The operator of the machine has not said that it may go on."""
    runner = worker(**sabotaged("beats often"))
    phase_is("running")
    key = Worker.objects.get().pk
    runner.send(signal.SIGTSTP)
    phase_is("quiet")
    for directive in ("quiet", None):
        workers.direct(key, directive)
        # The first beat may have begun before the directive.
        beats(2)
    waiting = jobs.echo.enqueue("quiet")
    phase_is("quiet")
    assert "claiming resumes" not in runner.stderr
    runner.send(signal.SIGCONT)
    in_state(waiting, "completed")
