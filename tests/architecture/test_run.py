"""``make test`` adds up honestly: what failed, crashed or was skipped is never hidden."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from argparse import Namespace
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import hypothesis
import pytest

from tests.part import ROOT, Part
from tests.run import DATABASES, TOOLS, plan, with_name

pytestmark = pytest.mark.tool
NOWHERE = {
    "OJS_TEST_PG_URL": "postgres://nobody@127.0.0.1:1/none",
    "OJS_TEST_MARIADB_URL": "mysql://nobody@127.0.0.1:1/none",
}
CHEAP = "tests/architecture/test_size.py"


def run(*arguments: str, **environment: str) -> tuple[int, list[str]]:
    """The exit code and the lines of ``tests.run``."""
    ours = {key: value for key, value in os.environ.items() if not key.startswith("OJS_")}
    done = subprocess.run(
        [sys.executable, "-m", "tests.run", *arguments],
        cwd=ROOT,
        env={**ours, **environment},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    return done.returncode, done.stdout.splitlines()


def part(folder: Path, code: int | None, *entries: dict[str, object]) -> Part:
    """A part that has written these entries of a report log."""
    made = Part("SQLite", "", (), folder / "part", code)
    made.log.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return made


def report(test: str, outcome: str, when: str = "call", **more: object) -> dict[str, object]:
    """One entry."""
    return {"$report_type": "TestReport", "nodeid": test, "outcome": outcome, "when": when, **more}


def test_every_outcome_is_counted(tmp_path: Path) -> None:
    found = part(
        tmp_path,
        1,
        {"$report_type": "SessionStart"},
        {"$report_type": "CollectReport", "nodeid": "c.py", "outcome": "failed"},
        report("a", "passed", "setup"),
        report("a", "passed"),
        report("b", "passed"),
        report("b", "failed", "teardown"),
        report("c", "skipped", "setup", longrepr=["c.py", 3, "Skipped: no chromium"]),
    )
    assert found.counts() == {"passed": 2, "failed": 2, "skipped": 1}
    assert found.failures() == ["SQLite: c.py", "SQLite: b"]
    assert found.skips() == {"no chromium": 1}


@pytest.mark.parametrize("code", [-11, 1, 4])
def test_a_part_that_ends_without_a_word_has_failed(tmp_path: Path, code: int) -> None:
    found = part(tmp_path, code, report("a", "passed"))
    assert found.counts() == {"passed": 1, "failed": 1}
    assert found.failures() == [f"SQLite: exit {code}"]


def test_a_line_that_is_half_written_is_read_later(tmp_path: Path) -> None:
    found = part(tmp_path, None, report("a", "passed"))
    with found.log.open("a") as log:
        log.write(json.dumps(report("b", "failed"))[:20])
        log.flush()
        assert found.counts() == {"passed": 1}
        log.write(json.dumps(report("b", "failed"))[20:] + "\n")
    assert found.counts() == {"passed": 1, "failed": 1}


def test_the_database_is_replaced_and_the_server_kept() -> None:
    assert with_name("mysql://a:b@h:1/test?charset=x", "mine") == "mysql://a:b@h:1/mine?charset=x"
    assert with_name("postgres://a@h:1", "mine") == "postgres://a@h:1/mine"
    assert with_name("sqlite:////tmp/folder/any", "mine") == "sqlite:////tmp/folder/mine"


@pytest.mark.timeout(900)
@pytest.mark.parametrize("everything", [False, True])
def test_every_test_is_in_exactly_one_part(everything: bool, tmp_path: Path) -> None:
    """On SQLite: what one part leaves out, another one runs; ``make test`` leaves out what is slow."""
    parts, _ = plan(Namespace(db="sqlite", all=everything, part=[]), ["--collect-only"], tmp_path)
    whole = Part(
        "all",
        f"sqlite:///{tmp_path}/all",
        ("--collect-only", "tests"),
        tmp_path / "whole",
    )

    def collected(one: Part) -> list[str]:
        """By name only: some ids of parameters hold the address of an object."""
        assert one(tmp_path) == 0, one.text()
        return [text.partition("[")[0] for text in one.text().splitlines() if "::" in text]

    found = [test for one in parts for test in collected(one)]
    if everything:
        assert Counter(found) == Counter(collected(whole))
    else:
        assert not [test for test in found if "tests/clusters" in test or "tests/browser" in test]
        assert any("tests/services" in test for test in found)


def test_one_database_alone(tmp_path: Path) -> None:
    parts, skipped = plan(Namespace(db="sqlite", all=False, part=[]), [CHEAP], tmp_path)
    assert [one.name for one in parts] == ["SQLite"]
    assert not skipped
    code, lines = run("--db", "oracle")
    assert (code, lines) == (2, [])


def test_a_server_that_does_not_answer_is_named_at_the_end() -> None:
    code, lines = run(CHEAP, **NOWHERE)
    assert code == 0
    assert lines[-2] == "2 passed, 0 failed, 0 skipped"
    assert lines[-1].startswith("skipped: pg (OJS_TEST_PG_URL: ")
    assert "; mariadb (OJS_TEST_MARIADB_URL: " in lines[-1]


def test_what_is_required_and_missing_is_a_failure(tmp_path: Path) -> None:
    required = ",".join([*DATABASES[1:], *TOOLS])
    code, lines = run(CHEAP, **NOWHERE, OJS_REQUIRE=required, PATH=str(tmp_path))
    assert code == 1
    assert lines[-3].startswith("required but missing: pg (OJS_TEST_PG_URL: ")
    missing = "; ".join(f"{tool} ({names[0]} is not installed)" for tool, names in TOOLS.items())
    assert lines[-3].endswith(f"; {missing}")
    assert lines[-2] == "2 passed, 0 failed, 0 skipped"


def test_an_unknown_requirement_is_refused() -> None:
    code, lines = run(OJS_REQUIRE="pg,postgres")
    assert code == 2
    known = "pg, mariadb, chromium, node, pgbouncer, prometheus, promtool"
    assert lines == [f"OJS_REQUIRE: unknown postgres; known are {known}"]


@pytest.mark.parametrize(("again", "code"), [("passes", 0), ("fails", 1)])
def test_what_fails_beside_others_is_run_again_alone(again: str, code: int) -> None:
    with TemporaryDirectory(dir=ROOT, prefix=".shaky-") as folder:
        shaky = Path(folder) / "test_shaky.py"
        mark = Path(folder) / "ran"
        shaky.write_text(
            "from pathlib import Path\n"
            "def test_sound(): pass\n"
            "def test_shaky():\n"
            f"    mark = Path({str(mark)!r})\n"
            "    first = not mark.exists()\n"
            "    mark.touch()\n"
            f"    assert not first and {again == 'passes'}\n"
        )
        found, lines = run("--all", "--db", "sqlite", str(shaky))
    assert found == code
    named = next(text for text in lines if text.startswith(("passed only alone: ", "failed: ")))
    assert named.startswith("failed: SQLite, alone: " if code else "passed only alone: SQLite: ")
    assert named.endswith("test_shaky.py::test_shaky")
    assert lines[-2] == f"{2 - code} passed, {code} failed, 0 skipped"


def test_a_part_that_nothing_belongs_to_is_refused() -> None:
    """Asked for by a name that is wrong, or on a database that has no such part, no test would run."""
    code, lines = run("--all", "--part", "browser", "--db", "sqlite", "--part", "browsers")
    assert (code, lines[-1]) == (2, "--part: nothing to run of browsers")


def test_no_test_at_all_is_a_failure() -> None:
    code, lines = run("--db", "sqlite", "-k", "nothing_is_called_so", CHEAP)
    assert code == 1
    assert lines[-2] == "0 passed, 0 failed, 0 skipped"


def test_a_failing_test_fails_the_run_and_is_named_again(tmp_path: Path) -> None:
    broken = tmp_path / "test_broken.py"
    broken.write_text(
        "import pytest\ndef test_a(): assert 0\ndef test_b(): pass\ndef test_c(): pytest.skip('why')\n"
    )
    code, lines = run("--db", "sqlite", "--randomly-seed=7", str(broken))
    assert code == 1
    assert lines[0] == f"pytest --randomly-seed=7 {broken}"
    (failed,) = [text for text in lines if text.startswith("failed: ")]
    assert failed.startswith("failed: SQLite: ")
    assert failed.endswith("test_broken.py::test_a")
    assert lines[-2:] == ["1 passed, 1 failed, 1 skipped", "skipped: SQLite: 1 x why"]


def test_no_example_fails_for_how_long_it_took() -> None:
    """A busy machine takes longer than Hypothesis allows by default."""
    assert hypothesis.settings.default is not None
    assert hypothesis.settings.default.deadline is None
    assert hypothesis.HealthCheck.too_slow in hypothesis.settings.default.suppress_health_check
