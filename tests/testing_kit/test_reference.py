"""The reference names what ``django_ojs.testing`` has."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from django_ojs import testing
from tests.settings import HAS_TASKS

PAGE = (Path(__file__).resolve().parents[2] / "docs/reference/testing.md").read_text()
BACKENDS = {"DummyBackend", "ImmediateBackend"}


def test_every_name_is_there() -> None:
    assert [name for name in testing.__all__ if f"`{name}" not in PAGE] == []
    for name in set(testing.__all__) - (BACKENDS if not HAS_TASKS else set()):
        assert getattr(testing, name).__doc__, name
    with pytest.raises(AttributeError, match="'darin'"):
        testing.darin  # noqa: B018


def test_every_parameter_is_there() -> None:
    for name in ("drain", "assert_enqueued", "refute_enqueued", "enqueued", "fail_next", "perform"):
        said = re.search(rf"`{name}\(([^`]*)\)`", PAGE)
        assert said is not None, name
        parameters = inspect.signature(getattr(testing, name)).parameters
        found = re.findall(r"(?:^|, )\*{0,2}(\w+)", said[1])
        assert found == [known for known in parameters if known != "using"], name


def test_every_fixture_is_there() -> None:
    from django_ojs.testing import plugin

    fixtures = {name for name in vars(plugin) if name.startswith("ojs")}
    assert fixtures == {"ojs", "ojs_clock", "ojs_worker"}
    assert all(f"| `{name}` |" in PAGE for name in fixtures)
