"""``make test`` adds up honestly: what failed, crashed or was skipped is never hidden."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.run import TOOLS, Outcome, with_name

ROOT = Path(__file__).resolve().parents[2]
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


@pytest.mark.parametrize(
    ("code", "text", "counts"),
    [
        (0, "..s\n10 passed, 2 skipped in 0.31s", (10, 0, 2)),
        (1, "8 passed, 1 failed, 2 errors in 75.30s (0:01:15)", (8, 3, 0)),
        (1, "===== 3 failed, 1 passed, 2 warnings in 1.2s =====", (1, 3, 0)),
        (4, "ERROR: unknown option", (0, 1, 0)),
        (-11, "....", (0, 1, 0)),
        (5, "3 deselected in 0.01s", (0, 0, 0)),
        (0, "1 passed in 1.00s\nsaid at exit: 7 failed logins", (1, 0, 0)),
    ],
)
def test_every_outcome_is_counted(code: int, text: str, counts: tuple[int, int, int]) -> None:
    found = Outcome(code, text).counts
    assert (found["passed"], found["failed"], found["skipped"]) == counts


def test_reasons_of_skips_are_added_up() -> None:
    text = (
        "SKIPPED [2] tests/a.py:10: no chromium\n"
        "SKIPPED [1] tests/b.py:3: no chromium\n"
        "SKIPPED [1] tests/c.py:3: only on PostgreSQL: NOTIFY\n"
        "4 skipped in 0.1s"
    )
    assert Outcome(0, text).skips == {"no chromium": 3, "only on PostgreSQL: NOTIFY": 1}


def test_the_database_is_replaced_and_the_server_kept() -> None:
    assert with_name("mysql://a:b@h:1/test?charset=x", "mine") == "mysql://a:b@h:1/mine?charset=x"
    assert with_name("postgres://a@h:1", "mine") == "postgres://a@h:1/mine"
    assert with_name("sqlite:////tmp/folder/any", "mine") == "sqlite:////tmp/folder/mine"


def test_a_server_that_does_not_answer_is_named_at_the_end() -> None:
    code, lines = run(CHEAP, **NOWHERE)
    assert code == 0
    assert lines[-2] == "2 passed, 0 failed, 0 skipped"
    assert lines[-1].startswith("skipped: pg (OJS_TEST_PG_URL: ")
    assert "; mariadb (OJS_TEST_MARIADB_URL: " in lines[-1]


def test_what_is_required_and_missing_is_a_failure(tmp_path: Path) -> None:
    required = ",".join(["mariadb", *TOOLS])
    code, lines = run(CHEAP, **NOWHERE, OJS_REQUIRE=required, PATH=str(tmp_path))
    assert code == 1
    assert lines[-3].startswith("required but missing: mariadb (OJS_TEST_MARIADB_URL: ")
    missing = "; ".join(f"{tool} ({names[0]} is not installed)" for tool, names in TOOLS.items())
    assert lines[-3].endswith(f"; {missing}")
    assert lines[-2] == "2 passed, 0 failed, 0 skipped"


def test_an_unknown_requirement_is_refused() -> None:
    code, lines = run(OJS_REQUIRE="pg,postgres")
    assert code == 2
    assert lines == ["OJS_REQUIRE: unknown postgres; known are pg, mariadb, chromium, node, pgbouncer"]


def test_no_test_at_all_is_a_failure() -> None:
    code, lines = run("--quick", "tests/process")
    assert code == 1
    assert lines[-2] == "0 passed, 0 failed, 0 skipped"


def test_a_failing_test_fails_the_run(tmp_path: Path) -> None:
    broken = tmp_path / "test_broken.py"
    broken.write_text(
        "import pytest\ndef test_a(): assert 0\ndef test_b(): pass\ndef test_c(): pytest.skip('why')\n"
    )
    code, lines = run("--quick", str(broken))
    assert code == 1
    assert lines[-3:] == [
        "faults injected: 0 of 0 rows; invariants checked: 0 of 0 kinds",
        "1 passed, 1 failed, 1 skipped",
        "skipped: SQLite: 1 x why",
    ]
