"""The workflow files of the code host: linted, and with the matrix of ``tox.ini``."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.part import ROOT

pytestmark = pytest.mark.tool


def test_the_workflows_are_sound() -> None:
    run = subprocess.run(
        [Path(sys.executable).parent / "zizmor", "--offline", ROOT / ".github/workflows"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout
    assert len(list((ROOT / ".github/workflows").glob("*.yml"))) == 4


def test_the_matrix_of_the_workflow_is_that_of_tox() -> None:
    text = (ROOT / ".github/workflows/ci.yml").read_text()
    (pythons,) = re.findall(r"^        python: \[(.*)\]$", text, re.MULTILINE)
    (djangos,) = re.findall(r"^        django: \[(.*)\]$", text, re.MULTILINE)
    left_out = set(re.findall(r'- \{python: "([\d.]+)", django: "([\d.]+)"\}', text))
    versions = [re.findall(r"[\d.]+", found) for found in (pythons, djangos)]
    wanted = {(python, django) for python in versions[0] for django in versions[1]} - left_out
    names = {f"py{python}-django{django}".replace(".", "") for python, django in wanted}
    listed = subprocess.run(
        [sys.executable, "-m", "tox", "list", "--no-desc"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert names == set(listed)
