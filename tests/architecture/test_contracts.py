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
        [*LINT, "--no-cache", "--no-logo"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
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


LAYERS = "Layers: every package has its place"
PURE = "The domain is pure"
COMPOSITION = "Top-level modules are imported by nothing below them"
SERVICES = "Extensions go through the services"
STRANGERS = "Extensions are independent of each other"
WRITER = "One writer of a job's state"
CYCLES = "No cycles between siblings"
PROCESSES = "The worker by process: supervisor, its threads, executors, what starts them"
BARE = "Executors are started without Django"
DOCUMENT = "The OpenAPI document is not on the path of a request"
KIT = "Nothing imports the testing tools"
WEB = "A web process imports no worker"


@pytest.mark.tool
@pytest.mark.parametrize(
    ("contract", "files"),
    [
        (LAYERS, {"services/reap.py": "import django_ojs.worker.supervisor.runner"}),
        (LAYERS, {"store/locking.py": "import django_ojs.services.claim"}),
        (LAYERS, {"services/reap.py": "import django_ojs.handlers.registry"}),
        (LAYERS, {"domain/states.py": "import django_ojs.clock"}),
        (LAYERS, {"clock.py": "import django_ojs.models"}),
        (LAYERS, {"attic.py": "x = 1"}),
        # Packages that are added later are checked from the start.
        (LAYERS, {"http/__init__.py": "import django_ojs.worker.prefork.frames"}),
        (LAYERS, {"http/__init__.py": "", "conf.py": "import django_ojs.http"}),
        (LAYERS, {"testing/draining.py": "import django_ojs.management.base"}),
        (LAYERS, {"worker/sessions.py": "import django_ojs.testing"}),
        (KIT, {"extensions/schemas/__init__.py": "import django_ojs.testing.draining"}),
        (LAYERS, {"extensions/__init__.py": "", "services/reap.py": "import django_ojs.extensions"}),
        (
            SERVICES,
            {"extensions/__init__.py": "", "extensions/cron.py": "import django_ojs.store.locking"},
        ),
        (
            STRANGERS,
            {
                "extensions/__init__.py": "",
                "extensions/cron.py": "",
                "extensions/unique.py": "import django_ojs.extensions.cron",
            },
        ),
        (PURE, {"domain/states.py": "import django.db"}),
        (PURE, {"domain/retry.py": "import random"}),
        (COMPOSITION, {"services/reap.py": "import django_ojs.api"}),
        (WRITER, {"worker/threads/database.py": "import django_ojs.store.transitions"}),
        (WRITER, {"services/reap.py": "from django_ojs.store import transitions"}),
        (CYCLES, {"services/reap.py": "import django_ojs.services.reaper"}),
        (PROCESSES, {"worker/threads/reaper.py": "import django_ojs.worker.supervisor.runner"}),
        (PROCESSES, {"worker/threads/reaper.py": "import django_ojs.worker.executor.process"}),
        (PROCESSES, {"worker/prefork/pool.py": "import django_ojs.worker.sessions"}),
        (PROCESSES, {"worker/attic.py": "x = 1"}),
        (BARE, {"worker/prefork/frames.py": "import django_ojs.clock"}),
        (DOCUMENT, {"http/views/system.py": "from django_ojs.http.openapi.fields import Error"}),
        (DOCUMENT, {"urls.py": "from django_ojs.http import openapi"}),
        (WEB, {"handlers/registry.py": "import django_ojs.worker.prefork.frames"}),
    ],
)
def test_a_planted_violation_is_found(copy: Path, contract: str, files: dict[str, str]) -> None:
    for name, line in files.items():
        path = copy / "django_ojs" / name
        path.parent.mkdir(exist_ok=True)
        text = path.read_text() if path.exists() else ""
        path.write_text(f"{text}\n{line}\n")
    result = lint(copy)
    assert result.returncode == 1, result.stdout + result.stderr
    assert f"{contract} BROKEN" in result.stdout


@pytest.mark.tool
def test_a_room_of_later_may_use_what_is_below_it(copy: Path) -> None:
    for name, line in {
        "http/__init__.py": "",
        "http/base.py": "from django_ojs.services import claim",
        "extensions/__init__.py": "",
        "extensions/cron.py": "from django_ojs.http import base\nfrom django_ojs import hooks",
    }.items():
        path = copy / "django_ojs" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(line + "\n")
    result = lint(copy)
    assert result.returncode == 0, result.stdout + result.stderr
