"""This version beside another: the order, the interval, the verdict, and one comparison really made."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks import against
from benchmarks.against import Compared, Verdict
from benchmarks.goals import all_goals
from benchmarks.goals.checks import Figure
from benchmarks.goals.scale import Scale
from benchmarks.measuring import ROOT, Figures, Measure

pytestmark = pytest.mark.tool

DRAIN = Measure("ojs", "drain")
RATE = Compared("P1", "drain", Figure(DRAIN, "rate", "jobs/s"), more_is_better=True)
PICKUP = Compared("P5", "pickup", Figure(DRAIN, "rate", "ms"), more_is_better=False)


def figures(*values: float | None, disturbed: tuple[int, ...] = ()) -> Figures:
    found = Figures()
    for turn, value in enumerate(values):
        sample = {"error": "gone"} if value is None else {"rate": value, "disturbed": turn in disturbed}
        found.add(DRAIN, sample)
    return found


def verdict(compared: Compared, ours: Figures, theirs: Figures) -> Verdict:
    (found,) = against.judge([compared], ours, theirs)
    return found


def test_turns_go_abba() -> None:
    turns = against.order(10)
    assert all(set(turn) == {True, False} for turn in turns)
    assert all(before[1] == after[0] for before, after in pairwise(turns))


def test_the_interval_is_the_exact_one_of_the_median() -> None:
    # Of ten, the second to the ninth: 1 - 2 * 11 / 1024 = 97.9 %; the third to the eighth has 89 %.
    assert against.interval([float(n) for n in range(10, 0, -1)]) == (2.0, 9.0)
    assert against.interval([3.0, 1.0, 2.0, 6.0, 5.0, 4.0]) == (1.0, 6.0)
    assert against.interval([float(n) for n in range(20)]) == (5.0, 14.0)
    assert against.interval([1.0] * 5) is None


@pytest.mark.parametrize(
    ("ratio", "word", "worse"),
    [(0.90, "WORSE", True), (0.96, "WORSE", True), (0.98, "not worse", False), (1.2, "better", False)],
)
def test_a_loss_is_an_interval_below_the_allowed(ratio: float, word: str, worse: bool) -> None:
    found = verdict(RATE, figures(*[ratio * 1000] * 10), figures(*[1000.0] * 10))
    assert (found.word, found.worse) == (word, worse)


def test_an_interval_that_reaches_what_is_allowed_is_no_loss() -> None:
    mine = [800.0] * 8 + [980.0] * 2
    found = verdict(RATE, figures(*mine), figures(*[1000.0] * 10))
    assert (found.median, found.within, found.worse) == (0.8, (0.8, 0.98), False)


def test_less_time_is_a_ratio_above_one() -> None:
    faster, slower = figures(*[5.0] * 10), figures(*[10.0] * 10)
    assert verdict(PICKUP, faster, slower).median == 2.0
    assert verdict(PICKUP, slower, faster).worse


def test_turns_are_compared_with_themselves() -> None:
    mine = figures(100, 200, None, 400, 500, 600, 700, 800)
    other = figures(100, 200, 300, 400, 500, 600, 700, None)
    found = verdict(RATE, mine, other)
    assert (found.turns, found.median) == (6, 1.0)


def test_disturbed_turns_count_only_when_the_others_are_too_few() -> None:
    ours = [1000.0] * 7 + [1.0]
    theirs = figures(*[1000.0] * 8)
    assert verdict(RATE, figures(*ours, disturbed=(7,)), theirs).turns == 7
    assert verdict(RATE, figures(*ours, disturbed=(0, 1, 7)), theirs).turns == 8


def test_what_one_of_them_cannot_do_is_not_measured() -> None:
    found = verdict(RATE, figures(1.0), figures(None))
    assert (found.word, found.worse) == ("not measured", False)
    assert "gone" in found.why
    assert "not measured (P1): ojs drain failed: gone" in against.render([found], "v1")


def test_every_figure_of_ours_is_compared_once() -> None:
    every = against.compared(all_goals(Scale()))
    names = [(one.figure.measure.key, one.figure.name) for one in every]
    assert len(names) == len(set(names))
    assert {one.figure.measure.system.partition(".")[0] for one in every} == {"ojs"}
    better = {one.what: one.more_is_better for one in every}
    assert better["drain, PostgreSQL, defaults"] is True
    assert better["pickup, PostgreSQL, p99"] is False
    assert better["HOT updates"] is True


def test_a_revision_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--against", "no-such-revision", "--goals", "P6", "--patience", "0"]) == 2
    assert "no-such-revision" in capsys.readouterr().err


@pytest.mark.process
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a checkout of git")
def test_this_version_beside_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = tmp_path / "record.json"
    options = ["--against=HEAD", "--goals=P6", "--turns=2", "--jobs=30", "--patience=0"]
    code = command.main([*options, f"--scratch={tmp_path / 'scratch'}", f"--json={record}"])
    out = capsys.readouterr().out
    assert code == 0, out
    document = json.loads(record.read_text())
    (drain,) = document["figures"]
    assert (drain["turns"], drain["verdict"]) == (2, "not judged: fewer than 6 turns")
    assert [
        len(samples) for side in ("this", "other") for samples in document["samples"][side].values()
    ] == [2, 2]
    assert not list((tmp_path / "scratch").glob("against-*"))
