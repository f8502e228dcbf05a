"""The benchmark really run, with tiny numbers; nothing is asked about time."""

from __future__ import annotations

import os
import random
from itertools import groupby
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks import scaling
from benchmarks.goals import all_goals
from benchmarks.goals.scale import Scale
from benchmarks.harness.records import Records, note
from benchmarks.machine import Calm
from benchmarks.measuring import Bench, Figures, Measure
from benchmarks.servers import Servers

pytestmark = pytest.mark.tool


def test_options_that_do_not_exist_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--goals", "P99"]) == 2
    assert command.main(["--systems", "nobody"]) == 2
    assert "there is no P99" in capsys.readouterr().err


def test_what_is_compared_is_measured_one_after_the_other() -> None:
    measures = command.neighbours(all_goals(Scale()))
    assert len(measures) == len(set(measures))
    kinds = [measure.workload.replace("replay_enqueue", "enqueue_one") for measure in measures]
    assert len([kind for kind, _ in groupby(kinds)]) == len(set(kinds))


def test_the_list_measures_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--list"]) == 0
    out = capsys.readouterr().out
    assert "P13" in out
    assert "huey.sqlite" in out


def test_arrivals_are_the_same_for_the_same_seed() -> None:
    from benchmarks.systems.on_ojs.mixed import LONG, arrivals

    plan = arrivals(5, seed=3)
    assert plan == arrivals(5, seed=3) != arrivals(5, seed=4)
    assert sum(length == LONG for _, length in plan) * 100 == len(plan)


def test_records_are_read_as_they_were_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.harness.records._file", None)
    monkeypatch.setenv("BENCH_RECORD", "")
    records = Records(tmp_path / "records")
    numbers = random.Random(1).sample(range(1000), 20)
    for number in numbers:
        note(number)
    assert [start.number for start in records.read()] == numbers
    assert {start.pid for start in records.read()} == {os.getpid()}
    with pytest.raises(TimeoutError, match="20 of 21"):
        records.wait(21, 0.01)


def test_what_was_scaled_becomes_lines_of_points() -> None:
    found = Figures()
    workers = scaling.PANELS[0]
    for line, x, measure in scaling.points(workers):
        for rate in (1.0, 2.0, 9.0):
            found.add(measure, {"rate": rate * x * int(line[-1])})
    document = scaling.summary(found, scaling.PANELS)
    lines = document["workers"]["lines"]
    assert set(lines) == {"concurrency 1", "concurrency 2"}
    assert lines["concurrency 2"][2] == {"x": 3, "rate": 12.0, "min": 6.0, "max": 54.0}
    assert [point["x"] for point in document["backlog"]["lines"][""]] == [10_000]
    assert "1: 4, 2: 8, 3: 12, 4: 16" in scaling.table(document)


def test_figures_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    found = Figures()
    for panel in scaling.PANELS:
        for _, x, measure in scaling.points(panel):
            found.add(measure, {"rate": 1.0 + x})
    scaling.draw(scaling.summary(found, scaling.PANELS), "a machine", tmp_path / "plot.svg")
    assert "</svg>" in (tmp_path / "plot.svg").read_text()


def test_a_system_without_its_server_is_missing_not_failed(tmp_path: Path) -> None:
    servers = Servers(missing={"pg": "PostgreSQL: no server answers"})
    bench = Bench(servers, Calm(tmp_path, 0), tmp_path, tmp_path)
    bench.prepare(["ojs"])
    measure = Measure("ojs", "drain", options=(("jobs", 10),))
    bench.run(measure, 1)
    assert bench.figures.why_not(measure) == "PostgreSQL: no server answers"
    assert bench.figures.problems() == []


@pytest.mark.process
def test_a_drain_of_ours(tmp_path: Path) -> None:
    bench = Bench(Servers(), Calm(tmp_path, 0), tmp_path, tmp_path)
    bench.prepare(["ojs.sqlite"])
    assert bench.figures.missing == {}
    drain = Measure("ojs.sqlite", "drain", options=(("jobs", 50),))
    enqueue = Measure("ojs.sqlite", "enqueue_one", options=(("jobs", 20),))
    tick = Measure("ojs.sqlite", "idle_tick")
    tasks = Measure("ojs.sqlite", "task_drain", options=(("jobs", 20),))
    for measure in (tasks, drain, enqueue, tick):
        bench.run(measure, 1)
    assert bench.figures.problems() == []
    assert bench.figures.samples[drain.key][0]["jobs"] == 50
    assert bench.figures.samples[tasks.key][0]["jobs"] == 20
    assert bench.figures.median(drain, "rate")
    assert bench.figures.median(enqueue, "rate")
    assert set(bench.figures.samples[tick.key][0]) >= {"claim", "promote", "reap"}
    bench.clean()
    assert not list(tmp_path.glob("*.sqlite3*"))
