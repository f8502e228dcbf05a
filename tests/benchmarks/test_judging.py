"""How figures become verdicts; no figure here was measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import published, report
from benchmarks.goals import all_goals
from benchmarks.goals.checks import Figure, Goal, Limit, Ratio, Row, Same, verdict_of
from benchmarks.goals.scale import Scale
from benchmarks.measuring import Figures, Measure
from benchmarks.systems import SYSTEMS

pytestmark = pytest.mark.tool

OURS = Measure("ojs", "drain")
THEIRS = Measure("pgqueuer", "drain")
MINE = Figure(OURS, "rate", "jobs/s")
HIS = Figure(THEIRS, "rate", "jobs/s")


def figures(ours: list[float], theirs: list[float]) -> Figures:
    found = Figures()
    for measure, values in ((OURS, ours), (THEIRS, theirs)):
        for value in values:
            found.add(measure, {"rate": value})
    return found


def ratio(**limits: float) -> Ratio:
    return Ratio("drain", MINE, "pgqueuer", HIS, **limits)


@pytest.mark.parametrize(
    ("limits", "verdict"),
    [
        ({"least": 0.5}, "met"),
        ({"least": 0.51}, "not met"),
        ({"most": 0.5}, "met"),
        ({"most": 0.49}, "not met"),
        ({}, ""),
    ],
)
def test_a_ratio_compares_medians(limits: dict[str, float], verdict: str) -> None:
    row = ratio(**limits).judge("P1", figures([100, 1, 9999], [200, 190, 210]))
    assert (row.ratio, row.verdict) == (0.5, verdict)
    assert (row.figure, row.beside) == ("100 jobs/s", "pgqueuer: 200 jobs/s")


@pytest.mark.parametrize(
    ("limits", "verdict"),
    [({"most": 3}, "met"), ({"most": 2.9}, "not met"), ({"least": 3.1}, "not met"), ({}, "")],
)
def test_a_limit_holds_or_not(limits: dict[str, float], verdict: str) -> None:
    row = Limit("memory", Figure(OURS, "rate", "MiB"), **limits).judge("P13", figures([3.0], []))
    assert row.verdict == verdict


def test_the_same_means_the_same() -> None:
    same = Same("statements", MINE, "for more", HIS)
    assert same.judge("P11", figures([14], [14])).verdict == "met"
    assert same.judge("P11", figures([14], [15])).verdict == "not met"


def test_what_is_missing_says_why() -> None:
    found = figures([100], [])
    found.missing["pgqueuer"] = "PostgreSQL: no server answers"
    row = ratio(least=1.0).judge("P1", found)
    assert row.verdict == "not measured: PostgreSQL: no server answers"
    assert row.figure == "100 jobs/s"


def test_a_workload_can_say_that_something_is_missing() -> None:
    found = Figures()
    found.add(OURS, {"missing": "wrk is missing"})
    row = Limit("requests", MINE, least=1).judge("P10", found)
    assert row.verdict == "not measured: wrk is missing"
    assert found.problems() == []


def test_a_failure_is_no_figure_but_a_problem() -> None:
    found = figures([100, 300], [1])
    found.add(OURS, {"error": "TimeoutError: nothing"})
    assert found.median(OURS, "rate") == 200
    assert found.problems() == ["ojs drain default, round 3: TimeoutError: nothing"]


@pytest.mark.parametrize("name", ["lost", "ran_twice"])
def test_lost_and_repeated_jobs_are_problems(name: str) -> None:
    found = Figures()
    found.add(OURS, {"rate": 5.0, name: 2})
    assert found.problems() == [f"ojs drain default, round 1: 2 jobs {name.replace('_', ' ')}"]


def test_disturbed_samples_count_only_where_there_are_no_others() -> None:
    found = Figures()
    found.add(OURS, {"rate": 1.0, "disturbed": True})
    assert found.median(OURS, "rate") == 1.0
    found.add(OURS, {"rate": 9.0, "disturbed": False})
    assert found.median(OURS, "rate") == 9.0


def test_why_something_was_not_measured_is_said_once() -> None:
    goals = [Goal("P1", "drain", [ratio(least=1.0), ratio(most=1.0)])]
    text = report.render(goals, Figures(), {}, [])
    assert text.count("not measured (P1): ojs drain was not run") == 1


def test_a_busy_machine_is_told_of() -> None:
    found = figures([1.0], [1.0])
    assert found.quiet() == ""
    found.add(OURS, {"rate": 1.0, "quiet_before": False, "disturbed": True})
    assert found.quiet() == "Of 3 measurements 1 began on a busy machine and 1 met a slow disk."


DAY = Measure("ojs", "day", ojs=(("RETENTION.completed", 60),))
PICKUP = Measure("ojs", "pickup")


def test_the_report_opens_with_what_a_user_asks() -> None:
    goals = [
        Goal("P1", "drain", [ratio(least=1.0)]),
        Goal("P5", "pickup", [Limit("pickup", Figure(PICKUP, "p99", "ms"))]),
        Goal("P15", "a day", [Limit("rate", Figure(DAY, "rate", "jobs/s"))]),
    ]
    found = Figures()
    assert report.opening(goals, found) == ""
    found.add(OURS, {"rate": 7285.0, "cpu_per_million": 90.0})
    found.add(PICKUP, {"p99": 6.8})
    drained = "This machine, at its fastest, and at rest: 7,285 jobs/s, pickup p99 6.80 ms,"
    assert report.opening(goals, found) == f"{drained} 90 processor seconds per million jobs."
    found.add(DAY, {"rate": 2000.0, "p99": 12.0, "cpu_per_million": None})
    long = "This machine, all day: 2,000 jobs/s, pickup p99 12 ms, -."
    assert report.render(goals, found, {}, []).splitlines()[0] == long


def test_the_minutes_of_a_measurement_count_once() -> None:
    goals = [Goal(name, "drain", [ratio()]) for name in ("P1", "P2")]
    found = Figures()
    for _ in range(3):
        found.add(OURS, {"rate": 1.0, "took_s": 60.0, "waited_s": 10.0})
    assert report.minutes(goals, found) == "minutes: P1 3.0, waiting for a quiet machine 0.5"


def row(verdict: str, needs: str = ">= 1x") -> Row:
    return Row("P1", "drain", "1 jobs/s", needs=needs, verdict=verdict)


@pytest.mark.parametrize(
    ("rows", "verdict"),
    [
        ([row("met"), row("met")], "met"),
        ([row("met"), row("", needs="")], "met"),
        ([row("met"), row("not measured: x")], "not measured"),
        ([row("not measured: x"), row("not met")], "not met"),
        ([row("", needs="")], ""),
    ],
)
def test_a_goal_is_as_good_as_its_parts(rows: list[Row], verdict: str) -> None:
    assert verdict_of(rows) == verdict


def test_the_table_is_markdown_with_even_columns() -> None:
    lines = report.table([row("met"), row("not met")]).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert [line.count("|") for line in lines] == [8] * 4
    assert "not met" in lines[-1]


def test_everything_is_in_the_document(tmp_path: Path) -> None:
    goals = [Goal("P1", "drain", [ratio(least=1.0)])]
    found = figures([100, 120], [200])
    text = report.render(goals, found, {"processors": "2"}, ["a problem"])
    assert "processors 2" in text
    assert "not met: P1" in text
    assert "PROBLEMS\n  a problem" in text
    path = tmp_path / "figures.json"
    report.save(path, goals, found, {"processors": "2"}, {"rounds": 2}, [])
    document: dict[str, Any] = json.loads(path.read_text())
    assert document["rows"][0]["verdict"] == "not met"
    assert [sample["rate"] for sample in document["samples"]["ojs drain default"]] == [100, 120]


@pytest.mark.parametrize("scale", [Scale(), Scale.full()], ids=["short", "full"])
def test_every_goal_measures_systems_that_exist(scale: Scale) -> None:
    goals = all_goals(scale)
    assert [goal.id for goal in goals] == [f"P{number}" for number in range(1, 26)]
    for goal in goals:
        assert {measure.system for measure in goal.measures} <= set(SYSTEMS)
        assert any(found.needs for found in goal.judge(Figures()))


def test_the_page_has_what_was_measured() -> None:
    jobs = Scale().jobs
    samples = {
        Measure(system, "drain", options=(("jobs", jobs),)).key: [{"rate": rate, "cpu_per_million": 90}]
        for system, rate in (("ojs", 9000.0), ("pgqueuer", 3000.0))
    }
    document = {
        "machine": {"processors": "2"},
        "options": {"rounds": 3, "full": False},
        "samples": samples,
    }
    page = published.replaced(
        f"a\n{published.BEGIN}\nold\n{published.END}\nb\n", published.block(document)
    )
    assert "old" not in page
    assert "This machine, at its fastest, and at rest: 9,000 jobs/s, " in page
    row = "| P1 | drain, PostgreSQL, defaults | 9,000 jobs/s | pgqueuer: 3,000 jobs/s | 3.00 |"
    assert f"{row} at least 2x | met |" in page
    assert "not measured" not in page
    assert "`make bench`, short form, medians of 1 round. processors 2." in page
    with pytest.raises(ValueError, match="no place"):
        published.replaced("a page", "figures")


def test_the_page_of_the_documentation_has_a_place_for_them() -> None:
    assert published.replaced(published.PAGE.read_text(), "nothing").count("nothing") >= 1
