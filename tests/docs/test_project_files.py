"""What people who join or follow the project are told about it is true."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import version

import pytest
from packaging.utils import canonicalize_name

import django_ojs
from tests import lock
from tests.part import ROOT

REPOSITORY = "https://github.com/django-ojs/django-ojs"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT, TOWNCRIER = PYPROJECT["project"], PYPROJECT["tool"]["towncrier"]
PAGES = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").rglob("*.md"),
    *(path for path in (ROOT / ".github").rglob("*") if path.is_file()),
]


def test_there_is_one_address_of_the_repository() -> None:
    """Not published yet: when it is, somewhere else, this is the one place to look from."""
    text = "\n".join([*(page.read_text() for page in PAGES), *PROJECT["urls"].values()])
    found = set(re.findall(r"https://github\.com/[\w.-]*ojs[\w./-]*", text))
    assert found
    assert [url for url in found if url != REPOSITORY and not url.startswith(f"{REPOSITORY}/")] == []


def test_the_urls_of_the_project_lead_to_what_is_here() -> None:
    urls = PROJECT["urls"]
    assert urls.keys() == {"Documentation", "Source", "Changelog", "Issues"}
    paths = [url.partition("/blob/main/")[2] for url in urls.values() if "/blob/" in url]
    assert paths == ["docs/index.md", "CHANGELOG.md"]
    assert all((ROOT / path).is_file() for path in paths)


def test_a_report_of_a_vulnerability_has_an_address() -> None:
    address = f"{REPOSITORY}/security/advisories/new"
    for page in ("SECURITY.md", "CODE_OF_CONDUCT.md", ".github/ISSUE_TEMPLATE/config.yml"):
        assert address in (ROOT / page).read_text(), page


def _classified(prefix: str) -> list[str]:
    """The versions that the classifiers of a prefix name."""
    return [
        c.rpartition(" ")[2] for c in PROJECT["classifiers"] if re.search(rf"{prefix} :: \d\.\d", c)
    ]


def test_the_classifiers_name_what_is_tested() -> None:
    tox = (ROOT / "tox.ini").read_text()
    environments = re.findall(r"django(\d)(\d): Django~=", tox)
    assert _classified("Django") == [f"{major}.{minor}" for major, minor in environments]
    (envs,) = re.findall(r"^env_list =\n((?: +.*\n)+)", tox, re.MULTILINE)
    pythons = sorted(set(re.findall(r"(?<!\d)3(\d\d)", envs)))
    assert _classified("Python") == [f"3.{minor}" for minor in pythons]


def test_the_changelog_has_the_version_on_top() -> None:
    _, marker, sections = (ROOT / "CHANGELOG.md").read_text().partition(TOWNCRIER["start_string"])
    assert marker
    assert sections.lstrip().startswith(f"## [{django_ojs.__version__}] - ")


def test_news_of_the_next_version_is_of_a_kind_that_there_is() -> None:
    kinds = "|".join(kind["directory"] for kind in TOWNCRIER["type"])
    form = re.compile(rf"(\d+|\+[\w-]+)\.({kinds})\.md")
    names = {path.name for path in (ROOT / TOWNCRIER["directory"]).iterdir()} - set(TOWNCRIER["ignore"])
    assert [name for name in sorted(names) if not form.fullmatch(name)] == []


def _recipes(*targets: str) -> list[str]:
    """The commands of targets of the Makefile, with the folder of the tools spelled out."""
    text = (ROOT / "Makefile").read_text()
    found = []
    for target in targets:
        (recipe,) = re.findall(rf"^{target}:.*\n((?:\t.*\n)+)", text, re.MULTILINE)
        found += [line.strip().replace("$(BIN)", ".venv/bin") for line in recipe.splitlines()]
    return found


def test_pre_commit_runs_what_make_runs() -> None:
    text = (ROOT / ".pre-commit-config.yaml").read_text()
    entries = re.findall(r"^ +entry: (.*)$", text, re.MULTILINE)
    assert entries == _recipes("lint", "types", "contracts")


def test_the_lock_file_has_what_is_asked_for() -> None:
    lines = [line for line in lock.LOCK.read_text().splitlines() if not line.startswith("#")]
    pins = dict(line.split("==") for line in lines)
    assert sorted(pins) == list(pins)
    for requirement in lock.direct(*lock.GROUPS):
        pinned = pins[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(pinned, prereleases=True), requirement


def test_what_is_locked_is_what_is_installed_and_needed() -> None:
    pytest.importorskip("pre_commit")
    found = lock.pins("dev")
    assert {"django", "ruff", "pluggy"} <= found.keys()
    assert found["pytest"] == version("pytest")
    assert "pip" not in found
    assert "celery" not in found, "make setup is to stay short"


def test_the_page_about_installing_has_the_extras_and_the_versions() -> None:
    page = (ROOT / "docs/howto/install.md").read_text()
    extras = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    assert extras == PROJECT["optional-dependencies"].keys()
    said = dict(re.findall(r"^\| (Python|Django|Database) \| (.*) \|$", page, re.MULTILINE))
    readme = (ROOT / "README.md").read_text()
    assert said["Database"] in readme
    djangos = [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if re.search(r"Django :: \d", c)]
    assert said["Django"] == f"{djangos[0]} to {djangos[-1]}"
    assert said["Python"].startswith(PROJECT["requires-python"].removeprefix(">="))


def test_each_guarantee_of_the_readme_has_a_command_and_figures_that_were_measured() -> None:
    part = (ROOT / "README.md").read_text().partition("## What it guarantees")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", part, re.MULTILINE)[1:]
    assert len(rows) > 6
    makefile = (ROOT / "Makefile").read_text()
    measured = "".join(
        (ROOT / "docs" / page).read_text() for page in ("performance.md", "reliability.md")
    )
    for name, figures, command in rows:
        targets = re.findall(r"make ([a-z-]+)", command)
        assert targets, name
        assert [one for one in targets if not re.search(rf"^{one}:", makefile, re.MULTILINE)] == []
        for path in re.findall(r"ARGS=([\w/.]+)", command):
            assert (ROOT / path).exists(), path
        numbers = re.findall(r"\d[\d.,]*\d|\d+", figures)
        assert [one for one in numbers if not re.search(rf"(?<![\d.,]){one}(?!,?\d)", measured)] == []
