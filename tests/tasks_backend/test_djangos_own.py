"""Django's own tests of ``django.tasks``, unmodified, against our backend.

Those of the installed Django, from its source distribution; with Django 5.2, which has none, those
of 6.0. It is downloaded with pip and kept in the user's cache.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import django
import pytest

from tests.support import ROOT

pytestmark = pytest.mark.tool
EXPECTED = {"Dummy.test_refresh_result", "Dummy.test_refresh_result_async"}
"""They change the list that DummyBackend has in memory, and expect the result to follow."""
if django.VERSION < (6, 0):
    # The package words one message otherwise: "async tasks".
    EXPECTED |= {"Dummy.test_validate_disallowed_async_task"}
AT_LEAST = 54 if django.VERSION >= (6, 1) else 49 if django.VERSION >= (6, 0) else 48


def cache() -> Path:
    """Where source distributions are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "django-ojs" / "django"


def source_of_tests() -> Path:
    """The folder ``tests`` of Django's source, downloaded once. Skips where that cannot be had."""
    wanted = django.__version__ if django.VERSION >= (6, 0) else "6.0.*"
    folder = cache() / wanted.replace("*", "x")
    if not (folder / "tests/tasks/test_tasks.py").exists():
        folder.mkdir(parents=True, exist_ok=True)
        _download(wanted, folder)
        (archive,) = folder.glob("[dD]jango-*.tar.gz")
        with tarfile.open(archive) as packed:
            for member in packed.getmembers():
                _, _, member.name = member.name.partition("/")
                if member.name.startswith("tests/tasks/"):
                    packed.extract(member, folder, filter="data")
        archive.unlink()
    return folder / "tests"


def _download(wanted: str, folder: Path) -> None:
    options = ("--no-deps", "--no-binary", ":all:", "--ignore-requires-python", "--quiet")
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        *options,
        f"django=={wanted}",
        "-d",
        str(folder),
    ]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=90)
    except subprocess.TimeoutExpired:
        pytest.skip("Django's source cannot be downloaded: no answer within 90 s")
    except subprocess.CalledProcessError as error:
        said = (error.stderr or error.stdout).strip().splitlines() or ["pip failed"]
        pytest.skip(f"Django's source cannot be downloaded: {said[-1][:200]}")


def test_they_pass_but_for_two(tmp_path: Path) -> None:
    folder = source_of_tests()
    done = subprocess.run(
        [sys.executable, "-m", "tests.tasks_backend.djangos_own", str(folder)],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "DJANGO_SETTINGS_MODULE": "tests.settings",
            "DATABASE_URL": f"sqlite:///{tmp_path}/db",
        },
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    outcomes = json.loads(done.stdout)["outcomes"]
    failed = {name: why for name, why in outcomes.items() if why != "passed"}
    assert failed.keys() == EXPECTED, "\n\n".join(failed.values())
    assert len(outcomes) - len(failed) >= AT_LEAST
