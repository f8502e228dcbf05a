"""What is published: workflow files, a Deployment that Kubernetes takes, sdist and wheel.

The tools are those of the dependency group ``package``.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.docs.test_containers import shown
from tests.part import ROOT

pytestmark = pytest.mark.tool


def needs(module: str) -> pytest.MarkDecorator:
    """Skip without this module of the dependency group ``package``."""
    return pytest.mark.skipif(find_spec(module) is None, reason=f"{module} is not installed")


@pytest.mark.skipif(not (Path(sys.executable).parent / "zizmor").exists(), reason="no zizmor")
def test_the_workflows_are_sound() -> None:
    run = subprocess.run(
        [Path(sys.executable).parent / "zizmor", "--offline", ROOT / ".github/workflows"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout
    assert len(list((ROOT / ".github/workflows").glob("*.yml"))) == 3


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


@needs("kubernetes_validate")
@pytest.mark.parametrize("version", ["1.30", "1.34"])
def test_the_deployment_is_one(version: str) -> None:
    kubernetes_validate, yaml = import_module("kubernetes_validate"), import_module("yaml")
    data = yaml.safe_load(shown("yaml"))
    assert data["kind"] == "Deployment"
    kubernetes_validate.validate(data, version, strict=True)
    data["spec"]["replicaz"] = 2
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(data, version, strict=True)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an sdist, and a wheel that was built from it."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "build", "-q", "-o", folder, ROOT], check=True)
    return folder


@needs("build")
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


@needs("build")
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


@needs("build")
@pytest.mark.timeout(600)
def test_the_wheel_runs_a_job_in_an_empty_environment(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DJANGO")}
    environment.pop("PYTHONPATH", None)
    run = subprocess.run(
        ["sh", ROOT / "tests/docs/wheel.sh", wheel],
        env={**environment, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
    assert run.stdout.splitlines()[-1].endswith("completed 5")
