"""Threats that the other pages of tests do not try: logs, pickles, command lines, herds."""

from __future__ import annotations

import ast
import logging
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest

from django_ojs import clock
from django_ojs.models import Job
from django_ojs.services import promote
from tests.http.support import Api
from tests.services.support import fail, make, take

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.fault("S12")
@pytest.mark.parametrize("text", ["a%0a127.0.0.1%20admin", "a%0d%0ab", "a%1b[2Jb", "a%e2%80%a8b"])
def test_a_path_cannot_begin_a_line_of_the_log(
    api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    def broken(*_args: object, **_given: object) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr("django_ojs.http.views.jobs.JobViewSet.retrieve", broken)
    with caplog.at_level(logging.INFO):
        assert api.get(f"/jobs/{text}").status == 500
    said = [record.getMessage() for record in caplog.records]
    assert any(line.startswith("GET /ojs/v1/jobs/a") for line in said)
    for line in said:
        assert line.isprintable(), line


_FORBIDDEN = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "yaml"}
_EVALUATING = {"eval", "exec", "compile", "__import__"}


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


@pytest.mark.fault("F128")
def test_a_herd_of_retries_is_spread(ojs_db: None, frozen: clock.FrozenClock) -> None:
    """Three hundred fail at one moment; they come back over the whole width of the jitter."""
    count = 300
    make(count, retry={"initial_interval": "PT100S", "jitter": True})
    fail(*take(count))
    due = sorted(Job.objects.values_list("scheduled_at", flat=True))
    waits = [(moment - frozen.time).total_seconds() for moment in due]
    assert 50 <= waits[0] <= waits[-1] < 150
    by_tenth = Counter(int((wait - 50) // 10) for wait in waits)
    assert len(by_tenth) == 10
    assert max(by_tenth.values()) < count / 4
    frozen.time = due[-1] + timedelta(milliseconds=1)
    assert promote.promote(limit=120) == 120
    assert promote.promote() == count - 120
    assert set(Job.objects.values_list("state", flat=True)) == {"available"}
