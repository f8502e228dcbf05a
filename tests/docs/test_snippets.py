"""What the README and the documentation show is run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import pytest
from django.core.management import get_commands, load_command_class
from django.db import connections

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "example_project/README.md",
]
_BLOCK = re.compile(r"^( *)```(\w+)(?: (\S+))?\n(.*?)^\1```", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the word behind it, its text."""

    language: str
    word: str
    text: str


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page, in lists too."""
    for _, language, word, text in _BLOCK.findall(page.read_text()):
        yield Block(language, word, dedent(text))


_OTHERS = {"db_worker"}
"""Commands of other packages: run where they are installed."""


def _commands() -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        for block in blocks(page):
            if block.language == "console":
                found += [
                    (page.name, line[2:].split("#")[0].strip())
                    for line in block.text.splitlines()
                    if line.startswith("$ python manage.py")
                    and "<" not in line
                    and line.split()[3] not in _OTHERS
                ]
    return found


@pytest.mark.parametrize(("page", "line"), _commands())
def test_every_shown_command_is_understood(
    monkeypatch: pytest.MonkeyPatch, page: str, line: str
) -> None:
    if (named := re.search(r"--database (\w+)", line)) is not None:
        # Django's own commands know only the databases that there are.
        monkeypatch.setitem(connections.databases, named[1], connections.databases["default"])
    words = [word.strip('"') for word in re.findall(r'"[^"]*"|\S+', line)][2:]
    app = get_commands()[words[0]]
    command = load_command_class(app, words[0]) if isinstance(app, str) else app
    parser = command.create_parser("manage.py", words[0])
    assert parser.parse_args(words[1:]) is not None


def _python() -> list[tuple[str, str]]:
    return [
        (f"{page.name}-{number}", block.text)
        for page in PAGES
        for number, block in enumerate(blocks(page))
        if block.language == "python" and not block.word
    ]


@pytest.mark.parametrize(("name", "source"), _python())
def test_every_settings_snippet_is_valid(name: str, source: str) -> None:
    from django_ojs import conf

    scope: dict[str, object] = {}
    exec(compile(source, name, "exec"), scope)
    assert scope.keys() & {"OJS", "DATABASES", "LOGGING"}
    if "OJS" in scope:
        assert conf.read(scope["OJS"])[1] == []


@pytest.mark.process
@pytest.mark.parametrize(
    "page", [p for p in PAGES if any(b.word for b in blocks(p))], ids=lambda p: p.name
)
def test_the_snippets_of_a_page_work(page: Path, tmp_path: Path) -> None:
    """In a new project: files are written, commands run in order; without commands, the jobs load."""
    if page.name in _NEEDS:
        pytest.importorskip(_NEEDS[page.name])
    project = tmp_path / "shop"
    project.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "default"}
    for name in ("DJANGO_SETTINGS_MODULE", "DATABASE_URL"):
        environment.pop(name, None)

    def run(*words: str, stdin: str | None = None) -> str:
        done = subprocess.run(
            [sys.executable, *words],
            cwd=project,
            env=environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    run("-m", "django", "startproject", "shop", ".")
    settings = project / "shop" / "settings.py"
    before = settings.read_text() + _MAIL
    installed = before + '\nINSTALLED_APPS += ["django_ojs", "shop"]\n'
    settings.write_text(installed)
    said = ""
    for block in blocks(page):
        if block.word.startswith("file="):
            target = project / block.word.removeprefix("file=")
            if target == settings:
                settings.write_text((before if _APP in block.text else installed) + block.text)
                continue
            target.write_text(block.text)
            if block.word == "file=shop/jobs.py":
                said += run("manage.py", "check")
        elif block.word == "run":
            for line in block.text.splitlines():
                command, _, source = line.removeprefix("$ python ").partition(" < ")
                stdin = (project / source).read_text() if source else None
                said += run(*command.split(), stdin=stdin)
    assert "System check identified" in said
    assert [text for text in _SAID.get(page.name, ()) if text not in said] == []
    if page.name == "README.md":
        assert "1 job completed" in said
        assert "completed 1" in said
        assert "WARNINGS" not in said
        assert run("manage.py", "shell", "-c", _ADMIN_IS_THERE).strip().endswith("/admin/")


_APP = '"django_ojs"'
_MAIL = """
if "MAILERS" not in globals():  # Django 6.1 makes projects that print mails, others do not
    EMAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"
"""
_NEEDS = {
    "coming-from-celery.md": "celery",
    "coming-from-django-q2.md": "django_q",
    "coming-from-django-tasks-db.md": "django_tasks_db",
    "coming-from-procrastinate.md": "procrastinate",
}
"""Pages that show another queue beside ours: they are run where it is installed."""
_SAID = {
    "coming-from-celery.md": ("both are enqueued", "shop.add-up"),
    "coming-from-django-q2.md": ("for qcluster: 1", "1 job completed"),
    "coming-from-django-tasks-db.md": ("1 job completed", "left to db_worker: 0", "by db_worker: 1"),
    "coming-from-procrastinate.md": ("1 job completed",),
    "coming-from-temporal.md": ("order.undo", "failed"),
    "timeouts.md": ("feed.store", "completed", "discarded  1", "timeout"),
    "progress.md": ("completed 1.0 row 400 of 400 attempt 2 began at row 200",),
    "job-logs.md": (
        "worker_crash: the executor was ended by SIGABRT",
        " INFO shop.jobs: importing 2026-10\n",
        " WARNING shop.jobs: row 17 has no customer\n",
    ),
    "signals.md": ("order.export took ", "Subject: [Django] order.export was discarded"),
    "events.md": ("given up: noop.fail as a test",),
    "schedules.md": ("1 job completed",),
    "django-tasks.md": ("READY READY", "SUCCESSFUL 2 x report of 2026-01-01 1"),
    "async.md": ("state: available", "1 job completed"),
    "metrics.md": ("ojs_job_timeout_count_total counter", "ojs_overdue_seconds 0.0"),
    "execution-middleware.md": ("greet attempt 1: 0.", "an executor leaves"),
    "sentry.md": (
        "ERROR fail: no such month {'job': '",
        "ERROR crash: the executor exited with status 3",
    ),
    "tracing.md": ('"name": "default enqueue"', '"name": "default process"', '"name": "look up"'),
    "logs.md": (
        '"message": "greeted Ada", "job_id": "',
        '"attempt": 1, "event": "greeting", "job_id": "',
    ),
}
"""What the commands of a page must say."""
_ADMIN_IS_THERE = "from django.urls import reverse; print(reverse('admin:index'))"


@pytest.mark.parametrize(
    "page",
    [p for p in PAGES if any(b.word.startswith("file=") for b in blocks(p))],
    ids=lambda p: p.name,
)
def test_each_file_of_a_page_begins_with_its_name(page: Path) -> None:
    """No page shows the words behind the language of a block, so the block itself has to say it."""
    for block in blocks(page):
        if block.word.startswith("file="):
            name = re.escape(block.word.removeprefix("file="))
            assert re.match(rf"# {name}(:|$)", block.text.partition("\n")[0]), block.text


def test_links_lead_somewhere() -> None:
    link = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
    links = [(page, target) for page in PAGES for target in link.findall(page.read_text())]
    assert links
    assert [(p.name, target) for p, target in links if not (p.parent / target).exists()] == []


def anchors(page: Path) -> set[str]:
    """What a link to a heading of the page may end in, as GitHub makes it."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_lead_to_headings() -> None:
    link = re.compile(r"\]\(([^)#:\s]*)#([^)]+)\)")
    found = [
        (page, target, anchor)
        for page in PAGES
        for target, anchor in link.findall(page.read_text())
        if not target or target.endswith(".md")
    ]
    assert len(found) > 10
    wrong = [
        (page.name, target, anchor)
        for page, target, anchor in found
        if anchor not in anchors((page.parent / target) if target else page)
    ]
    assert wrong == []


def test_documented_imports_are_public() -> None:
    import django_ojs
    from django_ojs import api

    used = set()
    for page in PAGES:
        for names in re.findall(r"^from django_ojs import ([^(\n]+)$", page.read_text(), re.MULTILINE):
            used |= {name.strip() for name in names.split(",")}
    assert used
    assert used <= set(api.__all__)
    assert all(hasattr(django_ojs, name) for name in used)


def test_every_check_is_documented() -> None:
    modules = ("checks.py", "tasks_backend/checks.py", "observability/log_levels.py")
    source = "".join((ROOT / "django_ojs" / module).read_text() for module in modules)
    page = (ROOT / "docs/reference/checks.md").read_text()
    ids = set(re.findall(r"ojs\.[EW]\d{3}", source))
    assert ids
    assert ids == set(re.findall(r"ojs\.[EW]\d{3}", page))
