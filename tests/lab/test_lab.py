"""One round of every case of the lab, on databases of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT

pytestmark = [pytest.mark.tool, pytest.mark.process, pytest.mark.long]


@pytest.mark.timeout(1500)
def test_one_round_of_each_case(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No stall, no effect that came again, nothing lost; no lateness but a busy machine's."""
    record = tmp_path / "record.json"
    done = subprocess.run(
        [sys.executable, "-m", "tests.lab", "--brief", f"--json={record}"],
        cwd=ROOT,
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=1400,
        check=False,
    )
    assert record.exists(), done.stdout[-4000:] + done.stderr[-2000:]
    assert done.returncode == 0, done.stdout[-8000:]
    with capsys.disabled():
        print("\n" + done.stdout[done.stdout.index("case  ") :])
    results = json.loads(record.read_text())
    required = os.environ.get("OJS_REQUIRE", "").split(",")
    for result in results:
        assert not result["skipped"] or result["database"] not in required, result
    if skipped := [
        f"{result['case']} ({result['database']}): {result['skipped']}"
        for result in results
        if result["skipped"]
    ]:
        pytest.skip("; ".join(skipped))
