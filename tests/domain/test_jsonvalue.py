"""What counts as a JSON value that every database stores (L9)."""

from __future__ import annotations

import json
from collections import OrderedDict
from datetime import datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_ojs.domain.errors import InvalidRequest, TooLarge
from django_ojs.domain.jsonvalue import MAX_DEPTH, MAX_DIGITS, encode, sanitise_text

ROOM = 1 << 20


def nested(depth: int, kind: str = "list") -> Any:
    value: Any = 1
    for level in range(depth):
        as_list = kind == "list" or (kind == "both" and level % 2)
        value = [value] if as_list else {"k": value}
    return value


class Level(IntEnum):
    HIGH = 3


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (0, "0"),
        (-7, "-7"),
        (1.5, "1.5"),
        (-0.0, "-0.0"),
        (1e15, "1000000000000000.0"),
        ([1e16, -1.5e22], "[10000000000000000.0,-15000000000000000000000.0]"),
        (1e308, "1" + "0" * 308 + ".0"),
        (
            ["1e+16", '\\"1e+16', {"1e+16": 2e16}],
            '["1e+16","\\\\\\"1e+16",{"1e+16":20000000000000000.0}]',
        ),
        (5e-324, "5e-324"),
        ("", '""'),
        ("a\u00e9\u4e16\U0001f600", '"a\u00e9\u4e16\U0001f600"'),
        ("\x01\x1f\x7f\u2028", '"\\u0001\\u001f\x7f\u2028"'),
        ("\\u0000", '"\\\\u0000"'),
        ("\\ud800", '"\\\\ud800"'),
        ([], "[]"),
        ({}, "{}"),
        ((1, (2,)), "[1,[2]]"),
        ({"": 1}, '{"":1}'),
        ({"1": 1, "true": 2, "null": 3, "1.5e+3": 4}, '{"1":1,"true":2,"null":3,"1.5e+3":4}'),
        (OrderedDict(b=1, a=2), '{"b":1,"a":2}'),
        (Level.HIGH, "3"),
        (["{" * 40, "[" * 40], '["' + "{" * 40 + '","' + "[" * 40 + '"]'),
        ([[]] * 100, "[" + ",".join(["[]"] * 100) + "]"),
    ],
    ids=ascii,
)
def test_accepted(value: object, text: str) -> None:
    assert encode(value, "args", max_bytes=ROOM) == text


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        float("-inf"),
        [float("nan")],
        {"a": [1, {"b": float("inf")}]},
        "\x00",
        "a\x00b",
        ["\x00"],
        {"k": "\x00"},
        {"\x00": 1},
        "\ud800",
        "x\udfff",
        "\ud83d\ude00",
        [{"k": "a\udc80"}],
        {"\ud800": 1},
        {1: "a"},
        {True: "b"},
        {None: "a"},
        {1.5: "a"},
        {1e300: "a"},
        {-1: 1},
        {float("nan"): 1},
        {("a",): 1},
        {b"a": 1},
        {"a": {2: 3}},
        {Level.HIGH: 1},
        b"bytes",
        bytearray(b"x"),
        {1, 2},
        frozenset(),
        range(3),
        1j,
        Decimal("1.5"),
        datetime(2026, 1, 1),
        object(),
        int,
        [object()],
        ...,
        iter([1]),
    ],
    ids=ascii,
)
def test_refused(value: object) -> None:
    with pytest.raises(InvalidRequest) as caught:
        encode(value, "args", max_bytes=ROOM)
    assert caught.value.field.startswith("args")
    assert caught.value.rule


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["list", "dict", "both"])
def test_depth(kind: str) -> None:
    assert json.loads(encode(nested(MAX_DEPTH, kind), "args", max_bytes=ROOM)) == nested(30, kind)
    for depth in (31, 32, 500, 20_000):
        with pytest.raises(InvalidRequest, match="nested deeper than 30") as caught:
            encode(nested(depth, kind), "args", max_bytes=ROOM)
        assert len(caught.value.field) < 200


def test_cycles() -> None:
    loop: list[Any] = []
    loop.append(loop)
    ring: dict[str, Any] = {}
    ring["self"] = {"again": ring}
    for value in (loop, ring):
        with pytest.raises(InvalidRequest, match="nested deeper"):
            encode(value, "args", max_bytes=ROOM)


def test_digits() -> None:
    most = 10**MAX_DIGITS - 1
    for value in (most, -most):
        assert json.loads(encode([value], "args", max_bytes=ROOM)) == [value]
    for value in (most + 1, -most - 1, 10**9000):
        with pytest.raises(InvalidRequest, match="4300 digits") as caught:
            encode([value], "args", max_bytes=ROOM)
        assert caught.value.field == "args[0]"


def test_size_in_bytes_of_utf_8() -> None:
    assert encode("\u00e9\u00e9", "meta", max_bytes=6) == '"\u00e9\u00e9"'
    with pytest.raises(TooLarge) as caught:
        encode("\u00e9\u00e9", "meta", max_bytes=5)
    assert caught.value.field == "meta"
    assert caught.value.details["limit"] == 5
    assert caught.value.code == "payload_too_large"


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ([1, ["a", "\x00"]], "args[1][1]"),
        ([{"a": {"b": float("nan")}}], "args[0].a.b"),
        ([{"a": {1: 2}}], "args[0].a"),
        ([{"\x00": 2}], "args[0].<key>"),
        ([0, set()], "args[1]"),
    ],
    ids=ascii,
)
def test_the_path_is_named(value: object, path: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        encode(value, "args", max_bytes=ROOM)
    assert caught.value.field == path


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=()), max_size=20)
    | st.binary(max_size=4)
    | st.sampled_from(["\x00", "\ud800", "1", object(), Decimal(1)])
    | st.sampled_from([4299, 4300]).map(lambda digits: 10**digits),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner)
        | st.dictionaries(
            st.text(st.characters(exclude_categories=()), max_size=5)
            | st.integers()
            | st.booleans()
            | st.none()
            | st.floats(),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)


def storable(value: object, depth: int = 0) -> bool:
    """The rule, said a second time in the plainest way."""
    if value is None or isinstance(value, bool):
        return True
    if isinstance(value, str):
        return not any(char == "\x00" or "\ud800" <= char <= "\udfff" for char in value)
    if isinstance(value, int):
        return abs(value) < 10**4300
    if isinstance(value, float):
        return value == value and abs(value) != float("inf")
    if isinstance(value, (list, tuple)):
        return depth < 30 and all(storable(item, depth + 1) for item in value)
    if isinstance(value, dict):
        return depth < 30 and all(
            isinstance(key, str) and storable(key) and storable(item, depth + 1)
            for key, item in value.items()
        )
    return False


def as_json(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [as_json(item) for item in value]
    if isinstance(value, dict):
        return {key: as_json(item) for key, item in value.items()}
    return value


@pytest.mark.slow
@given(anything)
def test_accepts_exactly_what_survives(value: Any) -> None:
    try:
        text = encode(value, "args", max_bytes=ROOM)
    except InvalidRequest as refusal:
        field: str | None = refusal.field
        assert not storable(value)
    else:
        field = None
        assert storable(value)
        assert json.loads(text) == as_json(value)
        assert text == encode(json.loads(text), "args", max_bytes=ROOM)
    assert field is None or field.startswith("args")


class TestSanitise:
    @pytest.mark.parametrize(
        ("text", "most", "clean"),
        [
            ("plain", 10, "plain"),
            ("a\x00b", 10, "a\ufffdb"),
            ("a\ud800b\udfff", 20, "a\ufffdb\ufffd"),
            ("12345", 5, "12345"),
            ("123456", 5, "12\u2026"),
            ("\u00e9" * 4, 7, "\u00e9\u00e9\u2026"),
            ("\u00e9" * 4, 8, "\u00e9" * 4),
            ("\U0001f600\U0001f600", 7, "\U0001f600\u2026"),
            ("", 5, ""),
        ],
        ids=ascii,
    )
    def test_table(self, text: str, most: int, clean: str) -> None:
        assert sanitise_text(text, most) == clean

    @given(st.text(st.characters(exclude_categories=()), max_size=60), st.integers(3, 50))
    def test_always_storable_and_never_longer(self, text: str, most: int) -> None:
        clean = sanitise_text(text, most)
        assert storable(clean)
        assert len(clean.encode()) <= most
        if storable(text) and len(text.encode()) <= most:
            assert clean == text


def test_exponents_count_as_the_digits_that_they_stand_for() -> None:
    """PostgreSQL writes 1e308 as 309 digits: small texts must not become large answers."""
    assert encode([1e308], "args", max_bytes=400)
    with pytest.raises(TooLarge):
        encode([1e308] * 1000, "args", max_bytes=10_000)
    with pytest.raises(TooLarge):
        encode({"a": [{"b": 1e-300}] * 100}, "args", max_bytes=10_000)
    assert encode(["1e+308 as text"] * 100, "args", max_bytes=10_000)


class Colour(Enum):
    RED = 1


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (UUID(int=1), "not UUID: write str(value)"),
        (datetime(2026, 11, 22), "not datetime: write value.isoformat()"),
        (timedelta(1), "not timedelta: write value.total_seconds()"),
        (Decimal(1), "not Decimal: write str(value)"),
        ({1}, "not set: write list(value)"),
        (Path("/"), "not PosixPath: write str(value)"),
        (Colour.RED, "not Colour: write value.value"),
        (object(), "not object"),
    ],
)
def test_the_error_says_what_to_write_instead(value: Any, told: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        encode([{"a": value}], "args", max_bytes=1000)
    assert str(refused.value) == f"args[0].a: must be a JSON value, {told}"
