"""``ojs run``: a handler called here and now."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from django_ojs.api import JobContext, current, job
from django_ojs.handlers import registry
from django_ojs.models import Job
from tests.support import not_none

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("ojs_db")]


@pytest.fixture(autouse=True)
def _own_types(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_handlers", dict(registry._handlers))


def run(*words: str) -> tuple[str, str, int]:
    """What it writes, what it says beside, and its exit code."""
    out, err = StringIO(), StringIO()
    try:
        call_command("ojs", "run", *words, stdout=out, stderr=err)
    except SystemExit as ended:
        return out.getvalue(), err.getvalue(), int(str(ended.code))
    return out.getvalue(), err.getvalue(), 0


def test_it_prints_what_the_handler_returns_and_stores_no_job() -> None:
    @job("shell.add")
    def add(ctx: JobContext, one: int, *, by: int = 1) -> dict[str, Any]:
        assert (ctx.type, ctx.attempt, ctx.last_checkpoint) == ("shell.add", 1, None)
        ctx.progress(0.5, "half")
        ctx.checkpoint({"at": one})
        assert not_none(current()).id == ctx.id
        assert ctx.extend_timeout("1m") > ctx.deadline.replace(year=2000)
        return {"sum": one + by}

    out, err, code = run("shell.add", "[1]", "--kwargs", '{"by": 2}')
    assert (json.loads(out), code) == ({"sum": 3}, 0)
    assert err.splitlines() == ["50% half", 'checkpoint {"at":1}', "more time: 0:01:00"]
    assert not Job.objects.exists()
    out, _, _ = run("shell.add", "[1]", "--format", "json")
    assert json.loads(out) == {"result": {"sum": 2}}


def test_a_coroutine_and_one_without_a_result() -> None:
    @job("shell.await")
    async def awaits() -> None:
        return None

    assert run("shell.await") == ("", "", 0)


def test_an_error_is_shown_from_the_handler_on() -> None:
    @job("shell.breaks")
    def breaks() -> None:
        raise LookupError("no such order")

    out, err, code = run("shell.breaks")
    assert (out, code) == ("", 1)
    assert err.splitlines()[-1] == "LookupError: no such order"
    assert "django_ojs/handlers" not in err
    out, _, code = run("shell.breaks", "--format", "json")
    assert json.loads(out) == {"error": {"type": "LookupError", "message": "no such order"}}
    assert code == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("shell.unknown",), "no handler is registered for 'shell.unknown'"),
        (("shell.one", "1"), "ARGS: must be a JSON list"),
        (("shell.one", "[1", "--kwargs", "{}"), "ARGS: must be JSON"),
        (("shell.one", "[1, 2]"), "too many positional arguments"),
        (("shell.one", "[]", "--kwargs", "[]"), "--kwargs: must be a JSON object"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(words: tuple[str, ...], said: str) -> None:
    @job("shell.one")
    def one(value: int) -> int:
        return value

    with pytest.raises(CommandError, match=said):
        run(*words)
