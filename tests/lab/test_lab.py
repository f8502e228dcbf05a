"""One round of every case of the lab, on databases of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab import NAMES
from tests.support import ROOT

pytestmark = [pytest.mark.lab, pytest.mark.tool, pytest.mark.process, pytest.mark.long]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("database", NAMES)
def test_one_round_of_each_case(database: str, tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    done = subprocess.run(
        [sys.executable, "-m", "tests.lab", f"--db={database}", "--rounds=1", f"--json={record}"],
        cwd=ROOT,
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=880,
        check=False,
    )
    assert record.exists(), done.stdout[-4000:] + done.stderr[-2000:]
    assert done.returncode == 0, done.stdout[-8000:]
    results = json.loads(record.read_text())
    required = os.environ.get("OJS_REQUIRE", "").split(",")
    for result in results:
        assert not result["skipped"] or database not in required, result
    if skipped := [f"{result['case']}: {result['skipped']}" for result in results if result["skipped"]]:
        pytest.skip("; ".join(skipped))
