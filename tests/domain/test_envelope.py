"""Requests to enqueue: both places, every alias, every bad value (OJS core 5)."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from enum import Enum, StrEnum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_ojs.domain.envelope import SYSTEM_MANAGED, Envelope, from_call, from_wire
from django_ojs.domain.errors import (
    InvalidRequest,
    InvalidRetryPolicy,
    OJSError,
    TooLarge,
    Unsupported,
)
from django_ojs.domain.limits import NO_LIMITS, Limits, parse_limits
from django_ojs.domain.names import check_job_type, check_queue_name
from tests.domain.records import ID, NOW, at, each

LATER = "2099-12-31T23:59:59Z"


def wire(**fields: Any) -> Envelope:
    return from_wire({"type": "report.generate", "args": [1], **fields}, now=NOW)


def optioned(**options: Any) -> Envelope:
    return wire(options=options)


def call(**options: Any) -> Envelope:
    return from_call("report.generate", [1], now=NOW, **options)


def test_the_smallest_request() -> None:
    assert wire() == Envelope("report.generate", "[1]")
    assert call() == wire()
    assert wire().limits == NO_LIMITS


class TestBothPlaces:
    # Field, spelling, value, another value for the losing place, attribute, what it becomes.
    ROWS = [
        ("queue", "mail", "bulk", "queue", "mail"),
        ("priority", 7, 1, "priority", 7),
        ("scheduled_at", LATER, "5s", "scheduled_text", LATER),
        ("delay_until", LATER, "5s", "scheduled_text", LATER),
        ("expires_at", LATER, "5s", "expires_text", LATER),
        ("tags", ["a", "b"], ["c"], "tags", ("a", "b")),
        ("pending", True, False, "pending", True),
        ("retry", {"max_attempts": 5}, {"jitter": False}, "retry", {"max_attempts": 5}),
        ("retry_policy", {"max_attempts": 5}, {"jitter": False}, "retry", {"max_attempts": 5}),
        ("timeout", 30, 40, "limits", Limits(timeout_ms=30_000)),
        ("timeout", "4m", 40, "limits", Limits(timeout_ms=240_000)),
        ("timeout", "PT5M", 40, "limits", Limits(timeout_ms=300_000)),
        (
            "timeout_ms",
            1500,
            40,
            "limits",
            Limits(timeout_ms=1500, timeout_given_in_ms=True),
        ),
        ("total_timeout", 30, 40, "limits", Limits(total_timeout_ms=30_000)),
        ("total_timeout_ms", 30, 40, "limits", Limits(total_timeout_ms=30)),
        ("enqueue_ttl", 30, 40, "limits", Limits(enqueue_ttl_ms=30_000)),
        ("enqueue_ttl_ms", 30, 40, "limits", Limits(enqueue_ttl_ms=30)),
        ("grace_period", 0, 40, "limits", Limits(grace_period_ms=0)),
        ("grace_period", "10s", 40, "limits", Limits(grace_period_ms=10_000)),
        ("grace_period_ms", 30, 40, "limits", Limits(grace_period_ms=30)),
        ("heartbeat_timeout", 30, 40, "limits", Limits(heartbeat_timeout_ms=30_000)),
        ("heartbeat_timeout_ms", 30, 40, "limits", Limits(heartbeat_timeout_ms=30)),
        ("visibility_timeout", 30, 40, "limits", Limits(visibility_timeout_ms=30_000)),
        ("visibility_timeout", "PT1M", 40, "limits", Limits(visibility_timeout_ms=60_000)),
        ("visibility_timeout_ms", 30, 40, "limits", Limits(visibility_timeout_ms=30)),
    ]

    @pytest.mark.parametrize(("name", "value", "other", "attribute", "parsed"), ROWS)
    def test_accepted_and_options_win(
        self, name: str, value: Any, other: Any, attribute: str, parsed: Any
    ) -> None:
        assert getattr(wire(**{name: value}), attribute) == parsed
        assert getattr(optioned(**{name: value}), attribute) == parsed
        both = wire(**{name: other}, options={name: value})
        assert getattr(both, attribute) == parsed
        # A null in options leaves the word to the top level.
        assert getattr(wire(**{name: value}, options={name: None}), attribute) == parsed
        assert wire(**{name: None}) == wire()
        assert both.extra is None

    @pytest.mark.parametrize(
        "name",
        [
            "timeout",
            "total_timeout",
            "enqueue_ttl",
            "grace_period",
            "heartbeat_timeout",
            "visibility_timeout",
        ],
    )
    def test_zero_milliseconds_are_unset(self, name: str) -> None:
        assert optioned(**{f"{name}_ms": 0}).limits == NO_LIMITS
        fallback = wire(**{name: 9}, options={f"{name}_ms": 0}).limits
        assert getattr(fallback, f"{name}_ms") == 9000

    def test_milliseconds_win_over_seconds_in_one_place(self) -> None:
        limits = wire(timeout=9, timeout_ms=1500).limits
        assert limits == Limits(timeout_ms=1500, timeout_given_in_ms=True)

    def test_seconds_in_options_win_over_milliseconds_outside(self) -> None:
        assert wire(timeout_ms=1500, options={"timeout": 9}).limits == Limits(timeout_ms=9000)

    def test_empty_options(self) -> None:
        assert wire(options=None) == wire(options={}) == wire()

    def test_delay_until_is_the_stronger_spelling(self) -> None:
        assert wire(scheduled_at="5s", delay_until="9s").scheduled_at == at(9)
        assert optioned(scheduled_at="5s", delay_until="9s").scheduled_at == at(9)

    def test_a_false_pending_in_options_is_a_word(self) -> None:
        assert wire(pending=True, options={"pending": False}).pending is False


class TestFields:
    @pytest.mark.parametrize(
        ("value", "priority"),
        [(-100, -100), (0, 0), (100, 100), ("HIGH", 10), ("normal", 0), ("LOW", -10)],
    )
    def test_priority(self, value: Any, priority: int) -> None:
        assert wire(priority=value).priority == priority

    @pytest.mark.parametrize(
        "name", ["a", "report.generate", "a-b_c.d9", "x" * 255, "a.b.c.d", "video.trans-code"]
    )
    def test_types(self, name: str) -> None:
        assert wire(type=name).type == name
        assert from_call(name, (), now=NOW).type == name

    @pytest.mark.parametrize("name", ["a", "0", "mail.high-1", "queue_1", "9-a", "q" * 255])
    def test_queues(self, name: str) -> None:
        assert wire(queue=name).queue == name

    def test_id(self) -> None:
        assert wire(id=str(ID)).id == ID
        assert call(id=str(ID)).id == call(id=ID).id == ID
        assert wire(id=None).id is None

    def test_args(self) -> None:
        args: list[Any] = [None, True, 1, 1.5, "\u00e9", [], {"k": [{}]}]
        assert json.loads(wire(args=args).args_json) == args
        assert wire(args=[]).args_json == "[]"

    def test_meta_is_merged_from_its_four_places(self) -> None:
        envelope = wire(
            metadata={"a": 1, "b": 1, "c": 1, "d": 1},
            meta={"d": 4},
            options={"meta": {"b": 2, "c": 2, "d": 2}, "metadata": {"c": 3, "d": 3}},
        )
        assert json.loads(envelope.meta_json) == {"a": 1, "b": 2, "c": 3, "d": 4}
        assert wire().meta_json == "{}"
        for place in ({"meta": {"k": 1}}, {"metadata": {"k": 1}}):
            assert wire(**place).meta_json == '{"k":1}'
            assert optioned(**place).meta_json == '{"k":1}'

    @pytest.mark.parametrize(
        ("text", "moment"),
        [("+PT2S", at(2)), ("PT2S", at(2)), ("5s", at(5)), ("2026-02-12T12:30:01+02:00", at(1))],
    )
    @pytest.mark.parametrize("name", ["scheduled_at", "delay_until", "expires_at"])
    def test_moments(self, name: str, text: str, moment: datetime) -> None:
        envelope = wire(**{name: text})
        kept = envelope.expires_at if name == "expires_at" else envelope.scheduled_at
        echoed = envelope.expires_text if name == "expires_at" else envelope.scheduled_text
        assert kept == moment
        assert echoed == (text if text.startswith("2026") else None)

    def test_the_past_is_accepted(self) -> None:
        envelope = wire(scheduled_at="2020-01-01T00:00:00Z", expires_at="2020-01-01T00:00:00Z")
        assert envelope.scheduled_at == envelope.expires_at == datetime(2020, 1, 1, tzinfo=UTC)

    @pytest.mark.parametrize("version", ["1", "1.0", "1.0.0", "1.0.0-rc.1", "1.7", None])
    def test_specversion(self, version: str | None) -> None:
        assert wire(specversion=version) == wire()

    @pytest.mark.parametrize("version", ["2", "2.0", "0.9", "10", "1.", "v1", "", 1, 1.0, True, []])
    def test_other_specversions_are_unsupported(self, version: Any) -> None:
        with pytest.raises(Unsupported) as caught:
            wire(specversion=version)
        assert caught.value.details["field"] == "specversion"


class TestUnknownAndSystemFields:
    def test_unknown_fields_are_kept(self) -> None:
        extra = {"x_trace": {"a": [1, None]}, "ext_ai": "y", "schema": "urn:x", "version": 2}
        assert wire(**extra).extra == extra
        assert wire(unique={"keys": ["type"]}, rate_limit={"key": "k", "concurrency": 1}).extra == {
            "unique": {"keys": ["type"]},
            "rate_limit": {"key": "k", "concurrency": 1},
        }

    def test_known_options_are_kept_and_others_dropped(self) -> None:
        kept = wire(
            schema="urn:outside",
            options={"unique": {"a": 1}, "schema": "urn:x", "version": "1.2", "x_more": 1},
        ).extra
        assert kept == {"unique": {"a": 1}, "schema": "urn:x", "version": "1.2"}

    @pytest.mark.parametrize("name", sorted(SYSTEM_MANAGED))
    def test_system_fields_are_ignored(self, name: str) -> None:
        for value in ("cancelled", 99, {"a": 1}, None, "\x00"):
            assert wire(**{name: value}) == wire()

    def test_what_must_be_system_managed(self) -> None:
        must = """state attempt created_at enqueued_at started_at completed_at cancelled_at
        discarded_at error errors result worker_id workflow_id parent_results max_attempts"""
        assert set(must.split()) <= SYSTEM_MANAGED

    def test_an_unknown_field_must_be_storable(self) -> None:
        with pytest.raises(InvalidRequest) as caught:
            wire(x_bad=["\x00"])
        assert "x_bad" in caught.value.field


DEEP: Any = []
for _ in range(31):
    DEEP = [DEEP]

BAD: list[tuple[str, Any]] = [
    *each("type", "", "Report", "a..b", ".a", "a.", "9a", "a b", "a!", "x" * 256),
    *each("type", None, 1, True, [], {}, "a\n", "\u00e9", "a\x00"),
    *each("args", None, {}, "x", 1, True, 1.5, DEEP, ["\x00"], ["\ud800"]),
    *each("id", "", "x", 1, "019539A4-B68C-7DEF-8000-1A2B3C4D5E6F", [], True),
    ("id", "019539a4-b68c-4def-8000-1a2b3c4d5e6f"),
    ("options", []),
    ("options", "x"),
    ("options", 0),
    ("options", False),
    *each("meta", [], "x", 1, True, {"a": "\x00"}, {"\ud800": 1}, {"a": DEEP}),
    *each("meta", {"a\nb": 1}, {"a\x1b[2J": 1}, {"a\u202eb": 1}, {"_ojs_x": 1}, {"retried_from": "x"}),
    ("metadata", []),
]
BAD_IN_BOTH: list[tuple[str, Any]] = [
    *each("queue", "", "Mail", "_a", "-a", "a b", "a!", "q" * 256, 1, [], True, "a\n"),
    *each("priority", -101, 101, 1.0, "1", "URGENT", True, [], 10**400),
    *each("tags", "a", {}, 1, True, [1], [""], [None], ["x" * 256], ["a"] * 51, ["\x00"]),
    *each("pending", 0, 1, "true", [], {}),
    *each(
        "scheduled_at delay_until expires_at",
        "",
        "soon",
        5,
        1.5,
        True,
        [],
        "2026-02-12T10:30:00",
        "-5s",
        "2026-02-30T00:00:00Z",
    ),
    *each(
        "timeout total_timeout enqueue_ttl heartbeat_timeout",
        0,
        -1,
        1.0,
        True,
        "",
        " 1",
        "+1",
        "1_0",
        "\u0661",
        [],
        "P1Y",
        10**12,
    ),
    *each("visibility_timeout", 0, -1, 1.0, True, "x"),
    *each("grace_period", -1, 0.0, False, "", "-0", []),
    *each(
        "timeout_ms total_timeout_ms enqueue_ttl_ms grace_period_ms heartbeat_timeout_ms",
        -1,
        1.0,
        True,
        "1000",
        [],
        10**15,
    ),
    ("visibility_timeout_ms", -1),
    ("unique", []),
    ("rate_limit", "x"),
    ("schema", 1),
    ("version", True),
    ("version", 1.5),
]


class TestBadValues:
    @pytest.mark.parametrize("name", ["type", "args"])
    def test_required(self, name: str) -> None:
        body: dict[str, Any] = {"type": "a", "args": []}
        del body[name]
        with pytest.raises(InvalidRequest, match="required") as caught:
            from_wire(body, now=NOW)
        assert (caught.value.field, caught.value.code) == (name, "invalid_request")

    @pytest.mark.parametrize("body", [None, [], "x", 1, True, b"{}"])
    def test_the_body_is_an_object(self, body: object) -> None:
        with pytest.raises(InvalidRequest) as caught:
            from_wire(body, now=NOW)
        assert caught.value.field == "body"

    @pytest.mark.parametrize(("name", "value"), BAD + BAD_IN_BOTH, ids=lambda v: ascii(v)[:25])
    def test_at_the_top_level(self, name: str, value: Any) -> None:
        with pytest.raises(InvalidRequest) as caught:
            wire(**{name: value})
        assert caught.value.field.startswith(name if name != "metadata" else "meta")
        assert caught.value.code == "invalid_request"

    @pytest.mark.parametrize(("name", "value"), BAD_IN_BOTH, ids=lambda v: ascii(v)[:25])
    def test_in_options(self, name: str, value: Any) -> None:
        with pytest.raises(InvalidRequest) as caught:
            optioned(**{name: value})
        kept = name in ("unique", "rate_limit", "schema", "version")
        assert caught.value.field.startswith(name if kept else f"options.{name}")

    @pytest.mark.parametrize("name", ["meta", "metadata"])
    def test_meta_in_options(self, name: str) -> None:
        with pytest.raises(InvalidRequest) as caught:
            optioned(**{name: []})
        assert caught.value.field == f"options.{name}"

    @pytest.mark.parametrize("name", ["retry", "retry_policy"])
    @pytest.mark.parametrize("value", [[], "x", {"max_attempts": -1}, {"jitter": 1}])
    def test_retry(self, name: str, value: Any) -> None:
        told = "retry" if not isinstance(value, dict) else f"retry.{next(iter(value))}"
        for place in ({name: value}, {"options": {name: value}}):
            with pytest.raises(InvalidRetryPolicy) as caught:
                wire(**place)
            assert caught.value.field == told

    def test_sizes(self) -> None:
        with pytest.raises(TooLarge) as caught:
            wire(args=["x" * (1 << 20)])
        assert (caught.value.field, caught.value.code) == ("args", "payload_too_large")
        with pytest.raises(TooLarge) as caught:
            wire(meta={"k": "x" * (64 << 10)})
        assert (caught.value.field, caught.value.code) == ("meta", "metadata_too_large")
        assert len(wire(args=["x" * ((1 << 20) - 4)]).args_json) == 1 << 20
        assert TooLarge.code == "payload_too_large"

    def test_total_below_timeout(self) -> None:
        assert wire(timeout=10, total_timeout=10).limits.total_timeout_ms == 10_000
        for fields in ({"timeout": 10, "total_timeout": 9}, {"timeout_ms": 2000, "total_timeout": 1}):
            for place in (fields, {"options": fields}):
                with pytest.raises(InvalidRequest) as caught:
                    wire(**place)
                assert caught.value.field.removeprefix("options.") == "total_timeout"
        assert wire(total_timeout=1).limits.total_timeout_ms == 1000


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=()), max_size=12)
    | st.sampled_from(["5s", "PT5M", LATER, "HIGH", str(ID), "a", "1.0", 0, 1, 10**4299]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=8,
)
FIELDS = [
    *[
        "type",
        "args",
        "id",
        "queue",
        "priority",
        "meta",
        "metadata",
        "scheduled_at",
        "delay_until",
        "expires_at",
    ],
    *[
        "retry",
        "retry_policy",
        "tags",
        "pending",
        "specversion",
        "unique",
        "rate_limit",
        "schema",
        "version",
    ],
    *["timeout", "timeout_ms", "grace_period", "grace_period_ms", "total_timeout", "state", "x_other"],
]
objects = st.dictionaries(st.sampled_from(FIELDS), json_values, max_size=6)
valid = st.just({"type": "a.b", "args": []})
bodies = st.builds(
    lambda base, body, options: {**base, **body, **options},
    valid,
    objects,
    st.one_of(st.just({}), st.builds(lambda inner: {"options": inner}, objects | json_values)),
)


@pytest.mark.slow
@given(bodies | json_values)
def test_any_json_is_an_envelope_or_refused(body: Any) -> None:
    try:
        envelope = from_wire(body, now=NOW)
    except OJSError as refusal:
        told = refusal.details["field"]
    else:
        told = envelope.type
        assert json.loads(envelope.args_json) == body["args"]
        assert isinstance(json.loads(envelope.meta_json), dict)
        assert not set(envelope.extra or ()) & SYSTEM_MANAGED
        for moment in (envelope.scheduled_at, envelope.expires_at):
            assert moment is None or moment.tzinfo is UTC
    assert isinstance(told, str) and told


class TestCalls:
    def test_same_options_same_envelope(self) -> None:
        options: dict[str, Any] = {
            "queue": "mail",
            "priority": 5,
            "meta": {"a": 1},
            "tags": ["x"],
            "retry": {"max_attempts": 2},
            "scheduled_at": LATER,
            "expires_at": LATER,
            "id": str(ID),
            "pending": True,
            "timeout": "4m",
            "total_timeout_ms": 900_000,
        }
        assert call(**options) == wire(**options)

    def test_none_counts_as_not_given(self) -> None:
        names = "queue priority meta tags retry delay scheduled_at expires_at id pending timeout"
        assert call(**dict.fromkeys(names.split())) == call()

    @pytest.mark.parametrize("delay", [5, "5s", "PT5S", "+5s", timedelta(seconds=5), "5"])
    def test_delay(self, delay: Any) -> None:
        envelope = call(delay=delay)
        assert (envelope.scheduled_at, envelope.scheduled_text) == (at(5), None)

    def test_moments_as_datetimes(self) -> None:
        envelope = call(scheduled_at=at(60), expires_at=at(90))
        assert (envelope.scheduled_at, envelope.expires_at) == (at(60), at(90))

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("delay", -1),
            ("delay", 1.5),
            ("delay", True),
            ("delay", "soon"),
            ("delay", 10**12),
            ("delay", 10**5000),
            ("scheduled_at", datetime(2026, 2, 12)),
            ("expires_at", 5.0),
            ("timeout", 0),
            ("timeout_ms", 1.5),
            ("queue", "Mail"),
            ("priority", 101),
            ("tags", "abc"),
            ("meta", []),
            ("pending", 1),
            ("id", UUID(int=5)),
            ("retry", {"max_attempts": "x"}),
            ("retry", 3),
        ],
        ids=lambda v: "value" if isinstance(v, int) else ascii(v)[:25],
    )
    def test_bad_values_name_the_option(self, name: str, value: Any) -> None:
        with pytest.raises(InvalidRequest) as caught:
            call(**{name: value})
        assert caught.value.field.startswith(name)

    def test_delay_excludes_scheduled_at(self) -> None:
        with pytest.raises(InvalidRequest) as caught:
            call(delay=5, scheduled_at=LATER)
        assert caught.value.field == "delay"

    def test_an_unknown_option_is_a_programming_error(self) -> None:
        with pytest.raises(TypeError, match="timeuot"):
            call(timeuot=5)

    @pytest.mark.parametrize("args", ["abc", {"a": 1}, None, {1}, (n for n in "ab")])
    def test_args_are_a_list_or_a_tuple(self, args: Any) -> None:
        with pytest.raises(InvalidRequest) as caught:
            from_call("a", args, now=NOW)
        assert caught.value.field == "args"

    @pytest.mark.parametrize("name", [None, 5, "Bad Type", ""])
    def test_bad_types(self, name: Any) -> None:
        with pytest.raises(InvalidRequest) as caught:
            from_call(name, [], now=NOW)
        assert caught.value.field == "type"


def test_limits_over_others() -> None:
    base = Limits(10, 20, 30, 40, 50, 60, timeout_given_in_ms=True)
    assert NO_LIMITS.over(base) == Limits(10, 20, 30, 40, 50, 60)
    mine = Limits(timeout_ms=1, grace_period_ms=0, timeout_given_in_ms=True)
    assert mine.over(base) == Limits(1, 0, 30, 40, 50, 60, timeout_given_in_ms=True)
    assert parse_limits({}, None) is parse_limits({"x": 1}, {}) is NO_LIMITS


def test_a_name_out_of_an_enumeration_is_its_text() -> None:
    class Name(StrEnum):
        ONE = "one"

    class Old(str, Enum):  # noqa: UP042 - as people write it
        TWO = "two"

    for check in (check_queue_name, check_job_type):
        assert [type(check(name, "x")) for name in (Name.ONE, Old.TWO, "two")] == [str] * 3
