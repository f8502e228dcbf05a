"""The documented lines for cron do what they say, started as cron starts them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from .test_snippets import PAGES, ROOT, blocks

pytestmark = pytest.mark.process
_LINE = re.compile(r"(?:\S+ +){5}(?P<user>\S+) +(?P<command>.+)")
LINES = [
    line
    for page in PAGES
    for block in blocks(page)
    if block.language == "cron"
    for line in block.text.splitlines()
    if not line.startswith("#")
]
CRON = {"HOME": "/", "LOGNAME": "app", "SHELL": "/bin/sh", "PATH": "/usr/bin:/bin"}
"""All that cron gives a command."""


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated project that needs its environment file."""
    app = tmp_path_factory.mktemp("cron") / "app"
    app.mkdir()
    environment = {**CRON, "PYTHONPATH": str(ROOT), "SHOP_SECRET": "x y"}

    def run(*words: str) -> None:
        subprocess.run([sys.executable, *words], cwd=app, env=environment, check=True, timeout=60)

    run("-m", "django", "startproject", "shop", ".")
    settings = app / "shop" / "settings.py"
    more = """
        import os
        SECRET_KEY = os.environ["SHOP_SECRET"]
        INSTALLED_APPS += ["django_ojs"]
        DATABASES["default"]["OPTIONS"] = {
            "transaction_mode": "IMMEDIATE",
            "init_command": "PRAGMA journal_mode=WAL;",
        }
    """
    settings.write_text(settings.read_text() + "\n".join(map(str.strip, more.splitlines())))
    run("manage.py", "migrate", "--verbosity", "0")
    (app / ".venv").symlink_to(sys.prefix)
    (app.parent / "app.env").write_text(f"PYTHONPATH='{ROOT}'\nSHOP_SECRET='x y'\n")
    return app


@pytest.mark.parametrize("line", LINES)
def test_a_line_of_cron(app: Path, line: str) -> None:
    found = _LINE.fullmatch(line)
    assert found, "five times, a user, a command"
    command = found["command"].replace("/srv/app", str(app)).replace("/etc/", f"{app.parent}/")
    assert "%" not in command, "cron takes it for the end of the line"
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        cwd="/",
        env=CRON,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_there_are_lines() -> None:
    assert {"reap_timeouts", "ojs"} == {line.split("manage.py ")[1].split()[0] for line in LINES}
