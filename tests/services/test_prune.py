"""Retention: what is too old goes, in short transactions, by ids alone; nothing else notices."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models import QuerySet

from django_ojs import clock
from django_ojs.models import Event, Job, MaintenanceRun, Worker
from django_ojs.models.maintenance import PRUNE
from django_ojs.services import prune, workers
from django_ojs.store import invariants
from tests.services.support import ack, fail, make, take
from tests.support import ROOT, database_url, family

pytestmark = [pytest.mark.usefixtures("ojs_db"), pytest.mark.every_database]

_LONG_TEXT = {
    "postgresql": "to_jsonb(repeat('x', 1000000))",
    "mysql": "JSON_QUOTE(REPEAT('x', 1000000))",
    "sqlite": "json_quote(replace(hex(zeroblob(500000)), '0', 'x'))",
}
# ru_maxrss of a child counts what it shared with its parent before exec: so a small parent.
_MEASURED = """
import resource, subprocess, sys
done = subprocess.run([sys.executable, "manage.py", "ojs", "prune", "--format", "json"], check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def _broken(now: object) -> set[str]:
    found = invariants.check(now=now, slack=timedelta(seconds=5), using="default")  # type: ignore[arg-type]
    return {finding.name for finding in found}


def test_events_that_were_pruned_are_not_missing() -> None:
    """Jobs in the dead letter are kept for longer than their events."""
    make(2, retry={"max_attempts": 1})
    old, young = take(2)
    fail(old, young)
    later = clock.now("default") + timedelta(days=8)
    with clock.using_clock(clock.FrozenClock(later)):
        assert prune.prune().counts["events"] > 0
    assert not Event.objects.exists()
    assert _broken(later) == set()
    Job.objects.filter(pk=young.id).update(finished_at=later)
    assert _broken(later) == {"I17"}


def test_a_slice_says_whether_there_is_more(frozen: clock.FrozenClock) -> None:
    make(3)
    ack(*take(3))
    frozen.advance(8 * 86_400)
    early = prune.prune(seconds=0.0)
    assert MaintenanceRun.objects.get(name=PRUNE).behind
    assert (early.counts.total(), early.more) == (0, True)
    whole = prune.prune(seconds=60.0)
    run = MaintenanceRun.objects.get(name=PRUNE)
    assert (run.behind, run.last_run_at) == (False, frozen.time)
    assert (whole.counts["completed"], whole.more) == (3, False)
    assert not Job.objects.exists()


def test_a_prune_in_slices_goes_on_where_it_ended(frozen: clock.FrozenClock) -> None:
    """Not at the entries of what it has deleted; the next one sees what has come before that."""
    ids = [job.id for job in make(4)]
    for job_id, day in zip(ids, (3, 1, 2, 4), strict=True):
        ack(*take(1))
        ended = frozen.time + timedelta(days=day)
        Job.objects.filter(state="completed", finished_at=frozen.time).update(finished_at=ended)
        assert Job.objects.get(pk=job_id).finished_at == ended
    late, _, second, third = ids
    frozen.advance(30 * 86_400)
    front = prune.Front()

    def left() -> set[Any]:
        return {*Job.objects.values_list("pk", flat=True)}

    assert prune.prune(limit=1, front=front).counts["completed"] == 1
    assert left() == {late, second, third}
    assert prune.prune(limit=1, front=front).counts["completed"] == 1
    assert left() == {late, third}
    Job.objects.filter(pk=late).update(finished_at=frozen.time - timedelta(days=30))
    assert prune.prune(front=front).counts["completed"] == 1
    assert left() == {late}, "before the place"
    assert prune.prune(front=front).counts["completed"] == 1, "the run before found the end"


def test_a_long_prune_begins_at_the_front_every_minute(frozen: clock.FrozenClock) -> None:
    make(2)
    ack(*take(2))
    frozen.advance(30 * 86_400)
    front = prune.Front()
    assert prune.prune(limit=1, front=front).counts["completed"] == 1
    Job.objects.update(finished_at=frozen.time - timedelta(days=60))
    assert prune.prune(limit=1, front=front).counts["completed"] == 0
    front.places["completed"] = frozen.time - timedelta(days=40)
    front.since -= prune.WHOLE_EVERY + 1
    assert prune.prune(limit=1, front=front).counts["completed"] == 1


def test_events_go_on_where_they_ended() -> None:
    make(1, retry={"max_attempts": 1})
    fail(*take(1))
    front = prune.Front()
    oldest, *others = Event.objects.order_by("pk").values_list("pk", flat=True)
    assert others
    with clock.using_clock(clock.FrozenClock(clock.now("default") + timedelta(days=8))):
        assert prune.prune(limit=1, front=front).counts["events"] == 1
        assert front.places["events"] == oldest
        assert prune.prune(front=front).counts["events"] == len(others)
    assert not Event.objects.exists()
    assert not front.places


@pytest.mark.process
def test_large_rows_are_not_read() -> None:
    """500 finished jobs with a megabyte each, deleted by a process of less than 150 MiB."""
    make(500)
    for _ in range(5):
        ack(*take(100))
    with connection.cursor() as cursor:
        cursor.execute(
            f"UPDATE django_ojs_job SET args = {_LONG_TEXT[family()]}, finished_at = %s",
            ["2020-01-01 00:00:00+00:00" if family() == "postgresql" else "2020-01-01 00:00:00"],
        )
    made = subprocess.run(
        [sys.executable, "-c", _MEASURED],
        cwd=ROOT,
        env={"DJANGO_SETTINGS_MODULE": "tests.settings", "DATABASE_URL": database_url(), "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    counts, peak = made.stdout.splitlines()
    assert json.loads(counts)["completed"] == 500
    assert int(peak) < 150 * 1024, f"{int(peak) // 1024} MiB"
    assert not Job.objects.exists()


def test_a_worker_that_comes_back_while_it_is_forgotten_is_kept(
    monkeypatch: pytest.MonkeyPatch, frozen: clock.FrozenClock
) -> None:
    """With what it was told: its row is looked at again when it is deleted."""
    workers.seen("gone", "token:a", beats=True)
    key = workers.seen("back", "token:a", beats=True).pk
    workers.direct(key, "quiet")
    later = frozen.advance(2 * 86_400)
    delete = QuerySet._raw_delete

    def interrupted(self: Any, using: str) -> Any:
        if self.model is Worker:
            Worker.objects.filter(pk=key).update(heartbeat_at=later)
        return delete(self, using)

    monkeypatch.setattr(QuerySet, "_raw_delete", interrupted)
    prune.prune()
    assert list(Worker.objects.values_list("name", "directive")) == [("back", "quiet")]
