"""The screens with third-party themes, which replace Django's templates: every page and an operation.

What they look like is tested in ``tests/browser/test_themes.py``.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.process


@pytest.mark.parametrize("theme", ["unfold", "jazzmin", "grappelli"])
def test_pages_and_operations_work_with_a_theme(tmp_path: Path, theme: str) -> None:
    if importlib.util.find_spec(theme) is None:
        pytest.skip(f"django-{theme} is not installed")
    done = subprocess.run(
        [sys.executable, "tests/admin/theme.py", str(tmp_path / "theme.sqlite3"), theme],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    said = [line.split() for line in done.stdout.splitlines()]
    pages = [words for words in said if len(words) == 3]
    assert len(pages) == 10
    assert all(words[1:] == ["200", "True"] for words in pages), pages
    assert ["cancel", "302"] in said
    assert ["state", "cancelled"] in said
