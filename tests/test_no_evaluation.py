"""The package never unpickles and never evaluates text."""

from __future__ import annotations

import ast

import pytest

from tests.support import ROOT

_FORBIDDEN = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "yaml"}


_EVALUATING = {"eval", "exec", "compile", "__import__"}


@pytest.mark.slow
@pytest.mark.fault("S21")
def test_nothing_is_unpickled_or_evaluated() -> None:
    found = []
    for path in sorted((ROOT / "django_ojs").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {alias.name.partition(".")[0] for alias in node.names}
                names.add((getattr(node, "module", None) or "").partition(".")[0])
                found += [f"{path.name}: {name}" for name in names & _FORBIDDEN]
            called = node.func if isinstance(node, ast.Call) else None
            if isinstance(called, ast.Name) and called.id in _EVALUATING:
                found.append(f"{path.name}: {called.id}")
    assert found == []
