"""The wheel alone, on the oldest and the newest Python of this machine, and the Djangos for them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.packaging.conftest import Version, interpreters
from tests.part import ROOT

pytestmark = pytest.mark.tool


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("which", "django"), [(min, "5.2"), (max, "5.2"), (max, "6.1")])
def test_a_project_with_the_wheel_runs_jobs(
    wheel: Path,
    which: Callable[[Iterable[Version]], Version],
    django: str,
    tmp_path: Path,
) -> None:
    found = interpreters()
    version = which(found)
    if django != "5.2" and version < (3, 12):
        pytest.skip(f"Django {django} needs Python 3.12, the newest here is 3.{version[1]}")
    run = subprocess.run(
        [found[version], ROOT / "tests/packaging/try_wheel.py", wheel, django],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
    (line,) = [line for line in run.stdout.splitlines() if line.startswith("Python ")]
    words = line.split()
    assert words[1].startswith("{}.{}.".format(*version))
    assert words[3].startswith(django)
    assert words[4:] == ["completed", "5"]
