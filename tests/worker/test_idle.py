"""What a worker does while nothing runs: promote and reap in time, and otherwise sleep."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Iterator

import pytest
from django.db import OperationalError

from django_ojs import hooks
from django_ojs.api import enqueue
from django_ojs.hooks import Chore, ChoreResult
from django_ojs.models import Job
from django_ojs.services import scan
from django_ojs.services.claim import claim, sources
from django_ojs.worker.chores import Chores
from django_ojs.worker.pulse import Pulse
from tests.services.support import make, now_stored, take
from tests.support import poll

pytestmark = pytest.mark.every_database


@pytest.fixture
def promoted(ojs_db: None) -> Iterator[threading.Event]:
    """Set when running chores have promoted something."""
    event = threading.Event()
    chores = Chores(event.set, ran_by="test", using="default")
    chores.start()
    yield event
    chores.close()
    chores.join(10)
    assert not chores.is_alive()


def test_chores_promote_what_was_known_and_what_was_not(promoted: threading.Event) -> None:
    for delay in ("50ms", "500ms"):
        promoted.clear()
        job = enqueue("test.job", delay=delay)
        assert promoted.wait(10)
        assert now_stored(job).state == "available"


def test_a_chore_that_fails_is_no_outage(ojs_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would restart the clock of every silent job, again and again (decision T9)."""
    failed = threading.Event()

    def fail(using: str) -> ChoreResult:
        failed.set()
        raise OperationalError("canceling statement due to statement timeout")

    monkeypatch.setattr(hooks, "chores", lambda: (Chore("broken", 0.1, fail),))
    chores = Chores(lambda: None, ran_by="test", using="default")
    chores.start()
    assert failed.wait(10)
    chores.close()
    chores.join(10)
    assert not scan._failed.is_set()


def test_chores_reap_deadlines_and_silence(promoted: threading.Event) -> None:
    make(
        timeout="300ms",
        grace_period=0,
        heartbeat_timeout=60,
        retry={"initial_interval": "PT1H", "jitter": False},
    )
    make(
        1,
        "test.silent",
        timeout=60,
        heartbeat_timeout="300ms",
        retry={"initial_interval": "PT1H", "jitter": False},
    )
    take()
    claim(sources(["default"], ["test.silent"]), limit=1, worker_id="w", beats=True)
    poll(lambda: Job.objects.filter(state="retryable").count() == 2)
    kinds = {row.error["timeout_kind"] for row in Job.objects.all() if row.error}
    assert kinds == {"execution", "stalled"}


def test_a_pulse_beats_while_a_job_runs_and_rests_between_jobs() -> None:
    out, into = os.pipe()
    pulse = Pulse(into)
    pulse.start()
    try:
        for _ in range(2):
            pulse.busy(0.01)
            assert select.select([out], [], [], 10)[0]
            pulse.idle()
            poll(lambda: not pulse._wanted.is_set())
            os.read(out, 4096)
            assert not select.select([out], [], [], 0)[0]
    finally:
        os.close(out)
