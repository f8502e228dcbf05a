"""What a worker does while nothing runs: promote and reap in time, and otherwise sleep."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import count

import pytest
from django.db import OperationalError

from django_ojs import clock, hooks
from django_ojs.api import enqueue, enqueue_many
from django_ojs.clock import FrozenClock
from django_ojs.hooks import MaintenanceResult, MaintenanceTask
from django_ojs.models import Job, MaintenanceRun
from django_ojs.models.maintenance import PRUNE
from django_ojs.services import reaper
from django_ojs.services.claim import claim, sources
from django_ojs.services.reap import ReapResult
from django_ojs.store.due_times import DueProbe, NextDue
from django_ojs.worker.executor.liveness import LivenessThread
from django_ojs.worker.threads import reaper as reaper_thread
from django_ojs.worker.threads.maintenance import MaintenanceThread
from django_ojs.worker.threads.reaper import ReaperThread
from tests.services.support import make, now_stored, take
from tests.support import poll

pytestmark = pytest.mark.every_database


@contextmanager
def maintained(
    on_promoted: Callable[[], None] = lambda: None,
) -> Iterator[tuple[MaintenanceThread, ReaperThread]]:
    """Both threads, as a worker has them."""
    maintenance = MaintenanceThread(on_promoted, using="default")
    reaper = ReaperThread(
        maintenance.promote, promoting=maintenance.promoting, ran_by="test", using="default"
    )
    for thread in (maintenance, reaper):
        thread.start()
    try:
        yield maintenance, reaper
    finally:
        for thread in (maintenance, reaper):
            thread.close()
        for thread in (maintenance, reaper):
            thread.join(15)
            assert not thread.is_alive()


@pytest.fixture
def promoted(ojs_db: None) -> Iterator[threading.Event]:
    """Set when running maintenance tasks have promoted something."""
    event = threading.Event()
    with maintained(event.set):
        yield event


@pytest.mark.slow
def test_chores_promote_what_was_known_and_what_was_not(promoted: threading.Event) -> None:
    for delay in ("50ms", "500ms"):
        promoted.clear()
        job = enqueue("test.job", delay=delay)
        assert promoted.wait(10)
        assert now_stored(job).state == "available"


def pause_after(reaper: ReaperThread, idle: float) -> float:
    """Seconds until the look after one at which nothing has changed for ``idle`` seconds."""
    at = reaper._changed_at + idle
    return reaper._look(at) - at


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow this machine is, looks count as answered at once."""
    monkeypatch.setattr(reaper_thread, "_RESTS", 0)


@pytest.mark.usefixtures("at_once")
def test_looks_become_rarer_while_nothing_changes(ojs_db: None) -> None:
    reaper = ReaperThread(lambda: None, ran_by="test", using="default")
    assert pause_after(reaper, 1) == pytest.approx(0.1)
    assert pause_after(reaper, 6) == pytest.approx(0.3)
    assert pause_after(reaper, 3600) == pytest.approx(0.5)
    enqueue("test.job", delay="1h", enqueue_ttl="2h")
    assert pause_after(reaper, 3600) == pytest.approx(0.1), "something was scheduled"
    assert pause_after(reaper, 3600) == pytest.approx(0.2), "it has a deadline"


@pytest.mark.usefixtures("at_once")
def test_jobs_that_come_in_end_the_rest_of_the_reaper(ojs_db: None) -> None:
    """What falls due within half a second may come with them."""
    reaper = ReaperThread(lambda: None, ran_by="test", using="default")
    reaper._changed_at -= 3600
    reaper.hurry()
    assert reaper._woken.is_set()
    assert pause_after(reaper, 1) == pytest.approx(0.1)
    reaper._woken.clear()
    reaper.hurry()
    assert not reaper._woken.is_set(), "it looks often enough as it is"


def test_looks_do_not_keep_a_busy_server_from_its_work(
    ojs_db: None, frozen: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of fifty workers each would ask ten times a second, however late it is answered."""
    reaper = ReaperThread(lambda: None, ran_by="test", using="default")
    began = clock.boottime()
    reaper._changed_at, look, late = began, DueProbe.look, 0.0

    def slow(probe: DueProbe, *, scheduled: bool = True) -> NextDue:
        nonlocal late
        late += 0.03
        return look(probe, scheduled=scheduled)

    monkeypatch.setattr(clock, "boottime", lambda: began + late)
    monkeypatch.setattr(DueProbe, "look", slow)
    assert reaper._look(began) - began == pytest.approx(0.3)


@pytest.mark.fault("F100")
def test_a_step_of_the_servers_clock_is_applied_at_once(ojs_db: None, frozen: FrozenClock) -> None:
    """By the look that saw it, not by the next scan, up to a second later: deadlines wait for it."""
    reaper = ReaperThread(lambda: None, ran_by="test", using="default")
    reaper._look(100.0)
    assert MaintenanceRun.objects.get(name="reap").clock_steps == 0
    frozen.set_server(600)
    reaper._look(100.1)
    assert MaintenanceRun.objects.get(name="reap").clock_steps == 1


def test_a_chore_that_fails_is_no_outage(ojs_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would restart the clock of every silent job, again and again (decision T9)."""
    failed = threading.Event()

    def fail(using: str) -> MaintenanceResult:
        failed.set()
        raise OperationalError("canceling statement due to statement timeout")

    monkeypatch.setattr(hooks, "maintenance_tasks", lambda: (MaintenanceTask("broken", 0.1, fail),))
    with maintained():
        assert failed.wait(10)
    assert not reaper._failed.is_set()


@pytest.mark.slow
def test_who_did_not_get_a_lock_tries_again_at_once(
    ojs_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table was locked: what fell due meanwhile ends when it is free, and not a second later."""
    tries, enough = count(1), threading.Event()

    def waited(loop: reaper.ReaperLoop, *, limit: int | None = None) -> ReapResult:
        if next(tries) == 20:
            enough.set()
        raise OperationalError(1205, "Lock wait timeout exceeded")

    monkeypatch.setattr(reaper.ReaperLoop, "tick", waited)
    with maintained():
        assert enough.wait(10)


def test_a_deadline_waits_for_no_chore(ojs_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs are due in numbers, and promoting them takes its time: what falls due meanwhile ends."""
    began, go_on = threading.Event(), threading.Event()

    def promote_many(using: str) -> MaintenanceResult:
        began.set()
        assert go_on.wait(60)
        return MaintenanceResult({"promoted": 1})

    monkeypatch.setattr(
        hooks,
        "maintenance_tasks",
        lambda: (MaintenanceTask("many", 0.1, promote_many, scheduled=True, enforces=True),),
    )
    enqueue("test.job", delay="1ms")
    with maintained():
        assert began.wait(15)
        overdue = enqueue("test.job", enqueue_ttl="10ms")
        stalled = enqueue("test.silent", heartbeat_timeout="100ms", retry={"max_attempts": 1})
        claim(sources(["default"], ["test.silent"]), limit=1, worker_id="w", beats=True)
        poll(lambda: {now_stored(overdue).state, now_stored(stalled).state} == {"discarded"}, 15)
        assert not go_on.is_set()
        go_on.set()


def test_enforcement_does_not_read_a_backlog_that_is_promoted(
    ojs_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MariaDB reads past everything that was promoted lately: such a look took seconds."""
    asked: list[bool] = []
    over = threading.Event()
    look = DueProbe.look

    def watched(probe: DueProbe, *, scheduled: bool = True) -> NextDue:
        asked.append(scheduled)
        return look(probe, scheduled=scheduled)

    def promote_some(using: str) -> MaintenanceResult:
        over.wait(0.05)
        return MaintenanceResult({"promoted": 1}, more=not over.is_set())

    monkeypatch.setattr(DueProbe, "look", watched)
    monkeypatch.setattr(
        hooks,
        "maintenance_tasks",
        lambda: (MaintenanceTask("many", 0.1, promote_some, scheduled=True, enforces=True),),
    )
    enqueue("test.job", delay="1ms")
    with maintained():
        poll(lambda: asked[-3:] == [False] * 3)
        over.set()
        poll(lambda: asked[-1])


@pytest.mark.slow
def test_a_deadline_is_kept_beside_a_backlog(ojs_db: None) -> None:
    """As it is recorded: less than a second late, or before the backlog was done."""
    (job,) = make(1, enqueue_ttl="1500ms")
    count = 4_000
    enqueue_many("test.late", [[n] for n in range(count)], delay="1s")
    with maintained():
        poll(lambda: not Job.objects.filter(state="scheduled").exists(), 60)
        poll(lambda: now_stored(job).state == "discarded", 15)
    late = Job.objects.filter(type="test.late", state="available")
    assert late.count() == count
    last = max(at for at in late.values_list("enqueued_at", flat=True) if at is not None)
    ended, deadline = now_stored(job).finished_at, job.deadline_at
    assert ended is not None
    assert deadline is not None
    assert ended < max(last, deadline + timedelta(seconds=1))


def test_chores_take_turns_until_they_are_done(ojs_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backlog of one is worked off without a pause of its period, and holds up no other."""
    ran: list[str] = []
    done = threading.Event()

    def slow(using: str) -> MaintenanceResult:
        ran.append("slow")
        if len(ran) > 12:
            done.set()
        return MaintenanceResult({"rows": 1}, more=not done.is_set())

    def other(using: str) -> MaintenanceResult:
        ran.append("other")
        return MaintenanceResult(more=not done.is_set())

    both = (MaintenanceTask("slow", 3600.0, slow), MaintenanceTask("other", 3600.0, other))
    monkeypatch.setattr(hooks, "maintenance_tasks", lambda: both)
    with maintained():
        assert done.wait(15)
    assert ran[:12] == ["slow", "other"] * 6


@pytest.mark.slow
def test_pruning_keeps_up_with_any_backlog(ojs_db: None) -> None:
    """6,000 rows past their retention: more than 5,000, which was once the most of a minute."""
    count = 6_000
    enqueue_many("test.old", [[n] for n in range(count)])
    long_ago = clock.now("default") - timedelta(days=30)
    Job.objects.update(state="completed", finished_at=long_ago)
    with maintained():
        poll(lambda: not Job.objects.exists(), 45)


@pytest.mark.slow
def test_a_worker_prunes_when_no_other_does(ojs_db: None) -> None:
    """Another has pruned half a minute ago; then it has not for as long that it must have died."""
    make(1)
    long_ago = clock.now("default") - timedelta(days=30)
    Job.objects.update(state="completed", finished_at=long_ago)
    runs = MaintenanceRun.objects.filter(name=PRUNE)
    since = clock.now("default") - timedelta(seconds=30)
    MaintenanceRun.objects.create(name=PRUNE, last_run_at=since, ran_by="another")
    with maintained() as (maintenance, _):
        assert maintenance.disconnected.wait(30), "it has had its turn"
    assert Job.objects.exists()
    assert runs.get().ran_by == "another"
    runs.update(last_run_at=since - timedelta(seconds=30))
    with maintained():
        poll(lambda: not Job.objects.exists())
        poll(lambda: runs.get().ran_by != "another")


@pytest.mark.slow
def test_an_idle_worker_closes_the_connection_of_its_chores(ojs_db: None) -> None:
    """And makes no statement but the looks of the reaper, which open it again when something is due."""
    event = threading.Event()
    with maintained(event.set) as (maintenance, reaper):
        assert maintenance.disconnected.wait(30)
        before, looks = maintenance.statements, reaper.statements
        poll(lambda: reaper.statements >= looks + 15, 30)
        assert maintenance.statements == before
        enqueue("test.job", delay="300ms")
        assert event.wait(15)


@pytest.mark.slow
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


def test_the_liveness_thread_writes_while_a_job_runs_and_rests_between_jobs() -> None:
    out, into = os.pipe()
    liveness = LivenessThread(into)
    liveness.start()
    try:
        for _ in range(2):
            liveness.busy(0.01, "test.job", "1")
            assert select.select([out], [], [], 10)[0]
            liveness.idle()
            poll(lambda: not liveness._wanted.is_set())
            os.read(out, 4096)
            assert not select.select([out], [], [], 0)[0]
    finally:
        os.close(out)
