"""The server's clock is set: whoever looks notices, it is applied once, and is nobody's silence."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from django.core.management import call_command
from django.db import connections
from django.test.utils import CaptureQueriesContext

from django_ojs import clock
from django_ojs.api import enqueue
from django_ojs.clock import DatabaseClock, FrozenClock
from django_ojs.models import LeaseBeat, MaintenanceRun
from django_ojs.services import leases, operate, reaper
from django_ojs.services.rate_limits import admission
from django_ojs.services.reaper import ReaperLoop
from tests.services.support import held, holding, make, nobody_admits, now_stored, take

pytestmark = [pytest.mark.usefixtures("ojs_db"), pytest.mark.every_database]
STEPS = [600, -600, 3600, -3600]


def a_loop() -> ReaperLoop:
    return ReaperLoop(interval=0.2, ran_by="test", using="default")


def tick(frozen: FrozenClock, seconds: float, loop: ReaperLoop) -> list[str]:
    """What a loop ends in some time."""
    ended: list[str] = []
    for _ in range(round(seconds * 5)):
        frozen.advance(0.2)
        ended += loop.tick().counts.elements()
    return ended


@pytest.mark.fault("F100")
@pytest.mark.parametrize("seconds", STEPS)
def test_a_step_ends_no_attempt_and_hides_no_death(frozen: FrozenClock, seconds: int) -> None:
    make(2, timeout=900, heartbeat_timeout=8, retry={"max_attempts": 1})
    dead, living = take(2)
    assert dead.started_at and living.started_at and living.deadline_at
    loop = a_loop()
    assert tick(frozen, 4, loop) == []
    leases.beat([held(living)])
    frozen.set_server(seconds)
    assert tick(frozen, 3.6, loop) == []
    assert frozen.time == dead.started_at + timedelta(seconds=seconds + 7.6)
    leases.beat([held(living)])
    assert tick(frozen, 4, loop) == ["stalled"]
    stored = now_stored(living)
    step = timedelta(seconds=seconds)
    assert (stored.started_at, stored.deadline_at) == (
        living.started_at + step,
        living.deadline_at + step,
    )
    assert MaintenanceRun.objects.get(name="reap").clock_steps == 1
    assert now_stored(dead).state == "discarded"


def test_the_log_has_the_step_in_seconds(frozen: FrozenClock, caplog: pytest.LogCaptureFixture) -> None:
    loop = a_loop()
    tick(frozen, 1, loop)
    frozen.set_server(-30)
    tick(frozen, 1, loop)
    assert "the database clock was set by -30.0 s; running jobs were adjusted" in caplog.messages


@pytest.mark.parametrize("seconds", [600, -600])
def test_what_is_by_the_clock_on_the_wall_does_not_move(frozen: FrozenClock, seconds: int) -> None:
    make(1, timeout=60, total_timeout=1000)
    (running,) = take()
    waiting = enqueue("t.later", delay=900)
    mortal = enqueue("t.mortal", enqueue_ttl=800)
    loop = a_loop()
    tick(frozen, 1, loop)
    frozen.set_server(seconds)
    tick(frozen, 1, loop)
    assert now_stored(waiting).scheduled_at == waiting.scheduled_at
    assert now_stored(mortal).deadline_at == mortal.deadline_at
    total = running.created_at + timedelta(seconds=1000)
    deadline = running.deadline_at
    assert deadline is not None and deadline < total
    assert now_stored(running).deadline_at == min(deadline + timedelta(seconds=seconds), total)


def test_the_number_that_a_process_learns_first_is_no_step(frozen: FrozenClock) -> None:
    """A worker that has just begun judges silences at once: nobody set a clock."""
    make(1, heartbeat_timeout=8, retry={"max_attempts": 1})
    take()
    assert tick(frozen, 7.6, a_loop()) == []
    reaper.scan(cadence=timedelta(seconds=5), ran_by="before")
    frozen.number = None
    beginning = a_loop()
    frozen.number = 0
    assert tick(frozen, 1, beginning) == ["stalled"]


def test_a_step_is_applied_once(frozen: FrozenClock) -> None:
    """Two processes have seen it; the second finds it counted."""
    make(1, heartbeat_timeout=8)
    (job,) = take()
    reaper.scan(cadence=timedelta(seconds=5), ran_by="one")
    start, frozen.number = frozen.time, 0
    frozen.set_server(600)
    reaper.scan(cadence=timedelta(seconds=5), ran_by="one")
    moved = now_stored(job).started_at
    assert moved == start + timedelta(seconds=600)
    frozen.time, frozen.number, frozen.off = start, 0, timedelta(seconds=600)
    assert not reaper.scan(cadence=timedelta(seconds=5), ran_by="other").counts
    assert now_stored(job).started_at == moved
    assert MaintenanceRun.objects.get(name="reap").clock_steps == 1


def test_beats_put_aside_move_too(vendor: str, frozen: FrozenClock) -> None:
    if vendor == "sqlite":
        pytest.skip("SQLite locks no rows")
    make(1)
    (job,) = take()
    reaper.scan(cadence=timedelta(seconds=5), ran_by="test")
    frozen.advance(1)
    with holding(job):
        leases.beat([held(job)])
    frozen.set_server(600)
    reaper.scan(cadence=timedelta(seconds=5), ran_by="test")
    assert LeaseBeat.objects.get().heartbeat_at == frozen.time


@pytest.mark.parametrize("seconds", STEPS)
def test_rate_limits_count_on(frozen: FrozenClock, seconds: int) -> None:
    """Starts, and handlers that may still run, are as old as they were before the step."""
    counted = make(2, rate_limit={"key": "a", "rate": {"limit": 1, "period": "10s"}})
    ending = make(2, rate_limit={"key": "b", "concurrency": 1}, grace_period=30)
    assert len(take(4)) == 2
    operate.cancel([ending[0].id])
    reaper.scan(cadence=timedelta(seconds=5), ran_by="test")
    frozen.set_server(seconds)
    reaper.scan(cadence=timedelta(seconds=5), ran_by="test")
    taken: dict[UUID, int] = {}
    for second in range(40):
        admission.admit_due(using="default")
        taken |= {job.id: second for job in take(4)}
        frozen.advance(1)
    assert taken == {counted[1].id: 10, ending[1].id: 35}


def test_an_admission_that_died_before_a_step_is_made_up_for(frozen: FrozenClock) -> None:
    reaper.scan(cadence=timedelta(seconds=5), ran_by="test")
    with nobody_admits():
        (job,) = make(1, rate_limit={"key": "a", "concurrency": 1})
    frozen.set_server(-3600)
    reaper.scan(cadence=timedelta(seconds=5), ran_by="test")
    frozen.advance(1)
    admission.admit_due(using="default")
    assert [taken.id for taken in take()] == [job.id]


class TestDatabaseClock:
    """One process: what it takes for the time, from the answers that it sees."""

    START = datetime(2026, 1, 1, tzinfo=UTC)

    def _observe(self, made: DatabaseClock, off: float, steps: int | None = 0, took: float = 0) -> None:
        at = clock.boottime()
        time = self.START + timedelta(seconds=at + took / 2 + off)
        made.observe("default", time, steps, at, at + took)

    def _off(self, made: DatabaseClock) -> float:
        return (made.now("default") - self.START).total_seconds() - clock.boottime()

    def test_a_drift_is_followed_and_a_step_is_not(self) -> None:
        made = DatabaseClock()
        self._observe(made, 0)
        self._observe(made, 1.5)
        assert self._off(made) == pytest.approx(1.5, abs=0.1)
        assert made.step("default") is None
        self._observe(made, 602)
        assert self._off(made) == pytest.approx(1.5, abs=0.1)
        step = made.step("default")
        assert step is not None and step.total_seconds() == pytest.approx(600.5, abs=0.1)

    def test_the_number_of_a_step_that_others_applied_is_taken_over(self) -> None:
        made = DatabaseClock()
        self._observe(made, 0)
        self._observe(made, 600)
        self._observe(made, 600, steps=1)
        assert self._off(made) == pytest.approx(600, abs=0.1)
        assert (made.step("default"), made.steps("default")) == (None, 1)

    def test_an_answer_that_took_long_is_no_step(self) -> None:
        made = DatabaseClock()
        self._observe(made, 0)
        self._observe(made, 9, took=20)
        assert made.step("default") is None
        assert self._off(made) == pytest.approx(0, abs=0.1)

    def test_the_time_of_the_host_is_right_however_long_the_question_took(self) -> None:
        made, at = DatabaseClock(), clock.boottime()
        time = self.START + timedelta(seconds=at)
        made.observe("default", time, 0, at - 4, at, is_host_time=True)
        assert self._off(made) == pytest.approx(0, abs=0.1)

    @pytest.mark.parametrize("off", [-5, 5])
    def test_a_first_answer_that_took_long_is_replaced_by_the_next(self, off: float) -> None:
        """The server stood still for ten seconds: before it read its clock, or after."""
        made = DatabaseClock()
        self._observe(made, off, took=10)
        self._observe(made, 0)
        assert made.step("default") is None
        assert self._off(made) == pytest.approx(0, abs=0.1)

    def test_a_first_answer_that_took_long_is_asked_for_again(self) -> None:
        made, at = DatabaseClock(), clock.boottime() - 2
        made.observe("default", clock.now("default") - timedelta(seconds=2), 0, at - 10, at)
        assert abs(made.now("default") - clock.now("default")) < timedelta(seconds=1)

    def test_without_anybody_who_scans_the_new_time_is_taken_at_last(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made = DatabaseClock()
        self._observe(made, 0)
        self._observe(made, 600)
        monkeypatch.setattr(clock, "_UNAPPLIED_SECONDS", -1)
        self._observe(made, 600)
        assert self._off(made) == pytest.approx(600, abs=0.1)

    def test_every_look_carries_the_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        made = DatabaseClock()
        monkeypatch.setattr(clock, "database_clock", made)
        a_loop().tick()
        assert abs((made.now("default") - datetime.now(UTC)).total_seconds()) < 60
        assert made.steps("default") == 0

    def test_a_claim_is_stamped_by_the_clock_in_force(self) -> None:
        """Another process has applied a step since this one asked."""
        make(1)
        reaper.scan(cadence=None, ran_by="test")
        made = DatabaseClock()
        with clock.using_clock(made):
            real = made.stamp("default")
            origin = made._origins["default"]
            made._origins["default"] = origin._replace(time=origin.time - timedelta(hours=1), steps=0)
            made._checked_at["default"] -= 2
            MaintenanceRun.objects.update(clock_steps=1)
            (job,) = take()
        assert job.started_at is not None
        # Two answers of a server are as precise as they were fast.
        assert timedelta(seconds=-1) < job.started_at - real < timedelta(seconds=30)


@pytest.mark.parametrize("age", [0, 61, 4000], ids=["first", "a minute later", "an hour later"])
def test_an_enqueue_is_one_statement_whenever_it_is(age: float) -> None:
    """Nothing that only measures the time is in the way of ``assertNumQueries``."""
    made = DatabaseClock()
    with clock.using_clock(made):
        enqueue("t.first")
        if age:
            made._checked_at["default"] -= age
        else:
            made.forget()
        with CaptureQueriesContext(connections["default"]) as queries:
            enqueue("t.second")
    said = [query["sql"].split()[0] for query in queries]
    # The event of it is stored by the second.
    assert [word for word in said if word not in ("BEGIN", "SAVEPOINT", "RELEASE", "COMMIT")] == [
        "INSERT",
        "INSERT",
    ]


def test_a_host_that_disagrees_with_the_server_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with clock.using_clock(FrozenClock(datetime.now(UTC) + timedelta(hours=1))):
        call_command("ojs", "check")
        assert "ahead of the clock of" in capsys.readouterr().out
    with clock.using_clock(FrozenClock(datetime.now(UTC))):
        call_command("ojs", "check")
        assert "ahead of the clock of" not in capsys.readouterr().out


@pytest.mark.fault("F100")
@pytest.mark.parametrize("seconds", STEPS)
def test_who_begins_between_a_step_and_its_application_hides_no_death(
    frozen: FrozenClock, seconds: int
) -> None:
    """It knows the new time only, and records a scan by it before another process applies the step."""
    old = a_loop()
    tick(frozen, 4, old)
    step = timedelta(seconds=seconds)
    new = a_loop()
    frozen.time += step
    tick(frozen, 1, new)
    frozen.time -= step
    frozen.set_server(seconds)
    tick(frozen, 0.4, old)
    assert MaintenanceRun.objects.get(name="reap").clock_steps == 1
    make(1, heartbeat_timeout=8, retry={"max_attempts": 1})
    take()
    assert tick(frozen, 7.6, new) == []
    assert tick(frozen, 0.8, new) == ["stalled"]
