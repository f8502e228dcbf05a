"""What is published: what is in sdist and wheel, and that the sdist can run its tests elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest

from django_ojs import __version__
from tests.docs.test_project_files import REPOSITORY
from tests.part import ROOT

pytestmark = pytest.mark.tool

FOREIGN = ("PYTHONPATH", "DATABASE_URL", "VIRTUAL_ENV", "PYTEST_ADDOPTS", "MAKEFLAGS", "MFLAGS")
TRIED = "tests/domain tests/services/test_enqueue.py tests/docs/test_project_files.py"


@pytest.fixture
def metadata(wheel: Path) -> Message:
    """What the wheel tells the index."""
    with zipfile.ZipFile(wheel) as file:
        (name,) = (name for name in file.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_bytes(file.read(name))


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        names = {name for name in file.namelist() if ".dist-info/" not in name}
    there = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "django_ojs").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert names == there
    translated = {
        f"django_ojs/locale/{code}/LC_MESSAGES/django.mo" for code in ("de", "es", "fr", "ja")
    }
    assert {"django_ojs/py.typed", *translated} <= names


def test_the_checkers_of_the_index_are_content(built: Path, wheel: Path) -> None:
    files = sorted(built.iterdir())
    twine = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", *files],
        capture_output=True,
        text=True,
        check=False,
    )
    assert twine.returncode == 0, twine.stdout
    assert twine.stdout.count("PASSED") == len(files) == 2
    contents = subprocess.run(
        [sys.executable, "-m", "check_wheel_contents", wheel],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert contents.returncode == 0, contents.stdout
    assert contents.stdout.rstrip().endswith(": OK")


def test_the_wheel_asks_for_little_and_offers_what_is_for_users(metadata: Message) -> None:
    assert metadata["Version"] == __version__
    needed = [text for text in metadata.get_all("Requires-Dist", []) if "extra ==" not in text]
    names = {re.split(r"[^\w.-]", text)[0].lower() for text in needed}
    assert names == {"django", "djangorestframework", "django-filter", "cronsim"}
    extras = {"postgres", "mysql", "otel", "prometheus", "sentry", "tasks", "titles"}
    assert set(metadata.get_all("Provides-Extra", [])) == extras
    said = {text.partition(", ")[0] for text in metadata.get_all("Project-URL", [])}
    assert said == {"Documentation", "Source", "Changelog", "Issues"}


def test_the_readme_of_the_index_leads_somewhere(metadata: Message) -> None:
    links = re.findall(r"\]\(([^)]+)\)", str(metadata.get_payload()))
    assert {link.partition("/")[0] for link in links} == {"https:"}
    of_ours = [link.removeprefix(f"{REPOSITORY}/") for link in links if link.startswith(REPOSITORY)]
    parts = [link.split("/", 2) for link in of_ours]
    assert {(kind, tag) for kind, tag, _ in parts} == {(k, f"v{__version__}") for k in ("blob", "raw")}
    assert {path for _, _, path in parts if not (ROOT / path.partition("#")[0]).is_file()} == set()


@pytest.mark.timeout(1200)
def test_the_sdist_can_set_itself_up_and_run_its_tests(built: Path, tmp_path: Path) -> None:
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    run = subprocess.run(
        ["make", "test", "DB=sqlite", f"ARGS={TRIED}"],
        cwd=source,
        env={name: text for name, text in os.environ.items() if name not in FOREIGN},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
    assert re.search(r"^\d+ passed", run.stdout, re.MULTILINE)
    assert (source / ".venv/bin/python").exists()
