"""Long loads and runs that are taken up again: what is counted, what is passed over, and tiny ones that
really run.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from array import array
from collections.abc import Iterator
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any, cast

import pytest

from benchmarks import __main__ as command
from benchmarks import day, report, servers
from benchmarks.goals import all_goals
from benchmarks.goals.scale import Scale
from benchmarks.harness.adapter import Adapter
from benchmarks.harness.endurance import course
from benchmarks.harness.load import Load, Pickups, Sent, write_all
from benchmarks.harness.records import Records, Start
from benchmarks.machine import Calm
from benchmarks.measuring import Bench, Figures, Measure, nested
from benchmarks.own_server import OwnServer
from benchmarks.servers import Servers

pytestmark = pytest.mark.tool

TICK = Measure("ojs.sqlite", "idle_tick")


def sent(*returned: list[float], batch: int = 1) -> Sent:
    load = Load(10, 10, sessions=len(returned), batch=batch)
    return Sent(load, 0.0, 10.0, 0.0, [array("d", calls) for calls in returned])


def test_a_wait_is_from_the_return_of_the_call_to_the_start() -> None:
    calls = sent([1.0, 2.0], [1.5], batch=2)
    starts = [(-1, 0.5), (0, 1.25), (3, 2.5), (2, 2.25), (1, 1.0), (10_000_000, 2.0), (10_000_001, 2.0)]
    found = calls.pickups(iter([Start(when, number, 1) for number, when in starts]))
    assert list(found.waits) == [250.0, 500.0, 250.0, 0.0, 500.0, 500.0]
    assert (calls.jobs, calls.records, found.lost, found.ran_twice) == (6, 8, 0, 0)
    assert list(found.within(2.0, 2.5).waits) == [250.0, 500.0, 500.0]


def test_what_did_not_run_or_ran_twice_is_counted() -> None:
    found = sent([1.0, 1.0, 1.0]).pickups(iter([Start(2.0, 1, 1), Start(3.0, 1, 1)]))
    assert (found.lost, found.ran_twice, list(found.waits)) == (2, 1, [1000.0])
    assert found.figures() == {"lost": 2, "ran_twice": 1}


class Deaf:
    """A system that runs nothing."""

    def __init__(self) -> None:
        self.batches: list[range] = []

    def enqueue_batch(self, numbers: range) -> None:
        self.batches.append(numbers)


def test_arrivals_are_put_off_while_too_many_wait(tmp_path: Path) -> None:
    records, deaf = Records(tmp_path / "records"), Deaf()
    load = Load(100_000, 0.3, batch=5, most_waiting=20)
    over = multiprocessing.get_context("fork").Event()
    began = time.monotonic()
    returned = write_all(cast(Adapter, deaf), load, 1, records, over)
    assert time.monotonic() - began >= 0.3
    assert [number for batch in deaf.batches for number in batch] == [
        10_000_000 + number for number in range(25)
    ]
    assert len(returned) == 5


def test_arrivals_end_when_they_are_told_to(tmp_path: Path) -> None:
    over = multiprocessing.get_context("fork").Event()
    over.set()
    load = Load(1000, 3600, batch=5)
    assert not write_all(cast(Adapter, Deaf()), load, 0, Records(tmp_path / "records"), over)


def test_the_course_of_a_load_has_every_step() -> None:
    found = Pickups(array("d", [0.5, 0.6, 89.5]), array("d", [10.0, 20.0, 5.0]))
    told = course(found, 0.0, 90.0)
    assert (told["rate"][0], told["rate"][89], sum(told["rate"])) == (2.0, 1.0, 3.0)
    assert (told["at"][0], told["at"][89]) == (0.5, 89.5)
    assert told["p99"][0] == pytest.approx(19.9)


def test_settings_may_be_within_others() -> None:
    given = {"NOTIFY": False, "RETENTION.completed": 60, "RETENTION.events": 1}
    assert nested(given) == {"NOTIFY": False, "RETENTION": {"completed": 60, "events": 1}}


def test_long_goals_are_for_the_full_form_or_by_name() -> None:
    goals = all_goals(Scale())
    usual = {goal.id for goal in command.chosen(goals, None)}
    assert {goal.id for goal in goals} - usual == {"P15", "P17"}
    assert command.chosen(goals, None, full=True) == goals
    assert [goal.id for goal in command.chosen(goals, "p15")] == ["P15"]


def test_minutes_shorten_what_is_long() -> None:
    short = {goal.id: goal for goal in all_goals(Scale(minutes=0.3)) if goal.long}
    assert dict(short["P15"].measures[0].options)["seconds"] == 18
    assert dict(short["P17"].measures[0].options)["history"] == 100_000


def document(tmp_path: Path, samples: dict[str, list[dict[str, Any]]]) -> Path:
    path, figures = tmp_path / "figures.json", Figures(samples=samples)
    report.save(path, [], figures, {"processors": "2", "disk": "9 us"}, {}, [])
    return path


def test_a_run_is_taken_up_from_the_first_failure(tmp_path: Path) -> None:
    samples: dict[str, list[dict[str, Any]]]
    samples = {"a": [{"rate": 1}, {"error": "gone"}, {"rate": 2}], "b": [{"missing": "wrk"}]}
    path = document(tmp_path, samples)
    found = command.earlier(path, {"processors": "2", "disk": "10 us"})
    assert found == {"a": [{"rate": 1}], "b": [{"missing": "wrk"}]}
    assert command.earlier(tmp_path / "none.json", {}) == {}


def test_figures_of_another_machine_are_not_gone_on_with(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"another machine or version: processors$"):
        command.earlier(document(tmp_path, {}), {"processors": "4"})
    (tmp_path / "other.json").write_text("[]")
    with pytest.raises(ValueError, match="no document"):
        command.earlier(tmp_path / "other.json", {})


def test_resume_needs_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--resume", "--goals", "P1"]) == 2
    assert "--json" in capsys.readouterr().err


@pytest.mark.process
def test_what_there_is_is_not_measured_again(tmp_path: Path) -> None:
    def run(earlier: dict[str, list[dict[str, Any]]], until: float = inf) -> tuple[Figures, int]:
        bench, kept = Bench(Servers(), Calm(tmp_path, 0), tmp_path, tmp_path), [0]
        bench.figures.samples |= earlier
        command.measure_all(bench, [TICK], 2, lambda: kept.append(1), until)
        bench.clean()
        return bench.figures, len(kept) - 1

    first, kept = run({})
    assert (len(first.samples[TICK.key]), kept, first.problems()) == (2, 2, [])
    again, kept = run({TICK.key: first.samples[TICK.key][:1]})
    assert (again.samples[TICK.key][0], kept) == (first.samples[TICK.key][0], 1)
    assert run(again.samples) == (again, 0)
    assert run(again.samples, until=0) == (again, 0)
    hurried, kept = run({}, until=0)
    assert (hurried.samples.get(TICK.key), kept) == (None, 0), "no time is left"


@pytest.mark.parametrize(
    ("given", "minutes"),
    [("", 14), ("--full", 57), ("--goals P1", inf), ("--within 0", 0), ("--goals P1 --within 3", 3)],
)
def test_how_long_something_new_is_begun(given: str, minutes: float) -> None:
    assert command.minutes(command.arguments(given.split())) == minutes


def test_what_is_quick_has_all_its_turns_in_the_first_round() -> None:
    took = {"pgqueuer": 1.0, "celery": 9.0, "ox": 1.0, "tasks_db": 1.0}
    measures = [Measure(system, "drain", once=system == "ox") for system in took]
    measures.append(replace(TICK, once=True))
    figures, seen = Figures(), []
    for number, (measure,) in command.turns(measures, 3, figures):
        seen.append((number, measure.system))
        failed = {"error": "gone"} if measure.system == "tasks_db" else {}
        figures.add(measure, {"took_s": took.get(measure.system, 1.0), **failed})
    first = [(1, "pgqueuer"), (1, "celery"), (1, "ox"), (1, "tasks_db")]
    quick = [(2, "pgqueuer"), (3, "pgqueuer")]
    later = [(number, system) for number in (2, 3) for system in ("celery", "tasks_db")]
    assert seen == [*first, *quick, (1, "ojs.sqlite"), *later]
    wanted = [command.is_wanted(measure, 3, figures) for measure in measures]
    assert wanted == [False, False, False, True, False], "only what has failed"


@pytest.mark.process
def test_what_only_waits_is_measured_at_once(tmp_path: Path) -> None:
    waiting = [replace(TICK, options=options, waits=True) for options in ((), (("beside", 1),))]
    work = Measure("ojs.sqlite", "enqueue_one", options=(("jobs", 5),))
    plan = [work, *waiting, work]
    assert list(command.at_once(plan)) == [[work], waiting, [work]]
    bench = Bench(Servers(), Calm(tmp_path, 0), tmp_path, tmp_path)
    bench.prepare(["ojs.sqlite"])
    bench.run_together(waiting, 1)
    bench.clean()
    good, bad = (bench.figures.samples[measure.key][0] for measure in waiting)
    assert good["claim"] == 1
    assert "beside" in bad["error"]
    assert good["took_s"] == bad["took_s"] > 0


@pytest.mark.process
def test_many_writers_beside_a_worker(tmp_path: Path) -> None:
    bench = Bench(Servers(), Calm(tmp_path, 0), tmp_path, tmp_path)
    bench.prepare(["ojs.sqlite"])
    options = (("sessions", 2), ("seconds", 2), ("rate", 20))
    measure = Measure("ojs.sqlite", "writers_pickup", options=options)
    bench.run(measure, 1)
    bench.clean()
    assert bench.figures.problems() == []
    assert bench.figures.samples[measure.key][0]["samples"] > 10


@pytest.fixture
def on_postgresql(tmp_path: Path) -> Iterator[Bench]:
    found = servers.find()
    if "pg" in found.missing:
        pytest.skip(found.missing["pg"])
    bench = Bench(found, Calm(tmp_path, 0), tmp_path, tmp_path, prefix=f"ojs_bench_test{os.getpid()}")
    yield bench
    bench.clean()


def sample(bench: Bench, measure: Measure) -> dict[str, Any]:
    bench.prepare([measure.system])
    assert bench.figures.missing == {}
    bench.run(measure, 1)
    assert bench.figures.problems() == []
    return bench.figures.samples[measure.key][0]


@pytest.mark.process
def test_a_very_short_day(on_postgresql: Bench) -> None:
    options = (("seconds", 6), ("rate", 100), ("batch", 20))
    measure = Measure("ojs", "day", options=options, ojs=(("RETENTION.completed", 60),))
    found = sample(on_postgresql, measure)
    assert found["lost"] == found["ran_twice"] == 0
    assert found["first"] > 0 < found["last"]
    assert found["cpu_per_million"] is None or found["cpu_per_million"] > 0
    assert day.areas(found)[0] == found["sizes"]["at"]


def test_a_day_is_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    steps = [0.0, 300.0, 900.0]
    table = {"rows": [1 << 20, 2 << 20, 2 << 20], "indexes": [9, 9, 9]}
    one = {
        "course": {"at": steps, "rate": [1.0, 2.0, 2.0], "p99": [5.0, 6.0, 7.0]},
        "sizes": {"at": steps, "django_ojs_job": table},
    }
    samples: dict[str, list[dict[str, Any]]] = {
        "pgqueuer.lasting day default seconds=9": [one],
        "ojs.lasting day default seconds=9": [{"error": "gone"}, one],
    }
    path, plot = document(tmp_path, samples), tmp_path / "day.svg"
    assert list(day.days(report.read(path))) == ["ojs.lasting", "pgqueuer.lasting"]
    assert day.main(["--from", str(path), "--plot", str(plot)]) == 0
    assert "</svg>" in plot.read_text()
    assert day.main(["--from", str(document(tmp_path, {})), "--plot", str(plot)]) == 2
    assert "nothing of P15" in capsys.readouterr().err


@pytest.mark.process
def test_a_history_is_deleted_under_load(on_postgresql: Bench) -> None:
    options = (("history", 20_000), ("rate", 50), ("batch", 10), ("seconds", 2), ("limit", 180))
    found = sample(on_postgresql, Measure("ojs.scaling", "prune_load", options=options))
    assert found["deleted"] >= 19_800
    # A quick machine has deleted them before the first job arrives.
    assert found.get("missing") or found["ratio"] > 0 < found["per_minute"]


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """One that other users may enter: a server does not run as root."""
    with tempfile.TemporaryDirectory(prefix="ojs-bench-") as name:
        os.chmod(name, 0o755)
        yield Path(name)


@pytest.mark.process
@pytest.mark.skipif(bool(OwnServer.missing()), reason=str(OwnServer.missing()))
def test_a_small_crowd_on_a_server_of_its_own(open_folder: Path) -> None:
    bench = Bench(Servers(), Calm(open_folder, 0), open_folder, open_folder)
    options = (("queues", 3), ("types", 4), ("workers", 2), ("jobs", 200), ("seconds", 1))
    try:
        found = sample(bench, Measure("ojs.crowd", "crowd", options=options))
        assert not replace(bench)._own, "a bench beside it has servers of its own"
    finally:
        bench.clean()
    assert found["rate"] > 0 < found["one_rate"]
    assert found["statements"] > 0
    assert not list(open_folder.glob("*.server"))


@pytest.mark.skipif(bool(OwnServer.missing()), reason=str(OwnServer.missing()))
def test_a_server_that_cannot_be_made_is_missing(open_folder: Path) -> None:
    bench = Bench(Servers(), Calm(open_folder, 0), open_folder, open_folder / "not there")
    bench.prepare(["ojs.crowd"])
    bench.clean()
    assert "a PostgreSQL server of its own" in bench.figures.missing["ojs.crowd"]
