"""Unique policies: how they are read, and which jobs they make the same."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_ojs.domain.canonical import canonical
from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.states import LIVE, State
from django_ojs.domain.unique import (
    OnConflict,
    UniquePolicy,
    declared,
    held_longest,
    parse_unique,
    unique_key,
)
from tests.domain.records import record

NOW = datetime(2026, 11, 24, tzinfo=UTC)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": [True, None]}, '{"a":[true,null],"b":1}'),
        (1.0, "1"),
        (-0.0, "0"),
        (1e21, "1e+21"),
        (123456789012345680000.0, "123456789012345680000"),
        (1e-6, "0.000001"),
        (1.5e-7, "1.5e-7"),
        (4.5, "4.5"),
        (333333333.33333329, "333333333.3333333"),
        (2**70, str(2**70)),
        ("é", '"é"'),
        ("e\u0301", '"é"'),
        ('\u0001\n"\\/', '"\\u0001\\n\\"\\\\/"'),
        ({"\U0001f600": 1, "\uff21": 2}, '{"\U0001f600":1,"\uff21":2}'),
        ({"e\u0301": 1}, '{"é":1}'),
    ],
)
def test_the_canonical_form(value: Any, text: str) -> None:
    assert canonical(value) == text


@pytest.mark.slow
@given(JSON)
def test_the_canonical_form_is_json_of_the_same_value(value: Any) -> None:
    text = canonical(value)
    assert canonical(json.loads(text)) == text


def key(policy: dict[str, Any], parameters: tuple[str, ...] = (), **fields: Any) -> str:
    return unique_key(parse_unique(policy), record(**fields), parameters)


def test_the_key_is_the_hash_of_what_is_compared() -> None:
    fields: dict[str, Any] = {
        "type": "email.send",
        "queue": "mail",
        "args": '[{"user_id": 42, "locale": "en"}]',
    }
    found = key({"keys": ["queue", "args"], "args_keys": ["user_id"]}, **fields)
    text = '{"args":{"user_id":42},"queue":"mail","type":"email.send"}'
    assert found == hashlib.sha256(text.encode()).hexdigest()


def test_the_type_is_always_compared() -> None:
    policy = {"keys": ["args"]}
    assert key(policy, type="t.a") != key(policy, type="t.b")


def test_names_of_arguments_are_looked_up_everywhere() -> None:
    policy = {"args_keys": ["user"]}
    wanted = key(policy, args='[{"user": 1}]')
    assert key(policy, ("user", "x"), args="[1, 2]") == wanted
    assert key(policy, args='[2, {"user": 1}]', meta='{"ojs.kwargs": true}') == wanted
    assert key(policy, ("x",), args='[{"user": 5}, {"user": 1}]', meta='{"ojs.kwargs": true}') == wanted
    with pytest.raises(InvalidRequest, match=r"unique.args_keys: names 'user'"):
        key(policy, args="[1, 2]")


def test_a_text_stands_for_everything_but_the_type() -> None:
    policy = {"key": "order-7"}
    assert key(policy, args="[1]", queue="a") == key(policy, args="[2]", queue="b")
    assert key(policy, type="t.a") != key(policy, type="t.b")


@pytest.mark.parametrize(
    ("sent", "policy"),
    [
        ({}, UniquePolicy()),
        ({"key": ["type", "queue", "args"]}, UniquePolicy(("type", "queue", "args"))),
        ({"key": ["user_id"]}, UniquePolicy(("type", "args"), ("user_id",))),
        ({"keys": ["type", "args"], "key": ["type", "args"]}, UniquePolicy(("type", "args"))),
        ({"keys": ["args"], "args_keys": []}, UniquePolicy(("args",))),
        ({"period": "PT1H"}, UniquePolicy(period_ms=3_600_000)),
        ({"period_ms": 500}, UniquePolicy(period_ms=500)),
        ({"states": ["completed"]}, UniquePolicy(states=frozenset({State.COMPLETED}))),
        ({"on_conflict": "use_existing"}, UniquePolicy(on_conflict=OnConflict.IGNORE)),
        ({"x_unknown": 1}, UniquePolicy()),
    ],
)
def test_policies_of_all_clients(sent: dict[str, Any], policy: UniquePolicy) -> None:
    assert parse_unique(sent) == policy
    assert parse_unique(policy.to_wire()) == policy


def test_options_of_python() -> None:
    both = ("type", "args")
    throttle = declared(None, "10m", None)
    assert throttle == UniquePolicy(
        both,
        period_ms=600_000,
        states=frozenset(State) - {State.CANCELLED},
        on_conflict=OnConflict.IGNORE,
    )
    debounce = declared(None, None, {"wait": 30, "max_wait": timedelta(minutes=5)})
    assert isinstance(debounce, UniquePolicy)
    assert (debounce.debounce_ms, debounce.max_wait_ms) == (30_000, 300_000)
    assert debounce.on_conflict is OnConflict.REPLACE
    assert State.ACTIVE not in debounce.states
    assert declared(True, None, None) == UniquePolicy(both)
    assert declared({"period": timedelta(hours=1)}, None, None) == UniquePolicy(period_ms=3_600_000)
    assert declared(False, None, None) is False
    assert declared(None, None, None) is None
    for policy in (throttle, debounce):
        assert isinstance(policy, UniquePolicy)
        assert parse_unique(policy.to_wire()) == policy


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((False, "1m", None), "throttle: excludes unique=False"),
        ((None, "1m", "1m"), "debounce: excludes throttle"),
        (({"period": "1m"}, "1m", None), "unique.period: is decided by throttle"),
        (({"states": ["active"]}, None, "1m"), "unique.states: is decided by debounce"),
        (({"key": "\udcff"}, None, None), "unique.key: must not contain NUL or a lone surrogate"),
        (({"kees": ["type"]}, None, None), "unique.kees: is not known: did you mean 'keys'"),
        (("type", None, None), "unique: must be a dict, True or False"),
        ((None, 0, None), "throttle: must be more than 0"),
        ((None, None, {"wait": "1m", "max_wait": "1s"}), "debounce.max_wait: must not be below wait"),
        ((None, None, {"max_wait": "1s"}), "debounce.wait: is required"),
        ((None, None, {"wait": "1m", "most": 1}), "debounce.most: is not known"),
    ],
)
def test_contradictions_are_named(options: tuple[Any, Any, Any], said: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        declared(*options)
    assert str(caught.value).startswith(said)


def test_what_counts() -> None:
    there = record(created_at=NOW)
    policy = UniquePolicy(period_ms=1000)
    assert policy.matches(there, NOW + timedelta(milliseconds=999))
    assert not policy.matches(there, NOW + timedelta(seconds=1))
    assert not replace(policy, states=LIVE - {State.AVAILABLE}).matches(there, NOW)


@pytest.mark.slow
@given(st.lists(st.tuples(st.sampled_from(State), st.integers(0, 5)), max_size=12))
def test_what_is_remembered_answers_for_all(lives: list[tuple[State, int]]) -> None:
    """Whatever a later policy asks, the jobs that are kept give the answer that all of them would."""
    jobs = [
        record(state=state.value, created_at=NOW + timedelta(seconds=age), lease_seq=number)
        for number, (state, age) in enumerate(lives)
    ]
    kept = held_longest(jobs)
    for state in State:
        for period in (None, *range(1000, 7000, 1000)):
            policy = UniquePolicy(states=frozenset({state}), period_ms=period)
            now = NOW + timedelta(seconds=5)
            every = [one for one in jobs if policy.matches(one, now)]
            found = [one for one in kept if policy.matches(one, now)]
            assert bool(every) == bool(found)
            if state in LIVE:
                assert every == found
