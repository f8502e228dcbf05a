"""The project and the tests of docs/howto/testing.md, as a user would run them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest
from django.db import connections

from tests.docs.test_snippets import blocks
from tests.testing_kit.ten import FIXTURES, TEN

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/howto/testing.md"
pytestmark = [pytest.mark.process, pytest.mark.every_database]
TRANSACTIONS = {
    "TestCase": [],
    "TransactionTestCase": [
        ("pytest.mark.django_db", "pytest.mark.django_db(transaction=True)"),
        ("OJSTestCase)", "OJSTestMixin, TransactionTestCase)"),
    ],
}
PYTEST = ("-m", "pytest", "--strict-markers", "-W", "error", "--durations=0", "-vv")
UNITTEST = ("-W", "error", "manage.py", "test", "--noinput", "--shuffle")
SETTINGS = """
import os
INSTALLED_APPS += ["django_ojs", "shop"]
if server := os.environ.get("KIT_SERVER"):
    engine, host, port, user, password = server.split("|")
    DATABASES["default"] = {
        "ENGINE": engine, "HOST": host, "PORT": port, "USER": user, "PASSWORD": password,
        "NAME": os.environ["KIT_NAME"], "TEST": {"NAME": f"test_{os.environ['KIT_NAME']}"},
    }
    if engine.endswith("mysql"):
        import pymysql
        pymysql.version_info = (2, 2, 7, "final", 0)
        pymysql.install_as_MySQLdb()
"""


class Ran(NamedTuple):
    """What a command of the project printed."""

    code: int
    output: str


class Project:
    """The project of the page, in a folder of its own."""

    def __init__(self, folder: Path, kind: str) -> None:
        self._kind = kind
        self.folder = folder / "shop"
        self.folder.mkdir()
        installed(folder / "installed")
        path = os.pathsep.join([str(ROOT), str(folder / "installed")])
        # A name of its own, since others may run the same tests on the server.
        named = {"KIT_SERVER": server(), "KIT_NAME": f"ojs_kit_project_{os.getpid()}"}
        self.environment = {**os.environ, "PYTHONPATH": path, **named}
        for name in ("DJANGO_SETTINGS_MODULE", "DATABASE_URL", "PYTEST_ADDOPTS", "PYTEST_PLUGINS"):
            self.environment.pop(name, None)
        assert self.run("-m", "django", "startproject", "shop", ".").code == 0
        settings = self.folder / "shop/settings.py"
        settings.write_text(settings.read_text() + SETTINGS)
        for block in blocks(PAGE):
            if block.word.startswith("file="):
                self.write(block.word.removeprefix("file="), block.text)

    def write(self, name: str, text: str) -> None:
        """Add a file, for the kind of transactions of this project."""
        for before, after in TRANSACTIONS[self._kind]:
            text = text.replace(before, after)
        (self.folder / name).write_text(text)

    def run(self, *words: str) -> Ran:
        """Run Python there."""
        done = subprocess.run(
            [sys.executable, *words],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        return Ran(done.returncode, done.stdout + done.stderr)


def installed(folder: Path) -> None:
    """What ``pip`` leaves of the package for others to find: its entry points."""
    about = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    place = folder / "django_ojs-0.dist-info"
    place.mkdir(parents=True)
    (place / "METADATA").write_text("Metadata-Version: 2.1\nName: django-ojs\nVersion: 0\n")
    lines = []
    for group, points in about["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {target}" for name, target in points.items())]
    (place / "entry_points.txt").write_text("\n".join(lines) + "\n")


def server() -> str:
    """The database server of this run; empty for SQLite in memory."""
    database = connections["default"].settings_dict
    if database["ENGINE"].endswith("sqlite3"):
        return ""
    keys = ("ENGINE", "HOST", "PORT", "USER", "PASSWORD")
    return "|".join(str(database[key]) for key in keys)


def seconds_of_calls(output: str) -> list[float]:
    """What ``--durations=0 -vv`` says the tests themselves have taken."""
    return [float(seconds) for seconds in re.findall(r"^([\d.]+)s call", output, re.MULTILINE)]


@pytest.mark.parametrize("kind", TRANSACTIONS)
def test_the_page_with_pytest(tmp_path: Path, kind: str) -> None:
    # A worker cannot share a database in memory.
    without = () if server() else ("--ignore=test_worker.py",)
    ran = Project(tmp_path, kind).run(*PYTEST, *without)
    assert ran.code == 0, ran.output
    assert f"{len(seconds_of_calls(ran.output))} passed" in ran.output


@pytest.mark.parametrize("kind", TRANSACTIONS)
def test_the_page_with_unittest(tmp_path: Path, kind: str) -> None:
    ran = Project(tmp_path, kind).run(*UNITTEST)
    assert ran.code == 0, ran.output
    assert "Ran 4 tests" in ran.output


@pytest.mark.parametrize("kind", TRANSACTIONS)
def test_ten_tests(tmp_path: Path, kind: str) -> None:
    project = Project(tmp_path, kind)
    project.write("shop/tests.py", TEN)
    ran = project.run(*PYTEST, "shop/tests.py")
    assert ran.code == 0, ran.output
    assert "10 passed" in ran.output
    seconds = seconds_of_calls(ran.output)
    assert len(seconds) == 10, ran.output
    # 2 s are promised, for a machine that does nothing else.
    assert sum(seconds) < 20, ran.output
    ran = project.run(*UNITTEST)
    assert ran.code == 0, ran.output
    assert "Ran 10 tests" in ran.output


@pytest.mark.skipif(shutil.which("mysqldump") is None, reason="Django copies a database with it")
def test_two_processes(tmp_path: Path) -> None:
    """Each has a database of its own, and a clock, plans and queues of its own."""
    project = Project(tmp_path, "TestCase")
    project.write("shop/tests.py", TEN)
    again = TEN.replace("(OJSTestCase)", "(OJSTestMixin, TransactionTestCase)")
    project.write("shop/test_again.py", again.replace("shop.report", "shop.report-again"))
    ran = project.run(*UNITTEST, "--parallel", "2", "--pattern", "test*.py")
    assert ran.code == 0, ran.output
    assert "Ran 20 tests" in ran.output


def test_fixtures_and_marks(tmp_path: Path) -> None:
    project = Project(tmp_path, "TestCase")
    if not server():
        # A worker cannot share a database in memory.
        with (project.folder / "shop/settings.py").open("a") as file:
            file.write('DATABASES["default"]["TEST"] = {"NAME": BASE_DIR / "test.sqlite3"}\n')
    project.write("test_fixtures.py", FIXTURES)
    ran = project.run(*PYTEST, "test_fixtures.py")
    assert ran.code == 0, ran.output
    assert "5 passed" in ran.output
    with (project.folder / "pytest.ini").open("a") as file:
        file.write("ojs_mode = inline\n")
    ran = project.run(*PYTEST, "test_fixtures.py")
    assert "1 failed, 4 passed" in ran.output, ran.output
    assert "test_manual - " in ran.output


TWO_DATABASES = """
DATABASES["bulk"] = {"ENGINE": "django.db.backends.sqlite3", "NAME": BASE_DIR / "bulk.sqlite3"}
OJS = {"QUEUE_DATABASES": {"bulk": ["bulk*"]}}
"""
TWO = """
import pytest
from shop.jobs import sign_up, welcome

BOTH = ["default", "bulk"]


@pytest.mark.django_db(databases=BOTH)
def test_in_one_transaction_each(ojs, ojs_clock, mailoutbox):
    ojs_clock.freeze()
    user = sign_up("ada@example.org")
    welcome.using(queue="bulk-mail").enqueue(user.pk)
    ojs.assert_enqueued(welcome, queue="bulk-mail", count=1)
    assert ojs.drain() == ojs.Drained(completed=2)
    ojs_clock.advance(days=7, work=True)
    assert len(mailoutbox) == 3


@pytest.mark.django_db(transaction=True, databases=BOTH)
@pytest.mark.ojs("inline")
def test_with_commits(ojs, mailoutbox):
    user = sign_up("ada@example.org")
    assert welcome.using(queue="bulk-mail").enqueue(user.pk).state == "completed"


@pytest.mark.django_db
def test_one_of_them(ojs):
    sign_up("ada@example.org")
    assert ojs.drain() == ojs.Drained(completed=1)
    with pytest.raises(RuntimeError, match=r"'bulk', .* `@pytest.mark.django_db\\(databases="):
        ojs.drain("bulk-mail")
"""


def test_two_databases(tmp_path: Path) -> None:
    project = Project(tmp_path, "TestCase")
    with (project.folder / "shop/settings.py").open("a") as file:
        file.write(TWO_DATABASES)
    (project.folder / "test_two.py").write_text(TWO)
    ran = project.run(*PYTEST, "test_two.py")
    assert ran.code == 0, ran.output
    assert "3 passed" in ran.output
    # What uses one of them goes on as before.
    ran = project.run(*PYTEST, "--ignore=test_worker.py", "--ignore=test_two.py")
    assert ran.code == 0, ran.output
    ran = project.run(*UNITTEST)
    assert ran.code == 0, ran.output


def test_the_plugin_costs_a_run_without_jobs_nothing(tmp_path: Path) -> None:
    project = Project(tmp_path, "TestCase")
    (project.folder / "test_nothing.py").write_text(
        "import sys\n"
        "def test_nothing(request):\n"
        "    assert request.config.pluginmanager.has_plugin('django_ojs')\n"
        "    assert not {name for name in sys.modules if name.split('.')[0] in ('django', 'asgiref')}\n"
        "    ours = {name for name in sys.modules if name.startswith('django_ojs')}\n"
        "    assert ours == {'django_ojs', 'django_ojs.testing', 'django_ojs.testing.plugin'}\n"
    )
    (project.folder / "pytest.ini").write_text("[pytest]\n")
    ran = project.run("-m", "pytest", "-p", "no:django", "-p", "no:schemathesis", "test_nothing.py")
    assert ran.code == 0, ran.output
