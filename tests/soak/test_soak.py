"""The soak itself: a good fleet passes, and one without the fence is found out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.faults import tally
from tests.soak import plan
from tests.support import ROOT

pytestmark = [pytest.mark.tool, pytest.mark.long, pytest.mark.timeout(300)]


def soak(tmp_path: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the record of a minute on SQLite."""
    record = tmp_path / "record.json"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.soak", "--db=sqlite", "--seconds=60"),
            *(f"--json={record}", *arguments),
        ],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert record.exists(), done.stdout + done.stderr
    return done.returncode, json.loads(record.read_text())


@pytest.mark.fault("F83")
def test_nothing_is_wrong_with_a_fleet_under_faults(tmp_path: Path) -> None:
    code, record = soak(tmp_path)
    assert {rule: found for rule, found in record["wrong"].items() if found} == {}
    assert (code, record["passed"]) == (0, True)
    assert record["jobs"]["enqueued"] > 100
    assert record["recovery_seconds"]["count"] + record["crash_seconds"]["count"] > 0
    for kind, times in record["faults"].items():
        tally.injected(*plan.ROWS.get(kind, ()), times=times)
    tally.checked("I1", "I6", "I10", "I18", "I19")


def test_a_fleet_without_the_fence_is_found_out(tmp_path: Path) -> None:
    code, record = soak(tmp_path, "--seed=22", "--mutant=no-fence")
    assert (code, record["passed"]) == (1, False)
    assert len(record["wrong"]["stale reports honoured"]) > 0


def test_a_fleet_whose_workflows_forget_their_callbacks_is_found_out(tmp_path: Path) -> None:
    code, record = soak(tmp_path, "--seed=23", "--mutant=callbacks-again")
    assert (code, record["passed"]) == (1, False)
    assert len(record["wrong"]["callbacks not exactly once"]) > 0
