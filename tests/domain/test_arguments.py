"""Arguments by keyword in a list."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from django_ojs.domain.arguments import split
from django_ojs.domain.enqueue_request import EnqueueRequest
from django_ojs.domain.envelope import from_call, from_wire
from django_ojs.domain.errors import InvalidRequest

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MARK: dict[str, Any] = {"ojs.kwargs": True}


@pytest.mark.parametrize(
    ("args", "meta", "found"),
    [
        ([1, {"a": 2}], MARK, ([1], {"a": 2})),
        ([1, {}], MARK, ([1], {})),
        ([1, {"a": 2}], {}, ([1, {"a": 2}], {})),
        ([1, {"a": 2}], {"ojs.kwargs": 1}, ([1, {"a": 2}], {})),
        ([], MARK, ([], {})),
        ([1], MARK, ([1], {})),
    ],
)
def test_split(args: list[Any], meta: dict[str, Any], found: tuple[list[Any], dict[str, Any]]) -> None:
    assert split(args, meta) == found


@pytest.mark.parametrize(
    ("args", "meta", "said"),
    [
        ([], MARK, "args: must end with an object"),
        ([{}, 1], MARK, "args: must end with an object"),
        ([{}], {"ojs.kwargs": "yes"}, "meta.ojs.kwargs: must be true, or left out"),
        ([{}], {"ojs.kwargs": False}, "meta.ojs.kwargs: must be true, or left out"),
    ],
)
def test_a_mark_without_an_object_is_refused(args: list[Any], meta: dict[str, Any], said: str) -> None:
    """Over HTTP and from Python: a worker could only guess what is meant."""
    with pytest.raises(InvalidRequest, match=f"^{said}"):
        from_wire({"type": "t", "args": args, "meta": meta}, now=NOW)
    with pytest.raises(InvalidRequest, match=f"^{said}"):
        from_call("t", args, meta=meta, now=NOW)


def test_both_ways_to_ask_are_the_same_job() -> None:
    python = from_call("t", [1], kwargs={"a": 2}, meta={"by": "me"}, now=NOW)
    meta = MARK | {"by": "me"}
    wire = from_wire({"type": "t", "args": [1, {"a": 2}], "meta": meta}, now=NOW)
    assert python.args_json == wire.args_json
    assert json.loads(python.meta_json) == json.loads(wire.meta_json)
    assert from_call("t", [1], kwargs={}, now=NOW).meta_json == "{}"


def _request(kwargs: dict[str, Any] | None = None) -> EnqueueRequest:
    envelope = from_call("t", [1], kwargs=kwargs, meta={"by": "me"}, now=NOW)
    return EnqueueRequest(UUID(int=1), envelope, NOW)


@pytest.mark.parametrize(
    ("changes", "args", "kwargs", "meta"),
    [
        ({"args": [3]}, [3], {"a": 2}, {"by": "me", **MARK}),
        ({"kwargs": {"b": 4}}, [1], {"b": 4}, {"by": "me", **MARK}),
        ({"kwargs": None}, [1], {}, {"by": "me", **MARK}),
        ({"meta": {"x": 1}}, [1], {"a": 2}, {"x": 1, **MARK}),
        ({"meta": None}, [1], {"a": 2}, MARK),
        ({"queue": "other"}, [1], {"a": 2}, {"by": "me", **MARK}),
    ],
)
def test_middleware_changes_them_apart(
    changes: dict[str, Any], args: list[Any], kwargs: dict[str, Any], meta: dict[str, Any]
) -> None:
    """A middleware that stamps its own meta must not make an argument of the keywords."""
    changed = _request({"a": 2}).replace(**changes)
    assert (changed.args, changed.kwargs, changed.meta) == (args, kwargs, meta)
    assert json.loads(changed.envelope.args_json) == [*args, kwargs]


def test_middleware_adds_keywords() -> None:
    changed = _request().replace(kwargs={"a": 2})
    assert (changed.args, changed.kwargs, changed.meta) == ([1], {"a": 2}, {"by": "me", **MARK})
    plain = _request().replace(args=[2], meta={"x": 1})
    assert (plain.envelope.args_json, plain.envelope.meta_json) == ("[2]", '{"x":1}')
