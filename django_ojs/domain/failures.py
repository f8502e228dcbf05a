"""Failures of an attempt: what a worker reports or a clock decides, and the stored error object.

The error object is the one of OJS core 8 with the fields of OJS timeouts 8 where a clock ran out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from django_ojs.domain.durations import format_instant, parse_ms, parse_seconds_ms
from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.jsonvalue import (
    MAX_BACKTRACE_BYTES,
    MAX_ERROR_MESSAGE_BYTES,
    MAX_META_BYTES,
    encode,
    sanitise_text,
)
from django_ojs.domain.timeouts import Fired, TimeoutKind


class Directive(StrEnum):
    """What a handler decides about its own failure; beats the retry policy (OJS retry 7.2)."""

    RETRY = "RETRY"
    DISCARD = "DISCARD"
    DEAD_LETTER = "DEAD_LETTER"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt failed.

    ``type`` is what ``non_retryable_errors`` is compared with (also ``code`` and
    ``details["error_class"]``; the names of base classes in ``details["error_bases"]`` match exactly).
    ``retry_after_ms`` replaces the computed backoff. ``fired`` is set
    where a timeout is the cause; with ``lookahead`` it has not run out, but no attempt fits into it.
    """

    type: str
    message: str = ""
    code: str = ""
    retryable: bool = True
    details: Mapping[str, Any] = field(default_factory=dict)
    backtrace: Sequence[str] = ()
    directive: Directive | None = None
    retry_after_ms: int | None = None
    fired: Fired | None = None
    lookahead: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Everything that a non-retryable pattern may match (OJS retry 5)."""
        more = (self.details.get(key) for key in ("error_class", "type"))
        return (self.type, self.code or self.type, *(n for n in more if isinstance(n, str)))

    @property
    def bases(self) -> tuple[str, ...]:
        """The classes that the error is a subclass of."""
        found = self.details.get("error_bases")
        return tuple(n for n in found if isinstance(n, str)) if isinstance(found, (list, tuple)) else ()


_DIRECTIVES = frozenset(str(directive) for directive in Directive)


def from_wire(body: Mapping[str, Any]) -> Failure:
    """The failure that a NACK reports, in every form that clients send.

    ``error`` is an object, a string or absent; a directive stands beside it, in it, or is its code.
    A delay (``retry_after``, ``next_retry_delay`` or ``retry_after_ms``) stands beside it or in it.
    Raises :class:`InvalidRequest` naming the field.
    """
    error = body.get("error")
    if error is None:
        error = {}
    elif isinstance(error, str):
        error = {"message": error}
    elif not isinstance(error, Mapping):
        raise InvalidRequest("error", "must be an object or a string")
    for name in ("type", "code", "message"):
        if not isinstance(error.get(name), (str, type(None))):
            raise InvalidRequest(f"error.{name}", "must be a string")
    retryable = error.get("retryable")
    if not isinstance(retryable, (bool, type(None))):
        raise InvalidRequest("error.retryable", "must be true or false")
    details = error.get("details")
    if not isinstance(details, (Mapping, type(None))):
        raise InvalidRequest("error.details", "must be an object")
    details = details or {}
    code = error.get("code") or ""
    directive = _directive(body, error, code)
    if code in _DIRECTIVES:
        code = ""
    error_class = details.get("error_class")
    named = error_class if isinstance(error_class, str) and error_class else code
    kind = error.get("type") or named or "handler_error"
    # The server words timeouts itself: OJS timeouts 8.
    usual = ("timeout", "") if kind == "timeout" else ("handler_error", "unspecified error")
    return Failure(
        type=kind,
        message=error.get("message") or usual[1],
        code=code or usual[0],
        retryable=retryable is not False,
        details=details,
        backtrace=_backtrace(error),
        directive=directive,
        retry_after_ms=_delay(body, error, directive),
    )


def is_timeout_report(failure: Failure) -> bool:
    """Whether a worker reports that it ended the attempt for its timeout (OJS timeouts 7.2)."""
    return failure.fired is None and "timeout" in (failure.type, failure.code)


def _delay(
    body: Mapping[str, Any], error: Mapping[str, Any], directive: Directive | None
) -> int | None:
    """The delay before the retry, in place of the backoff; 0 is at once."""
    for place, prefix in ((body, ""), (error, "error.")):
        for name in ("retry_after_ms", "retry_after", "next_retry_delay"):
            value = place.get(name)
            if value is None:
                continue
            field = prefix + name
            if directive not in (None, Directive.RETRY):
                raise InvalidRequest(field, f"cannot stand beside {directive}, which never retries")
            if name.endswith("_ms"):
                return parse_ms(value, field) or 0
            return parse_seconds_ms(value, field, allow_zero=True)
    return None


def _directive(body: Mapping[str, Any], error: Mapping[str, Any], code: str) -> Directive | None:
    places = (
        ("directive", body.get("directive")),
        ("response_code", body.get("response_code")),
        ("error.directive", error.get("directive")),
    )
    for name, value in places:
        if value is not None:
            if not isinstance(value, str) or value.upper() not in _DIRECTIVES:
                raise InvalidRequest(name, f"must be one of {', '.join(sorted(_DIRECTIVES))}")
            return Directive(value.upper())
    return Directive(code) if code in _DIRECTIVES else None


def _backtrace(error: Mapping[str, Any]) -> Sequence[str]:
    for name in ("backtrace", "stack_trace", "traceback"):
        value = error.get(name)
        if isinstance(value, str):
            return value.splitlines()
        if isinstance(value, list) and all(isinstance(line, str) for line in value):
            return value
        if value is not None:
            raise InvalidRequest(f"error.{name}", "must be a string or an array of strings")
    return ()


_TYPES = {
    TimeoutKind.EXECUTION: "timeout",
    TimeoutKind.TOTAL: "total_timeout",
    TimeoutKind.ENQUEUE_TTL: "enqueue_ttl_expired",
    TimeoutKind.STALLED: "stalled",
    TimeoutKind.VISIBILITY: "visibility_timeout",
}
_MESSAGES = {
    TimeoutKind.EXECUTION: "Job execution exceeded timeout of {}",
    TimeoutKind.TOTAL: "Job exceeded its total timeout of {}",
    TimeoutKind.ENQUEUE_TTL: "Job did not start within {}",
    TimeoutKind.STALLED: "No heartbeat for {}",
    TimeoutKind.VISIBILITY: "The visibility lease of {} ran out",
}


def timed_out(fired: Fired) -> Failure:
    """The failure that a clock causes (the outcome table of OJS timeouts 8)."""
    return Failure(
        type=_TYPES[fired.clock],
        message=_MESSAGES[fired.clock].format(_in_words(fired.limit_ms)),
        retryable=fired.clock not in (TimeoutKind.TOTAL, TimeoutKind.ENQUEUE_TTL),
        fired=fired,
    )


def no_time_left(
    total: Fired, *, starts_in_ms: int, takes_ms: int, left_ms: int, cause: Mapping[str, Any]
) -> Failure:
    """The failure of a job whose next attempt would pass the total timeout (OJS timeouts 9.1).

    ``takes_ms`` is the timeout of that attempt, 0 where only its start is known; ``cause`` is the
    error of the attempt that failed.
    """
    starts, takes = _seconds(starts_in_ms), _seconds(takes_ms)
    message = f"the next attempt could not start: it would start in {starts} s"
    if takes_ms:
        message = (
            f"the next attempt could not finish: it would start in {starts} s and may take {takes} s"
        )
    return Failure(
        type=_TYPES[TimeoutKind.TOTAL],
        message=f"{message}, the total timeout is in {_seconds(left_ms)} s",
        retryable=False,
        details={"cause": dict(cause)},
        fired=total,
        lookahead=True,
    )


def cause_of(error: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The error of the last attempt, if the job ended because no time was left for another one."""
    details = error.get("details")
    cause = details.get("cause") if isinstance(details, Mapping) else None
    ahead = error.get("type") == _TYPES[TimeoutKind.TOTAL] and isinstance(cause, Mapping)
    return cause if ahead else None


def _seconds(ms: int) -> str:
    whole, rest = divmod(ms, 1000)
    return f"{whole}.{rest:03}".rstrip("0") if rest else str(whole)


def _in_words(ms: int) -> str:
    seconds = _seconds(ms)
    return f"{seconds} second" if seconds == "1" else f"{seconds} seconds"


def timeout_fields(fired: Fired) -> dict[str, Any]:
    """``timeout_kind``, ``limit_seconds`` and ``elapsed_seconds`` (OJS timeouts 8, 11.1).

    Whole seconds: the limit is rounded up, what has elapsed down.
    """
    kind = TimeoutKind.STALLED if fired.clock is TimeoutKind.VISIBILITY else fired.clock
    return {
        "timeout_kind": str(kind),
        "limit_seconds": -(-fired.limit_ms // 1000),
        "elapsed_seconds": fired.elapsed_ms // 1000,
    }


def error_object(failure: Failure, *, attempt: int, now: datetime) -> dict[str, Any]:
    """The ``error`` of the job. Text is sanitised and cut, never refused."""
    when = format_instant(now)
    error: dict[str, Any] = {
        "type": sanitise_text(failure.type, 255),
        "code": sanitise_text(failure.code or failure.type, 255),
        "message": sanitise_text(failure.message, MAX_ERROR_MESSAGE_BYTES),
        "retryable": failure.retryable,
        "attempt": attempt,
        "occurred_at": when,
        "timestamp": when,
        "details": _details(failure.details),
    }
    if failure.backtrace:
        error["backtrace"] = last_frames(failure.backtrace)
    if failure.directive is not None:
        error["directive"] = str(failure.directive)
    if failure.fired is not None:
        error.update(timeout_fields(failure.fired))
        error.update(limit_ms=failure.fired.limit_ms, elapsed_ms=failure.fired.elapsed_ms)
    return error


def _details(details: Mapping[str, Any]) -> Mapping[str, Any]:
    """The details, or what can be stored of them."""
    try:
        # Two deep already where the error is part of the job's history.
        encode([[dict(details)]], "details", max_bytes=MAX_META_BYTES)
    except InvalidRequest:
        return {sanitise_text(str(key), 255): _plain(details[key]) for key in list(details)[:50]}
    return dict(details)


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return sanitise_text(value, 1024)
    try:
        encode([[[value]]], "details", max_bytes=1024)
    except InvalidRequest:
        return f"({type(value).__name__})"
    return value


def last_frames(lines: Sequence[str]) -> list[str]:
    """As much of the end of a traceback as is stored: the cause is there."""
    kept: list[str] = []
    room = MAX_BACKTRACE_BYTES
    for line in reversed(lines[-100:]):
        text = sanitise_text(line, 4096)
        room -= len(text.encode())
        if room < 0:
            break
        kept.append(text)
    return kept[::-1]
