"""What is published, built once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.part import ROOT

Version = tuple[int, int]


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an sdist, and a wheel that was built from it."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "build", "-q", "-o", folder, ROOT], check=True)
    return folder


@pytest.fixture(scope="session")
def wheel(built: Path) -> Path:
    """The wheel."""
    (found,) = built.glob("*.whl")
    return found


def interpreters() -> dict[Version, str]:
    """The Pythons of this machine that the project supports and that can make an environment."""
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
    named = [shutil.which(f"python3.{minor}") for minor in range(11, 30)]
    found: dict[tuple[int, int], str] = {}
    for python in [
        sys.executable,
        *filter(None, named),
        *map(str, pyenv.glob("versions/3.*/bin/python")),
    ]:
        asked = subprocess.run(
            [python, "-c", "import ensurepip, sys, venv; print(*sys.version_info[:2])"],
            capture_output=True,
            text=True,
            check=False,
        )
        if asked.returncode == 0:
            major, minor = map(int, asked.stdout.split())
            found.setdefault((major, minor), python)
    return {version: python for version, python in found.items() if version >= (3, 11)}
