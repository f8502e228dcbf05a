"""What is published, sdist and wheel: what is in them, and that they work away from here."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

from django_ojs import __version__
from tests.docs.test_project_files import REPOSITORY
from tests.part import ROOT

pytestmark = pytest.mark.tool


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an sdist, and a wheel that was built from it."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "build", "-q", "-o", folder, ROOT], check=True)
    return folder


@pytest.mark.timeout(600)
def test_the_sdist_can_run_its_tests(built: Path, tmp_path: Path) -> None:
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    environment = {**os.environ, "PYTHONPATH": str(source), "DATABASE_URL": f"sqlite:///{tmp_path}/db"}
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "tests/domain", "tests/services/test_enqueue.py"],
        cwd=source,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]


def test_the_wheel_holds_the_package_and_nothing_else(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        names = {name for name in file.namelist() if ".dist-info/" not in name}
    package = ROOT / "django_ojs"
    there = {
        str(path.relative_to(ROOT))
        for path in package.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert names == there
    assert "django_ojs/py.typed" in names


def test_the_index_shows_a_readme_whose_links_lead_somewhere(built: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", *built.iterdir()],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout
    assert run.stdout.count("PASSED") == 2
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        (name,) = (name for name in file.namelist() if name.endswith(".dist-info/METADATA"))
        shown = message_from_bytes(file.read(name)).get_payload()
    links = re.findall(r"\]\(([^)]+)\)", str(shown))
    assert {link.partition("/")[0] for link in links} == {"https:"}
    of_ours = [link.removeprefix(f"{REPOSITORY}/") for link in links if link.startswith(REPOSITORY)]
    parts = [link.split("/", 2) for link in of_ours]
    assert {(kind, tag) for kind, tag, _ in parts} == {(k, f"v{__version__}") for k in ("blob", "raw")}
    assert {path for _, _, path in parts if not (ROOT / path.partition("#")[0]).is_file()} == set()


@pytest.mark.timeout(600)
def test_the_wheel_runs_a_job_in_an_empty_environment(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DJANGO")}
    environment.pop("PYTHONPATH", None)
    run = subprocess.run(
        ["sh", ROOT / "tests/packaging/wheel.sh", wheel],
        env={**environment, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
    assert run.stdout.splitlines()[-1].endswith("completed 5")
