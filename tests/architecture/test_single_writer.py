"""Nobody but the store writes the state of a job.

Import contracts cannot see ``Job.objects.update(state=...)`` or a raw statement; this reads the
syntax trees. Of other models only workflows have a column called ``state``; the services that write
it may not touch jobs in the same expression.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from django.apps import apps

PACKAGE = Path(__file__).resolve().parents[2] / "django_ojs"
WRITER = PACKAGE / "store" / "transitions.py"
WORKFLOWS = PACKAGE / "services" / "workflows"
_CALLS = {"update", "aupdate", "create", "acreate", "get_or_create", "update_or_create", "Job"}
_NAMING = {"bulk_update", "abulk_update", "setattr"}
_SQL = re.compile(r"\bset\b[^;]*\bstate\"?\s*=", re.IGNORECASE)


def _names(call: ast.Call) -> bool:
    return any(isinstance(item, ast.Constant) and item.value == "state" for item in ast.walk(call))


def _has_key(call: ast.Call) -> bool:
    """``state=...``, or a dict with that key anywhere in the arguments."""
    dicts = (item for item in ast.walk(call) if isinstance(item, ast.Dict))
    keys = (key for item in dicts for key in item.keys)
    return any(keyword.arg == "state" for keyword in call.keywords) or any(
        isinstance(key, ast.Constant) and key.value == "state" for key in keys
    )


def writes(source: str) -> list[int]:
    """The lines of ``source`` that write an attribute, keyword or column named ``state``."""
    lines = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.expr):
            continue
        if isinstance(node, ast.Attribute):
            found = node.attr == "state" and not isinstance(node.ctx, ast.Load)
        elif isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            found = (name in _CALLS and _has_key(node)) or (name in _NAMING and _names(node))
        else:
            found = (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and _SQL.search(node.value) is not None
            )
        if found:
            lines.append(node.lineno)
    return lines


@pytest.mark.parametrize(
    "source",
    [
        "job.state = 'completed'",
        "job.state: str = 'x'",
        "Job.objects.filter(pk=1).update(state='completed')",
        "Job.objects.create(type='a', state='available')",
        "Job(state='available')",
        "Job.objects.bulk_update(jobs, ['state'])",
        "setattr(job, 'state', 'x')",
        "job.state += 'd'",
        "old, job.state = job.state, 'x'",
        "for job.state in ('a', 'b'): job.save()",
        "jobs.update(**{'state': 'x'})",
        "Job.objects.update_or_create(pk=1, defaults={'state': 'x'})",
        "cursor.execute('UPDATE django_ojs_job SET state = 1')",
        "cursor.execute('update j set a = 1, \"state\" = 2')",
        "cursor.execute(f'UPDATE {table} SET state = %s')",
    ],
)
def test_every_way_of_writing_is_seen(source: str) -> None:
    assert writes(source)


@pytest.mark.parametrize(
    "source",
    [
        "x = job.state",
        "Job.objects.filter(state='active')",
        "job.error = 1",
        "f(job.state == 'a')",
    ],
)
def test_reading_is_not_writing(source: str) -> None:
    assert not writes(source)


def test_only_the_writer_writes() -> None:
    found = {
        str(path.relative_to(PACKAGE)): lines
        for path in PACKAGE.rglob("*.py")
        if path != WRITER
        and "migrations" not in path.parts
        and WORKFLOWS not in path.parents
        and (lines := writes(path.read_text()))
    }
    assert found == {}


def writes_of_jobs(source: str) -> list[int]:
    """Those lines of :func:`writes` that name a job."""
    every = source.splitlines()
    return [line for line in writes(source) if re.search(r"\bJob\b|\bjobs?\.state", every[line - 1])]


def test_workflows_do_not_write_the_state_of_jobs() -> None:
    files = list(WORKFLOWS.glob("*.py"))
    assert any(writes(path.read_text()) for path in files)
    assert {path.name: lines for path in files if (lines := writes_of_jobs(path.read_text()))} == {}
    assert writes_of_jobs("workflow.state = 1") == []
    assert writes_of_jobs("Job.objects.filter(pk=1).update(state=1)") == [1]
    assert writes_of_jobs("job.state = 1") == [1]


def test_only_workflows_have_a_state_beside_jobs() -> None:
    models = [m for m in apps.get_app_config("django_ojs").get_models() if not m._meta.proxy]
    owners = [m.__name__ for m in models if any(f.name == "state" for f in m._meta.get_fields())]
    assert sorted(owners) == ["Job", "Workflow", "WorkflowStep"]


_CURSOR = re.compile(r"\bcursor\(")
# The clock asks the time; all other SQL is the store's.
_CURSOR_USERS = {"clock.py", "store"}


def cursor_users(root: Path) -> set[str]:
    """The modules below ``root`` that open a cursor and may not."""
    users = {path.relative_to(root) for path in root.rglob("*.py") if _CURSOR.search(path.read_text())}
    return {str(user) for user in users if not _CURSOR_USERS & {str(user), user.parts[0]}}


def test_raw_cursors_are_opened_in_the_store_only() -> None:
    assert cursor_users(PACKAGE) == set()


def test_a_raw_cursor_elsewhere_is_found(tmp_path: Path) -> None:
    for name in ("store/fine.py", "services/bad.py", "bad.py", "clock.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("with connection.cursor() as cur: ...\n")
    assert cursor_users(tmp_path) == {"services/bad.py", "bad.py"}
