"""The files of ``changelog.d`` become the section of a version, on top of those before it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import django_ojs
from tests.part import ROOT

pytestmark = pytest.mark.tool


def test_a_release_makes_a_section_of_the_news(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path)
    news = tmp_path / "changelog.d"
    news.mkdir()
    shutil.copy(ROOT / "changelog.d/README.md", news)
    (news / "12.fixed.md").write_text("A claim waits for nobody.\n")
    (news / "+columns.upgrading.md").write_text("Run `migrate`.\n")
    build = (sys.executable, "-m", "towncrier", "build", "--version", "1.2.0", "--date", "2027-02-03")
    made = subprocess.run([*build, "--yes"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout + made.stderr
    before, marker, sections = (
        (tmp_path / "CHANGELOG.md").read_text().partition("<!-- towncrier release notes start -->\n")
    )
    assert before.startswith("# Changelog\n")
    assert marker
    section, heading, _ = sections.partition(f"## [{django_ojs.__version__}]")
    assert heading
    assert [line for line in section.splitlines() if line] == [
        "## [1.2.0] - 2027-02-03",
        "### Upgrading",
        "- Run `migrate`.",
        "### Fixed",
        "- A claim waits for nobody. ([#12](https://github.com/django-ojs/django-ojs/issues/12))",
    ]
    assert [path.name for path in news.iterdir()] == ["README.md"]
