"""Retention: what is too old goes, in short transactions, by ids alone; nothing else notices."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.db.models import QuerySet

from django_ojs import cancel_workflow, clock, group, step
from django_ojs.models import Event, Job, MaintenanceRun, Worker
from django_ojs.models.maintenance import PRUNE
from django_ojs.services import attempt_logs, http_workers, prune, workers
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


def old(count: int, frozen: clock.FrozenClock) -> None:
    """So many completed jobs that are past their retention."""
    make(count)
    ack(*take(count))
    frozen.advance(8 * 86_400)


def slices(front: prune.Front, most: int = 100) -> list[Counter[str]]:
    """Slices that have time for one batch each, until the pass ends: what was deleted in each."""
    found: list[Counter[str]] = []
    while len(found) < most:
        pruned = prune.prune(seconds=0.0, front=front)
        found.append(+pruned.counts)
        if not pruned.more:
            return found
    raise AssertionError(f"no end after {most} slices")


def kinds() -> int:
    """How many kinds of rows there are; of unique keys a dry run says nothing."""
    return 1 + len(prune.prune(dry_run=True).counts)


def is_behind() -> bool:
    """What is recorded."""
    return MaintenanceRun.objects.get(name=PRUNE).behind


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches are of one row."""
    monkeypatch.setattr(prune, "BATCH", 1)


def test_a_slice_says_whether_there_is_more(frozen: clock.FrozenClock) -> None:
    old(3, frozen)
    early = prune.prune(seconds=0.0)
    assert (early.counts.total(), early.more) == (0, True), "there is nothing of the first kind"
    whole = prune.prune(seconds=60.0)
    run = MaintenanceRun.objects.get(name=PRUNE)
    assert (run.behind, run.last_run_at) == (False, frozen.time)
    assert (whole.counts["completed"], whole.more) == (3, False)
    assert not Job.objects.exists()


def test_slices_that_are_too_short_for_all_kinds_get_through(frozen: clock.FrozenClock) -> None:
    """As on a server that needs the time of a slice for a statement."""
    old(3, frozen)
    front = prune.Front()
    found = slices(front)
    assert len(found) == kinds(), "each is looked at once"
    assert sum(found, Counter())["completed"] == 3
    assert not Job.objects.exists()
    old(1, frozen)
    assert sum(slices(front), Counter())["completed"] == 1, "the next pass looks at all of them again"


@pytest.mark.slow
def test_a_kind_is_looked_at_until_its_end_was_found(frozen: clock.FrozenClock, small: None) -> None:
    old(5, frozen)
    found = slices(prune.Front())
    assert len(found) == kinds() + 5
    assert found[-5:] == [*[Counter(completed=1)] * 4, Counter()]


@pytest.mark.slow
def test_a_backlog_keeps_no_other_kind_waiting(small: None) -> None:
    make(9)
    ack(*take(9))
    make(3, retry={"max_attempts": 1})
    fail(*take(3))
    events = Event.objects.count()
    assert events >= 3
    front = prune.Front()
    with clock.using_clock(clock.FrozenClock(clock.now("default") + timedelta(days=8))):
        for _ in range(kinds() + 2 * 2):
            prune.prune(seconds=0.0, front=front)
        assert Job.objects.filter(state="completed").count() == 9 - 3
        assert Event.objects.count() == events - 3
        slices(front)
    assert not Job.objects.filter(state="completed").exists()
    assert not Event.objects.exists()


def test_the_jobs_of_workflows_go_in_the_pass_of_these(frozen: clock.FrozenClock, small: None) -> None:
    """They are kept as long as the workflow is: so they wait until it was deleted."""
    first = group(step("test.job")).enqueue()
    cancel_workflow(first.id)
    frozen.advance(1)
    for _ in range(2):
        group(step("test.job"), step("test.job")).enqueue()
    ack(*take(4))
    frozen.advance(60 * 86_400)
    deleted = prune.prune().counts
    assert (deleted["workflows"], deleted["cancelled"], deleted["completed"]) == (3, 1, 4)
    assert not Job.objects.exists()


def test_the_limit_is_of_each_kind(frozen: clock.FrozenClock, small: None) -> None:
    """Of jobs too, whatever is left of the workflows that go before them."""
    for _ in range(3):
        group(step("test.job")).enqueue()
    make(3)
    ack(*take(6))
    frozen.advance(60 * 86_400)
    pruned = prune.prune(limit=2)
    assert (pruned.counts["workflows"], pruned.counts["completed"]) == (2, 2)
    assert is_behind()
    assert prune.prune(limit=0).counts.total() == 0
    assert prune.prune().counts["completed"] == 4
    assert not is_behind()


def test_behind_is_what_has_rows_left(frozen: clock.FrozenClock, small: None) -> None:
    """Not every pass that takes more than one slice."""
    front = prune.Front()
    prune.prune(seconds=0.0, front=front)
    assert not is_behind(), "nothing was found so far"
    slices(front)
    old(3, frozen)
    while not prune.prune(seconds=0.0, front=front).counts["completed"]:
        assert not is_behind()
    assert is_behind()
    assert prune.prune(seconds=0.0).more
    assert is_behind(), "who begins does not know yet"
    slices(front)
    assert not is_behind()


def test_a_kind_that_fails_keeps_no_other_waiting(
    frozen: clock.FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    http_workers.seen("gone", "token:a", beats=True)
    old(1, frozen)
    front = prune.Front()
    with monkeypatch.context() as patch:
        patch.setattr(attempt_logs, "forget", _fail)
        with pytest.raises(OperationalError):
            prune.prune(front=front)
        assert Worker.objects.exists()
        with pytest.raises(OperationalError):
            prune.prune(front=front)
        assert not Worker.objects.exists(), "it comes after the logs"
        with pytest.raises(OperationalError):
            prune.prune(front=front)
    assert not prune.prune(front=front).more


def _fail(*_: Any) -> int:
    raise OperationalError("canceling statement due to statement timeout")


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


def test_a_long_pass_looks_at_all_again_every_minute(frozen: clock.FrozenClock) -> None:
    """From the front, and at the kinds of which there was an end."""
    old(5, frozen)
    front = prune.Front()
    assert prune.prune(limit=2, front=front).counts["completed"] == 2
    early = Job.objects.values_list("pk", flat=True)[0]
    Job.objects.filter(pk=early).update(finished_at=frozen.time - timedelta(days=60))
    http_workers.seen("gone", "token:a", beats=True)
    Worker.objects.update(heartbeat_at=frozen.time - timedelta(days=60))
    assert prune.prune(limit=1, front=front).counts["completed"] == 1
    assert Job.objects.filter(pk=early).exists()
    assert Worker.objects.exists()
    front.since -= prune.WHOLE_EVERY + 1
    again = prune.prune(limit=1, front=front).counts
    assert (again["completed"], again["workers"]) == (1, 1)
    assert not Job.objects.filter(pk=early).exists()


@pytest.mark.parametrize("apart", [0, 1], ids=["at one moment", "one by one"])
def test_what_is_behind_jobs_that_are_kept_is_deleted(
    frozen: clock.FrozenClock, monkeypatch: pytest.MonkeyPatch, apart: int
) -> None:
    """Of those only the last window is looked at by the next pass, until an hour is over."""
    monkeypatch.setattr(prune, "WINDOW", 2)
    make(9, retry={"max_attempts": 1})
    jobs = take(9)
    fail(*jobs)
    kept = jobs[:5]
    for number, job in enumerate(jobs):
        ended = frozen.time + timedelta(seconds=apart * number)
        Job.objects.filter(pk=job.id).update(finished_at=ended, dead_letter=job in kept)
    frozen.advance(60 * 86_400)
    front = prune.Front()
    assert sum(slices(front), Counter())["discarded"] == 4
    assert {*Job.objects.values_list("pk", flat=True)} == {job.id for job in kept}
    early = frozen.time - timedelta(days=70)
    Job.objects.filter(pk=jobs[0].id).update(dead_letter=False, finished_at=early)
    assert sum(slices(front), Counter())["discarded"] == 0
    front.kept_since -= prune.KEPT_EVERY + 1
    assert sum(slices(front), Counter())["discarded"] == 1
    assert Job.objects.count() == 4


def test_jobs_that_were_kept_for_their_workflow_go_with_it(
    frozen: clock.FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prune, "WINDOW", 1)
    group(*[step("test.job")] * 3, step("test.other")).enqueue()
    for job in take(3):
        frozen.advance(1)
        ack(job)
    frozen.advance(8 * 86_400)
    make(2)
    front = prune.Front()
    assert sum(slices(front), Counter())["completed"] == 0
    ack(*take(1, types=("test.other",)), *take(2))
    frozen.advance(8 * 86_400)
    assert sum(slices(front), Counter()) >= Counter(workflows=1, completed=6)


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
    http_workers.seen("gone", "token:a", beats=True)
    key = http_workers.seen("back", "token:a", beats=True).pk
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
