"""The import contracts hold, and would notice if they did not."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINT = [
    sys.executable,
    "-c",
    "import sys; from importlinter.cli import lint_imports_command as c; sys.exit(c())",
]

pytest.importorskip("importlinter")


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter in a folder with the project's configuration."""
    return subprocess.run(
        [*LINT, "--no-cache"], cwd=folder, capture_output=True, text=True, timeout=100, check=False
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the package to do harm to."""
    shutil.copytree(ROOT / "django_ojs", tmp_path / "django_ojs")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_all_contracts_are_kept() -> None:
    result = lint(ROOT)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "0 broken" in result.stdout


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("domain/states.py", "import django.db"),
        ("domain/retry.py", "import random"),
        ("services/reap.py", "import django_ojs.worker.runner"),
        ("store/locking.py", "import django_ojs.services.claim"),
        ("worker/desk.py", "import django_ojs.store.transitions"),
        ("clock.py", "import django_ojs.models"),
        ("admin.py", "import django_ojs.worker.registry"),
        ("attic.py", "x = 1"),
    ],
)
def test_a_planted_violation_is_found(copy: Path, module: str, line: str) -> None:
    path = copy / "django_ojs" / module
    text = path.read_text() if path.exists() else ""
    path.write_text(f"{text}\n{line}\n")
    result = lint(copy)
    assert result.returncode != 0, result.stdout
