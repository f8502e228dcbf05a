"""The stored error: sanitised and cut, never refused; the fields of a timeout (T7, L9)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_ojs.domain import lifecycle
from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.failures import (
    Directive,
    Failure,
    error_object,
    from_wire,
    timed_out,
    timeout_fields,
)
from django_ojs.domain.jsonvalue import encode
from django_ojs.domain.timeouts import Fired, TimeoutKind
from tests.domain.records import NOW, at, running


def error(failure: Failure) -> dict[str, Any]:
    return error_object(failure, attempt=2, now=NOW)


def test_the_fields() -> None:
    assert error(Failure("SmtpError", "no route", details={"host": "a"})) == {
        "type": "SmtpError",
        "code": "SmtpError",
        "message": "no route",
        "retryable": True,
        "attempt": 2,
        "occurred_at": "2026-02-12T10:30:00.000Z",
        "timestamp": "2026-02-12T10:30:00.000Z",
        "details": {"host": "a"},
    }


def test_optional_fields() -> None:
    told = error(Failure("E", code="handler_error", directive=Directive.DISCARD, backtrace=["a", "b"]))
    assert told["code"] == "handler_error"
    assert told["directive"] == "DISCARD"
    assert told["backtrace"] == ["a", "b"]


class TestTimeouts:
    @pytest.mark.parametrize(
        ("clock", "type_", "kind", "retryable", "message"),
        [
            (
                TimeoutKind.EXECUTION,
                "timeout",
                "execution",
                True,
                "Job execution exceeded timeout of 300 seconds",
            ),
            (TimeoutKind.TOTAL, "total_timeout", "total", False, "300 seconds"),
            (TimeoutKind.ENQUEUE_TTL, "enqueue_ttl_expired", "enqueue_ttl", False, "300 seconds"),
            (TimeoutKind.STALLED, "stalled", "stalled", True, "300 seconds"),
            (TimeoutKind.VISIBILITY, "visibility_timeout", "stalled", True, "300 seconds"),
        ],
    )
    def test_outcomes(
        self, clock: TimeoutKind, type_: str, kind: str, retryable: bool, message: str
    ) -> None:
        told = error(timed_out(Fired(clock, 300_000, 305_900)))
        assert (told["type"], told["code"], told["retryable"]) == (type_, type_, retryable)
        assert message in told["message"]
        assert (told["timeout_kind"], told["limit_seconds"], told["elapsed_seconds"]) == (
            kind,
            300,
            305,
        )
        assert type(told["timeout_kind"]) is str
        assert (told["limit_ms"], told["elapsed_ms"]) == (300_000, 305_900)

    @pytest.mark.parametrize(
        ("ms", "said"),
        [
            (1, "0.001 seconds"),
            (500, "0.5 seconds"),
            (1000, "1 second"),
            (1500, "1.5 seconds"),
            (100_000, "100 seconds"),
            (86_401_250, "86401.25 seconds"),
            (1_234_567_000, "1234567 seconds"),
            (315_619_200_000, "315619200 seconds"),
        ],
    )
    def test_the_limit_in_words(self, ms: int, said: str) -> None:
        assert timed_out(Fired(TimeoutKind.EXECUTION, ms, ms)).message.endswith(f" of {said}")

    @pytest.mark.parametrize(("ms", "seconds"), [(1, 1), (999, 1), (1000, 1), (1001, 2)])
    def test_a_limit_is_rounded_up_to_a_whole_second(self, ms: int, seconds: int) -> None:
        fields = timeout_fields(Fired(TimeoutKind.STALLED, ms, 5999))
        assert fields == {"timeout_kind": "stalled", "limit_seconds": seconds, "elapsed_seconds": 5}


class TestFromWire:
    """What a NACK says (OJS retry 7.2, OJS timeouts 7.2)."""

    def test_a_timeout_without_words_leaves_them_to_the_server(self) -> None:
        for body in ({"type": "timeout"}, {"code": "timeout"}):
            failure = from_wire({"error": body})
            assert (failure.type, failure.code, failure.message) == ("timeout", "timeout", "")
        assert from_wire({"error": {"type": "timeout", "message": "late"}}).message == "late"
        plain = from_wire({})
        assert (plain.code, plain.message) == ("handler_error", "unspecified error")

    @pytest.mark.parametrize(
        ("body", "ms"),
        [
            ({"retry_after": 45}, 45_000),
            ({"retry_after": "PT1M"}, 60_000),
            ({"retry_after": 0}, 0),
            ({"retry_after_ms": 250}, 250),
            ({"retry_after_ms": 0}, 0),
            ({"next_retry_delay": "10s"}, 10_000),
            ({"error": {"message": "busy", "retry_after": 5}}, 5000),
            ({"error": {"next_retry_delay": 7}, "directive": "RETRY"}, 7000),
            ({"retry_after": 1, "retry_after_ms": 2}, 2),
            ({}, None),
        ],
    )
    def test_a_retry_may_say_when(self, body: dict[str, Any], ms: int | None) -> None:
        assert from_wire(body).retry_after_ms == ms

    @pytest.mark.parametrize(
        ("body", "field"),
        [
            ({"retry_after": -1}, "retry_after"),
            ({"retry_after": 1.5}, "retry_after"),
            ({"retry_after_ms": "5s"}, "retry_after_ms"),
            ({"error": {"next_retry_delay": "soon"}}, "error.next_retry_delay"),
            ({"retry_after": 5, "directive": "DISCARD"}, "retry_after"),
        ],
    )
    def test_a_delay_that_makes_no_sense_is_named(self, body: dict[str, Any], field: str) -> None:
        with pytest.raises(InvalidRequest) as caught:
            from_wire(body)
        assert caught.value.field == field


class TestSanitising:
    def test_text(self) -> None:
        told = error(Failure("E\x00", "a\x00b\ud800", code="c\udfff", backtrace=["\x00x"]))
        assert (told["type"], told["message"], told["code"]) == ("E\ufffd", "a\ufffdb\ufffd", "c\ufffd")
        assert told["backtrace"] == ["\ufffdx"]

    def test_long_text_is_cut(self) -> None:
        told = error(Failure("t" * 999, "\u00e9" * 9000, code="c" * 999))
        assert len(told["type"].encode()) <= 255 and told["type"].endswith("\u2026")
        assert len(told["code"].encode()) <= 255
        assert 8180 <= len(told["message"].encode()) <= 8192

    def test_a_backtrace_keeps_its_end(self) -> None:
        told = error(Failure("E", backtrace=[f"line {n}" for n in range(500)]))
        assert told["backtrace"] == [f"line {n}" for n in range(400, 500)]
        told = error(Failure("E", backtrace=[*("x" * 4000 for _ in range(60)), "the end"]))
        assert told["backtrace"][-1] == "the end"
        assert 60_000 < sum(len(line.encode()) for line in told["backtrace"]) <= 64 << 10
        (line,) = error(Failure("E", backtrace=["y" * 9000]))["backtrace"]
        assert len(line.encode()) <= 4096

    @pytest.mark.parametrize(
        ("details", "kept"),
        [
            ({"a": [1, {"b": None}]}, {"a": [1, {"b": None}]}),
            ({"raised": "a\x00b", "n": 1}, {"raised": "a\ufffdb", "n": 1}),
            ({"\ud800": 1}, {"\ufffd": 1}),
            ({"a": float("nan"), "b": {"c": 1}}, {"a": "(float)", "b": {"c": 1}}),
            ({"a": {1}, "b": object()}, {"a": "(set)", "b": "(object)"}),
            ({"a": ["\x00"]}, {"a": "(list)"}),
        ],
        ids=ascii,
    )
    def test_details(self, details: dict[str, Any], kept: dict[str, Any]) -> None:
        assert error(Failure("E", details=details))["details"] == kept

    def test_details_that_are_too_large(self) -> None:
        told = error(Failure("E", details={"dump": "x" * (1 << 20), "list": [0] * 99_999, "n": 1}))
        assert told["details"]["n"] == 1
        assert told["details"]["list"] == "(list)"
        assert len(json.dumps(told)) < 3000

    def test_details_leave_room_for_the_history_around_them(self) -> None:
        deep: Any = "x"
        for _ in range(29):
            deep = [deep]
        job = lifecycle.fail(
            running(), Failure("E", details={"deep": deep}), now=at(1), jitter=0.5
        ).written
        assert encode(job.json("errors"), "errors", max_bytes=1 << 20) != "[]"

    @given(
        st.text(st.characters(exclude_categories=()), max_size=300),
        st.lists(st.text(st.characters(exclude_categories=()), max_size=50), max_size=5),
        st.dictionaries(
            st.text(st.characters(exclude_categories=()), max_size=5),
            st.text(st.characters(exclude_categories=())) | st.floats() | st.binary(),
            max_size=4,
        ),
    )
    def test_any_failure_can_be_stored(
        self, text: str, lines: list[str], details: dict[str, Any]
    ) -> None:
        failure = Failure(text, text, code=text, backtrace=lines, details=details)
        move = lifecycle.fail(running(), failure, now=at(1), jitter=0.5)
        stored = move.written
        for column in ("error", "errors"):
            value = stored.json(column)
            assert json.loads(encode(value, column, max_bytes=1 << 20)) == value
        for job_event in move.job_events:
            assert encode(dict(job_event.data), "data", max_bytes=1 << 20) != "{}"


def test_names_for_matching() -> None:
    failure = Failure("T", code="C", details={"error_class": "K", "type": 5})
    assert failure.names == ("T", "C", "K")
    assert set(Failure("T", details={"type": "D"}).names) == {"T", "D"}
    assert Failure("T", details={"error_bases": ["a.B", 5, "a.C"]}).bases == ("a.B", "a.C")
    assert Failure("T", details={"error_bases": "a.B"}).bases == ()
