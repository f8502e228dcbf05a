"""Random verbs of eight processes under a hundred rate limits: the limits hold, nobody is forgotten."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT, database_url

pytestmark = [
    pytest.mark.every_database,
    pytest.mark.usefixtures("ojs_db"),
    pytest.mark.long,
    pytest.mark.timeout(400),
]
SECONDS = 60


def test_limits_hold_under_random_verbs(tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    done = subprocess.run(
        [*(sys.executable, "-m", "tests.soak.limits", f"--seconds={SECONDS}"), f"--json={record}"],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": database_url(), "DJANGO_SETTINGS_MODULE": "tests.settings"},
        capture_output=True,
        text=True,
        timeout=380,
        check=False,
    )
    assert record.exists(), done.stdout + done.stderr
    found = json.loads(record.read_text())
    assert {rule: wrong for rule, wrong in found["wrong"].items() if wrong} == {}, done.stdout
    assert done.returncode == 0
    assert found["looks"] > 100
    for verb in ("enqueue_many", "claim", "settle", "cancel", "edit", "promote"):
        assert found["verbs"].get(verb, 0) > 0, verb
