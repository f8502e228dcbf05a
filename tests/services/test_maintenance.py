"""How far behind the periodic work is, as ``ojs status`` and ``ojs check`` say it."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command

from django_ojs import clock, group, step
from django_ojs.models import Job
from django_ojs.services import backlog, promote, prune, reap, rollup
from django_ojs.services.backlog import Behind
from django_ojs.store import selectors
from tests.services.support import ack, fail, make, take

pytestmark = [pytest.mark.usefixtures("ojs_db"), pytest.mark.every_database]


def said(*words: str) -> str:
    """What the command prints; a broken invariant is not the matter here."""
    out = StringIO()
    with suppress(SystemExit):
        call_command("ojs", *words, stdout=out)
    return out.getvalue()


def test_nothing_waits() -> None:
    make(2)
    ack(*take(1))
    rollup.rollup()
    assert set(backlog.backlog().values()) == {Behind()}
    assert "waiting" not in said("status")


def test_each_is_seen_and_gone_when_it_is_done() -> None:
    make(3, enqueue_ttl=60)
    make(2, delay=60)
    make(4, "test.done", retry={"max_attempts": 1})
    done = take(4, types=["test.done"])
    ack(*done[:3])
    fail(*done[3:])
    now = clock.now("default") + timedelta(seconds=70)
    Job.objects.filter(type="test.done").update(finished_at=now - timedelta(days=7, seconds=5))
    found = backlog.backlog(now=now)
    assert {name: behind.rows for name, behind in found.items()} == {
        "deadlines": 3,
        "promotion": 2,
        "pruning": 3,
        "rollup": 0,
    }
    assert 9 <= found["deadlines"].seconds <= 11
    assert 9 <= found["promotion"].seconds <= 11
    assert 4 <= found["pruning"].seconds <= 6
    later = now + timedelta(days=8)
    assert backlog.backlog(now=later)["pruning"].rows > 3, "events too"
    with clock.using_clock(clock.FrozenClock(now)):
        reap.reap()
        promote.promote()
        prune.prune()
        assert set(backlog.backlog().values()) == {Behind()}


def test_jobs_that_are_kept_for_their_workflow_are_no_backlog() -> None:
    made = group(step("test.job"), step("test.other")).enqueue()
    ack(*take(1))
    make(1)
    ack(*take(1))
    now = clock.now("default")
    Job.objects.filter(state="completed").update(finished_at=now - timedelta(days=8))
    assert backlog.backlog(now=now)["pruning"] == Behind(1, 86_400.0)
    prune.prune()
    assert Job.objects.filter(state="completed", workflow_id=made.id).count() == 1
    assert backlog.backlog(now=now)["pruning"] == Behind()


def test_a_backlog_between_jobs_that_are_kept_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody counts them all; the newest are the last to be pruned."""
    monkeypatch.setattr(selectors, "COUNT_CAP", 4)
    make(6, retry={"max_attempts": 1})
    jobs = take(6)
    fail(*jobs)
    now = clock.now("default")
    for days, job in enumerate(jobs, 31):
        ended = now - timedelta(days=days)
        Job.objects.filter(pk=job.id).update(finished_at=ended, dead_letter=days > 32)
    assert backlog.backlog(now=now)["pruning"] == Behind(2, 2 * 86_400.0)


def test_the_roll_up_is_behind_when_nobody_runs_it() -> None:
    rollup.rollup()
    now = clock.now("default")
    assert backlog.backlog(now=now + timedelta(minutes=1))["rollup"] == Behind()
    assert backlog.backlog(now=now + timedelta(hours=1))["rollup"].rows in (59, 60)


def test_status_and_check_say_it() -> None:
    make(2)
    Job.objects.update(state="scheduled", scheduled_at=clock.now("default") - timedelta(seconds=30))
    for verb in ("status", "check"):
        answer: Any = json.loads(said(verb, "--format", "json"))
        assert answer["backlog"]["promotion"]["rows"] == 2
        assert 29 <= answer["backlog"]["promotion"]["seconds"] <= 60
        assert answer["backlog"]["pruning"] == {"rows": 0, "seconds": 0.0}
        assert "promotion: 2 waiting, 3" in said(verb)
