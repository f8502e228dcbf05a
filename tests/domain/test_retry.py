"""Retry policies: spellings, merging, the four strategies, matching (R1-R3, R6, OJS retry)."""

from __future__ import annotations

import json
import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_ojs.domain.errors import InvalidRetryPolicy, UnknownRetryKey
from django_ojs.domain.retry import (
    DEFAULT,
    MAX_ATTEMPTS,
    UNLIMITED,
    RetryPolicy,
    Strategy,
    delay_ms,
    from_stored,
    matches,
    parse_policy,
    with_names,
)
from tests.domain.records import each

SECOND = 1000
TEN_YEARS_MS = 3653 * 86_400_000


def plain(**fields: Any) -> RetryPolicy:
    return parse_policy({"jitter": False, **fields})


def delays(policy: RetryPolicy, count: int) -> list[float]:
    return [delay_ms(policy, n, 0.25) / SECOND for n in range(1, count + 1)]


def test_defaults_are_those_of_the_specification() -> None:
    assert parse_policy({}) == DEFAULT
    assert DEFAULT.to_wire() == {
        "max_attempts": 3,
        "initial_interval": "PT1S",
        "backoff_coefficient": 2.0,
        "max_interval": "PT5M",
        "jitter": True,
        "non_retryable_errors": [],
        "on_exhaustion": "discard",
        "backoff_strategy": "exponential",
    }


class TestDelays:
    def test_the_table_of_the_specification(self) -> None:
        table = [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]
        assert delays(plain(max_attempts=11), 10) == table

    def test_constant(self) -> None:
        policy = plain(backoff_strategy="constant", initial_interval="PT10S")
        assert delays(policy, 4) == [10, 10, 10, 10]

    def test_coefficient_one_is_constant(self) -> None:
        policy = plain(initial_interval="PT10S", max_interval="PT10S", backoff_coefficient=1.0)
        assert delays(policy, 4) == [10, 10, 10, 10]

    def test_linear_ignores_the_coefficient(self) -> None:
        for coefficient in (1.0, 7.5):
            policy = plain(
                backoff_strategy="linear",
                backoff_coefficient=coefficient,
                initial_interval="PT2S",
                max_interval="PT7S",
            )
            assert delays(policy, 5) == [2, 4, 6, 7, 7]

    def test_polynomial_as_in_sidekiq(self) -> None:
        policy = plain(backoff_strategy="polynomial", backoff_coefficient=4.0, max_interval="P30D")
        assert delays(policy, 25) == [n**4 for n in range(1, 26)]

    def test_polynomial_is_capped(self) -> None:
        policy = plain(backoff_strategy="polynomial", backoff_coefficient=2.0, max_interval="PT10S")
        assert delays(policy, 5) == [1, 4, 9, 10, 10]

    def test_the_payment_example(self) -> None:
        policy = plain(initial_interval="PT15S", backoff_coefficient=4.0, max_interval="PT1H")
        assert delays(policy, 6) == [15, 60, 240, 960, 3600, 3600]

    def test_powers_are_exact_to_the_millisecond(self) -> None:
        policy = plain(max_interval="P3650D")
        assert [delay_ms(policy, n, 0) for n in range(1, 29)] == [
            1000 * 2 ** (n - 1) for n in range(1, 29)
        ]
        policy = plain(max_interval="P3650D", initial_interval_ms=1, backoff_coefficient=3)
        assert [delay_ms(policy, n, 0) for n in range(1, 24)] == [3 ** (n - 1) for n in range(1, 24)]

    def test_millisecond_precision(self) -> None:
        policy = plain(initial_interval="500ms", backoff_coefficient=1.5)
        assert [delay_ms(policy, n, 0) for n in (1, 2, 3, 4)] == [500, 750, 1125, 1687]

    @pytest.mark.parametrize("attempt", [0, -5])
    def test_before_the_first_attempt_is_as_after_it(self, attempt: int) -> None:
        assert delay_ms(plain(), attempt, 0) == 1000

    def test_jitter_is_half_to_one_and_a_half(self) -> None:
        policy = parse_policy({"initial_interval": "PT10S"})
        assert delay_ms(policy, 1, 0.0) == 5000
        assert delay_ms(policy, 1, 0.5) == 10_000
        assert delay_ms(policy, 1, math.nextafter(1, 0)) in (14_999, 15_000)

    def test_the_cap_holds_again_after_jitter(self) -> None:
        policy = parse_policy({"initial_interval": "PT10S", "max_interval": "PT12S"})
        assert delay_ms(policy, 1, 0.9) == 12_000
        assert delay_ms(policy, 9, 0.0) == 6000

    @pytest.mark.slow
    @given(
        strategy=st.sampled_from(["constant", "linear", "exponential", "polynomial"]),
        coefficient=st.floats(1.0, 1e6),
        initial=st.integers(1, TEN_YEARS_MS),
        longest=st.integers(1, TEN_YEARS_MS),
        attempt=st.integers(1, MAX_ATTEMPTS) | st.sampled_from([2**31, 10**18, 10**300]),
        jitter=st.floats(0, 1, exclude_max=True),
    )
    def test_never_overflows_and_keeps_its_bounds(
        self,
        strategy: Strategy,
        coefficient: float,
        initial: int,
        longest: int,
        attempt: int,
        jitter: float,
    ) -> None:
        policy = RetryPolicy(
            initial_interval_ms=initial,
            backoff_coefficient=coefficient,
            max_interval_ms=max(initial, longest),
            backoff_strategy=strategy,
            jitter=False,
        )
        steady = delay_ms(policy, attempt, jitter)
        assert initial <= steady <= policy.max_interval_ms
        assert delay_ms(policy, attempt + 1, jitter) >= steady
        shaken = RetryPolicy(
            initial_interval_ms=initial,
            backoff_coefficient=coefficient,
            max_interval_ms=policy.max_interval_ms,
            backoff_strategy=strategy,
        )
        drawn = delay_ms(shaken, attempt, jitter)
        assert steady // 2 <= drawn <= min(steady * 3 // 2 + 1, policy.max_interval_ms)


ALIASES: dict[str, tuple[list[str], Any, Any]] = {
    "max_attempts": (["max_attempts", "maxAttempts"], 7, 7),
    "initial_interval_ms": (["initial_interval", "initialInterval"], "PT2S", 2000),
    "backoff_coefficient": (
        ["backoff_coefficient", "backoffCoefficient", "multiplier"],
        3,
        3.0,
    ),
    "max_interval_ms": (["max_interval", "maxInterval"], "PT10M", 600_000),
    "jitter": (["jitter"], False, False),
    "non_retryable_errors": (["non_retryable_errors", "nonRetryableErrors"], ["a.*"], ("a.*",)),
    "on_exhaustion": (["on_exhaustion", "onExhaustion"], "dead_letter", "dead_letter"),
    "backoff_strategy": (
        ["backoff_strategy", "backoff_type", "strategy", "backoff", "backoffStrategy"],
        "linear",
        "linear",
    ),
}


class TestParsing:
    @pytest.mark.parametrize(
        ("column", "alias"),
        [(column, alias) for column, (names, *_) in ALIASES.items() for alias in names],
    )
    def test_every_alias(self, column: str, alias: str) -> None:
        _, value, parsed = ALIASES[column]
        policy = parse_policy({alias: value})
        assert getattr(policy, column) == parsed
        assert policy != DEFAULT

    @pytest.mark.parametrize(
        ("alias", "column"),
        [
            ("initial_interval_ms", "initial_interval_ms"),
            ("initial_delay_ms", "initial_interval_ms"),
            ("base_delay_ms", "initial_interval_ms"),
            ("max_interval_ms", "max_interval_ms"),
            ("max_delay_ms", "max_interval_ms"),
        ],
    )
    def test_milliseconds(self, alias: str, column: str) -> None:
        assert getattr(parse_policy({alias: 1500}), column) == 1500
        assert parse_policy({alias: 0}) == DEFAULT

    @pytest.mark.parametrize(
        ("spelling", "strategy"),
        [
            ("exponential", "exponential"),
            ("linear", "linear"),
            ("polynomial", "polynomial"),
            ("constant", "constant"),
            ("none", "constant"),
            ("fixed", "constant"),
        ],
    )
    def test_strategies(self, spelling: str, strategy: str) -> None:
        assert parse_policy({"backoff": spelling}).backoff_strategy == strategy

    @pytest.mark.parametrize("value", ["PT2S", "2s", "2000ms", 2, timedelta(seconds=2), 2.0, "2"])
    def test_intervals(self, value: object) -> None:
        assert parse_policy({"initial_interval": value}).initial_interval_ms == 2000

    def test_a_fraction_of_a_second(self) -> None:
        assert parse_policy({"initial_interval": 0.25}).initial_interval_ms == 250
        assert parse_policy({"initial_interval": "PT0.5S"}).initial_interval_ms == 500

    def test_null_counts_as_not_given(self) -> None:
        others = [name for name in DEFAULT.to_wire() if name != "max_attempts"]
        assert parse_policy(dict.fromkeys(others)) == DEFAULT

    @pytest.mark.parametrize(
        ("key", "near"),
        [
            ("max_attempt", "max_attempts"),
            ("maxAttempt", "maxAttempts"),
            ("initial_intervall", "initial_interval"),
            ("max_interval_s", "max_interval_ms"),
            ("non_retriable_errors", "non_retryable_errors"),
        ],
    )
    @pytest.mark.parametrize("value", [9, None])
    def test_an_unknown_key_is_refused_with_the_nearest_one(
        self, key: str, near: str, value: object
    ) -> None:
        with pytest.raises(UnknownRetryKey) as caught:
            parse_policy({"jitter": False, key: value}, field="OJS.retry")
        assert caught.value.field == f"OJS.retry.{key}"
        assert f"did you mean {near!r}?" in caught.value.rule
        assert isinstance(caught.value, (TypeError, InvalidRetryPolicy))

    def test_an_unknown_key_like_no_other_is_told_the_fields(self) -> None:
        with pytest.raises(InvalidRetryPolicy, match="the fields are max_attempts, initial_interval"):
            parse_policy({"x": 1})
        with pytest.raises(InvalidRetryPolicy):
            parse_policy({1: 1})

    def test_what_is_stored_is_read_leniently(self) -> None:
        stored = {**DEFAULT.to_wire(), "max_attempt": 9, "enabled": True}
        assert from_stored(json.dumps(stored)) == DEFAULT

    def test_partial_policies_merge_over_the_base(self) -> None:
        base = parse_policy({"max_attempts": 9, "initial_interval": "PT7S", "jitter": False})
        merged = parse_policy({"max_attempts": 10}, base=base)
        assert merged == RetryPolicy(max_attempts=10, initial_interval_ms=7000, jitter=False)
        assert parse_policy({}, base=base) == base

    @pytest.mark.parametrize(
        ("given", "initial", "longest", "words"),
        [
            ({"initial_interval": "PT6M"}, 300, 300, "PT6M is above max_interval"),
            ({"max_interval": "PT0.5S"}, 0.5, 0.5, "PT1S is above max_interval"),
            ({"initial_interval": "PT4M"}, 240, 300, None),
            ({"initial_interval": "PT5M"}, 300, 300, None),
        ],
    )
    def test_an_initial_interval_above_the_longest_is_capped(
        self, given: dict[str, Any], initial: float, longest: float, words: str | None
    ) -> None:
        policy = parse_policy({"jitter": False, **given})
        assert (policy.contradiction() is None) is (words is None)
        assert words is None or words in str(policy.contradiction())
        done = policy.capped()
        assert (done.initial_interval_ms, done.max_interval_ms) == (initial * 1000, longest * 1000)
        assert done.contradiction() is None
        assert delays(policy, 3) == delays(done, 3)

    @pytest.mark.parametrize(
        "given",
        [
            {"initial_interval": 9, "max_interval": 4},
            {"initial_interval_ms": 1001, "maxInterval": "PT1S"},
            {"initial_delay_ms": 2, "max_delay_ms": 1},
        ],
    )
    def test_a_policy_that_contradicts_itself_is_refused(self, given: dict[str, Any]) -> None:
        """OJS retry 11.1: ``max_interval`` must be at least ``initial_interval``."""
        with pytest.raises(InvalidRetryPolicy) as caught:
            parse_policy(given)
        assert (caught.value.field, caught.value.rule) == (
            "retry.max_interval",
            "must not be below initial_interval",
        )

    def test_a_later_layer_can_lift_the_cap(self) -> None:
        base = parse_policy({"initial_interval": "PT6M"})
        policy = parse_policy({"max_interval": "PT1H"}, base=base).capped()
        assert (policy.initial_interval_ms, policy.max_interval_ms) == (360_000, 3_600_000)

    @pytest.mark.parametrize(
        "fields",
        [
            {},
            {"max_attempts": 0, "initial_interval": "500ms", "max_interval": "P3000D"},
            {"initial_interval_ms": 1, "backoff_coefficient": 1.25, "strategy": "none"},
            {"non_retryable_errors": ["a.*", "ä"], "on_exhaustion": "dead_letter"},
        ],
    )
    def test_what_is_stored_reads_back_the_same(self, fields: dict[str, Any]) -> None:
        policy = parse_policy(fields)
        assert from_stored(json.dumps(policy.to_wire())) == policy

    @pytest.mark.parametrize("name", ["max_attempts", "maxAttempts"])
    def test_none_is_no_limit_and_reads_back_the_same(self, name: str) -> None:
        policy = parse_policy({name: None})
        assert policy.to_wire()["max_attempts"] == UNLIMITED == 2147483647
        assert parse_policy(policy.to_wire()) == policy
        assert from_stored('{"max_attempts": null}') == policy

    def test_only_the_limit_of_attempts_is_lifted_by_none(self) -> None:
        assert parse_policy({"jitter": False}, base=parse_policy({"max_attempts": None})) == (
            RetryPolicy(max_attempts=UNLIMITED, jitter=False)
        )
        limited = parse_policy({"max_attempts": 2}, base=parse_policy({"max_attempts": None}))
        assert limited.max_attempts == 2

    @given(st.integers(1, TEN_YEARS_MS), st.integers(1, TEN_YEARS_MS))
    def test_intervals_read_back_the_same(self, one: int, other: int) -> None:
        policy = RetryPolicy(
            initial_interval_ms=min(one, other), max_interval_ms=max(one, other), jitter=False
        )
        assert parse_policy(policy.to_wire()) == policy


BAD: list[tuple[str, Any]] = [
    *each(
        "max_attempts", -1, 1.0, "3", True, MAX_ATTEMPTS + 1, UNLIMITED - 1, UNLIMITED + 1, [], 10**400
    ),
    *each("maxAttempts", -1, "x"),
    *each(
        "initial_interval", "", "PT0S", 0, -1, "PT", "P1Y", "P1M", "1 s", " 1s", True, [], "soon", 1e300
    ),
    *each("initial_interval", float("nan"), float("inf"), 0.0001, -0.5, "-PT1S"),
    *each("initial_interval_ms", -1, 1.5, "1000", True),
    *each("base_delay_ms", -1, "x"),
    *each("max_interval", "PT0S", "x", False, "P4000D"),
    *each("max_delay_ms", -1, "x"),
    *each(
        "backoff_coefficient", 0.99, 0, -2, "2.0", True, float("nan"), float("inf"), 1e7, 10**400, []
    ),
    ("multiplier", 0.5),
    *each("jitter", 0, 1, "true", [], 0.5),
    *each(
        "non_retryable_errors",
        "auth.*",
        [1],
        [""],
        [None],
        {"a": 1},
        ["x"] * 101,
        ["x" * 256],
        ["a\x00"],
    ),
    ("non_retryable_errors", ["\ud800"]),
    *each("on_exhaustion", "", "drop", "DISCARD", 1, True, ["discard"]),
    *each("backoff_strategy", "", "Linear", "fibonacci", 2, ["linear"]),
    ("backoff", "quadratic"),
]


@pytest.mark.parametrize(("name", "value"), BAD, ids=lambda value: repr(value)[:30])
def test_bad_values_name_the_field(name: str, value: object) -> None:
    with pytest.raises(InvalidRetryPolicy) as caught:
        parse_policy({name: value})
    assert caught.value.field.removesuffix("[0]") == f"retry.{name}"
    assert caught.value.code == "validation_error"
    assert name in caught.value.message
    with pytest.raises(InvalidRetryPolicy) as caught:
        parse_policy({name: value}, field="jobs[2].retry")
    assert caught.value.field.removesuffix("[0]") == f"jobs[2].retry.{name}"


@pytest.mark.parametrize("value", [[], "PT1S", 3, True, None, 1.5])
def test_a_policy_is_an_object(value: object) -> None:
    with pytest.raises(InvalidRetryPolicy) as caught:
        parse_policy(value)
    assert caught.value.field == "retry"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=6,
)
names = st.sampled_from([alias for aliases, *_ in ALIASES.values() for alias in aliases])


@pytest.mark.slow
@given(st.dictionaries(names | st.text(max_size=8), json_values, max_size=5) | json_values)
def test_anything_is_either_a_policy_or_refused(value: object) -> None:
    try:
        policy = parse_policy(value)
    except InvalidRetryPolicy as refusal:
        told = refusal.field
    else:
        told = "retry"
        assert 1 <= policy.initial_interval_ms <= policy.max_interval_ms
        assert from_stored(json.dumps(policy.to_wire())) == policy
    assert told.startswith("retry")


class TestMatching:
    @pytest.mark.parametrize(
        ("name", "matched"),
        [
            ("auth.token_expired", True),
            ("auth.forbidden", True),
            ("auth.", True),
            ("auth", False),
            ("authx", False),
            ("external.auth.failure", False),
            ("Auth.forbidden", False),
        ],
    )
    def test_prefix(self, name: str, matched: bool) -> None:
        assert matches(["auth.*"], [name]) is matched

    def test_exact(self) -> None:
        assert matches(["validation.payload_invalid"], ["validation.payload_invalid"])
        assert not matches(["validation.payload_invalid"], ["validation.payload"])
        assert not matches(["validation"], ["validation.payload"])

    def test_any_of_several(self) -> None:
        assert matches(["a", "b.*"], ["x", "b.c"])
        assert not matches(["a", "b.*"], ["x", "c"])
        assert not matches([], ["x"])
        assert not matches(["a"], [])

    @pytest.mark.parametrize("pattern", ["a.c", "(a|abc)", "ab?c", "[a-c]+", "*", "abc*", "^abc$"])
    def test_never_a_regular_expression(self, pattern: str) -> None:
        assert not matches([pattern], ["abc"])
        assert matches([pattern], [pattern])

    def test_generators_may_be_given(self) -> None:
        assert matches((pattern for pattern in ("x", "auth.*")), (name for name in ("auth.a",)))


class Declined(LookupError):
    """An error of an application."""


class TestClasses:
    def test_a_class_stands_for_its_name(self) -> None:
        listing = {"non_retryable_errors": [Declined, "auth.*", KeyError]}
        listed = (f"{__name__}.Declined", "auth.*", "builtins.KeyError")
        assert parse_policy(listing).non_retryable_errors == listed
        assert with_names(listing) == {"non_retryable_errors": list(listed)}
        assert with_names({"max_attempts": 2}) == {"max_attempts": 2}

    @pytest.mark.parametrize("wrong", [int, 5, Declined(), ""])
    def test_anything_else_is_refused(self, wrong: object) -> None:
        with pytest.raises(InvalidRetryPolicy, match="non_retryable_errors"):
            parse_policy({"non_retryable_errors": [wrong]})

    def test_subclasses_match_the_name_of_their_base_but_no_prefix(self) -> None:
        bases = ["shop.Declined", "builtins.LookupError", "builtins.Exception"]
        assert matches(["builtins.LookupError"], ["shop.Declined"], bases)
        assert not matches(["builtins.*", "builtins.KeyError"], ["shop.Declined"], bases)
        assert matches(["shop.*"], ["shop.Declined"], bases)
