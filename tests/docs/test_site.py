"""The pages build as a site, without a warning."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT

pytestmark = pytest.mark.long


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    words = (sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html")
    built = subprocess.run(
        [*words, str(ROOT / "docs"), str(tmp_path)], capture_output=True, text=True, timeout=120
    )
    assert built.returncode == 0, built.stderr
    page = (tmp_path / "howto" / "stop-in-time.html").read_text()
    assert 'href="../index.html"' in page
    assert "../README.md" not in (tmp_path / "index.html").read_text(), "it leads to the repository"
    index = (tmp_path / "llms.txt").read_text()
    pages = {path.relative_to(ROOT / "docs").with_suffix("") for path in (ROOT / "docs").rglob("*.md")}
    assert [page for page in pages if f"{page}.md" not in index] == []
