"""Nobody but the store writes the state of a job.

Import contracts cannot see ``Job.objects.update(state=...)`` or a raw statement; this reads the
syntax trees. No other model may have a column called ``state``.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from django.apps import apps

PACKAGE = Path(__file__).resolve().parents[2] / "django_ojs"
WRITER = PACKAGE / "store" / "transitions.py"
_CALLS = {"update", "create", "get_or_create", "update_or_create", "Job"}
_SQL = re.compile(r"\bset\b[^;]*\bstate\"?\s*=", re.IGNORECASE)


def writes(source: str) -> list[int]:
    """The lines of ``source`` that write an attribute, keyword or column named ``state``."""
    lines = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(t, ast.Attribute) and t.attr == "state" for t in targets):
                lines.append(node.lineno)
        elif isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in _CALLS and any(k.arg == "state" for k in node.keywords):
                lines.append(node.lineno)
            if name == "bulk_update" and any(
                isinstance(item, ast.Constant) and item.value == "state" for item in ast.walk(node)
            ):
                lines.append(node.lineno)
            if name == "setattr" and any(
                isinstance(a, ast.Constant) and a.value == "state" for a in node.args
            ):
                lines.append(node.lineno)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _SQL.search(node.value):
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
        "cursor.execute('UPDATE django_ojs_job SET state = 1')",
        "cursor.execute('update j set a = 1, \"state\" = 2')",
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
        if path != WRITER and "migrations" not in path.parts and (lines := writes(path.read_text()))
    }
    assert found == {}


def test_no_other_model_has_a_state() -> None:
    models = apps.get_app_config("django_ojs").get_models()
    owners = [m.__name__ for m in models if any(f.name == "state" for f in m._meta.get_fields())]
    assert owners == ["Job"]


def test_raw_cursors_are_opened_in_the_store_only() -> None:
    """The clock asks the time, the watcher a change counter; all other SQL is the store's."""
    allowed = {"clock.py", "worker/wakeup.py", "store"}
    users = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if re.search(r"\.cursor\(|\bcursor\(using", path.read_text())
    }
    strays = {u for u in users if u not in allowed and u.split("/")[0] not in allowed}
    assert strays == set()
