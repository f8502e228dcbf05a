"""A validated request to enqueue a job, from the wire or from Python (OJS core 5)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django_ojs.domain.arguments import KWARGS, Arguments, check_marked
from django_ojs.domain.durations import parse_instant, parse_seconds_ms
from django_ojs.domain.errors import InvalidRequest, TooLarge, Unsupported
from django_ojs.domain.ids import parse_uuid7
from django_ojs.domain.job import JobRow
from django_ojs.domain.jsonvalue import (
    MAX_ARGS_BYTES,
    MAX_ENVELOPE_BYTES,
    MAX_META_BYTES,
    encode,
)
from django_ojs.domain.kept import KEPT, check_kept
from django_ojs.domain.limits import KEYS as LIMIT_KEYS
from django_ojs.domain.limits import NO_LIMITS, Limits, parse_limits
from django_ojs.domain.names import check_job_type, check_queue_name
from django_ojs.domain.options import EnqueueOptions, check_names, names
from django_ojs.domain.rate_limit import stored_rate_limit
from django_ojs.domain.reserved import OWN_PREFIX, check_lineage, check_meta_keys, is_own
from django_ojs.domain.retry import parse_policy, with_names
from django_ojs.domain.unique import declared

_PRIORITIES = {"HIGH": 10, "NORMAL": 0, "LOW": -10}
MAX_TAGS = 50

READ = (
    frozenset(
        [
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
            "retry",
            "retry_policy",
            "tags",
            "pending",
            "options",
            "specversion",
        ]
    )
    | LIMIT_KEYS
)
"""The fields that are read from a request."""
_INTERNAL = frozenset(
    {
        *("limits_from", "timeout_explicit", "heartbeat_explicit", "extra", "digest", "incident"),
        *("heartbeat_at", "heartbeat_armed", "deadline_at", "extended_ms", "finished_at"),
        *("checkpoint_seq", "checkpoint_info", "hooks", "held", "workflow_step"),
    }
)
"""Columns of a job that no answer has beside its fields: to a client these names mean nothing, and are
kept as any unknown field is. What names a lease is not among them: a worker could take it for its own.
"""
SYSTEM_MANAGED = (frozenset(JobRow._fields) - READ - _INTERNAL) | {
    "job",
    "lease",
    "next_attempt_at",
    "next_retry_at",
    "activated_at",
    "re_enqueued_at",
    "completed_at",
    "cancelled_at",
    "discarded_at",
    "previous_state",
    "total_attempts",
    "last_checkpoint",
    "deduplicated",
    "warnings",
    "args_json",
    "workflow_id",
    "workflow_step_id",
    "parent_results",
    "_ojs_verbatim",
}
"""Fields of answers only: columns of a job that they show, and what they add to them."""


class Envelope(NamedTuple):
    """A checked request for a job; ``None`` for what the client left out.

    ``retry`` is the partial policy as given, valid on its own. ``*_text`` keep the client's spelling of
    absolute times, ``times_asked`` of all times, to compare requests. ``extra`` has the unknown fields
    (decision L7).
    """

    type: str
    args_json: str
    id: UUID | None = None
    queue: str | None = None
    priority: int | None = None
    meta_json: str = "{}"
    tags: tuple[str, ...] = ()
    limits: Limits = NO_LIMITS
    retry: Mapping[str, Any] | None = None
    scheduled_at: datetime | None = None
    scheduled_text: str | None = None
    expires_at: datetime | None = None
    expires_text: str | None = None
    times_asked: tuple[str | None, str | None] = (None, None)
    pending: bool = False
    extra: Mapping[str, Any] | None = None


def from_wire(body: object, *, now: datetime) -> Envelope:
    """Read a request body, with all aliases, at the top level or in ``options``, which wins.

    Raises :class:`InvalidRequest` naming the field, :class:`Unsupported` for another major version
    of the specification. System-managed fields are ignored.
    """
    if not isinstance(body, Mapping):
        raise InvalidRequest("body", "must be a JSON object")
    options = body.get("options")
    if options is not None and not isinstance(options, Mapping):
        raise InvalidRequest("options", "must be an object")
    options = options or {}
    _check_version(body.get("specversion"))
    if "type" not in body:
        raise InvalidRequest("type", "is required")
    if "args" not in body:
        raise InvalidRequest("args", "is required")
    if not isinstance(body["args"], list):
        raise InvalidRequest("args", "must be an array")
    extra = {key: value for key, value in body.items() if key not in READ and key not in SYSTEM_MANAGED}
    for name in KEPT:
        if name in options:
            extra[name] = options[name]
    if extra:
        encode(extra, "body", max_bytes=MAX_ENVELOPE_BYTES)
        check_kept(extra)
    job_type = _type(body["type"])
    if is_own(type=job_type):
        raise InvalidRequest("type", f"must not begin with {OWN_PREFIX!r}, which is reserved")
    args_json = encode(body["args"], "args", max_bytes=MAX_ARGS_BYTES)
    when = _first(body, options, "delay_until", "scheduled_at")
    meta_json = _wire_meta(body, options, body["args"])
    envelope = _envelope(job_type, args_json, meta_json, body, options, when, now)
    return envelope._replace(extra=extra) if extra else envelope


_OPTIONS = names(EnqueueOptions)


def from_call(
    type: str,
    args: Sequence[Any],
    *,
    now: datetime,
    kwargs: Mapping[str, Any] | None = None,
    **options: Any,
) -> Envelope:
    """Read a call of the Python API; an option that is ``None`` counts as not given.

    ``kwargs`` are arguments by keyword: one object behind ``args``, see ``domain/arguments.py``.
    ``delay`` (seconds, ``timedelta``, ``"5m"``) and ``scheduled_at`` exclude each other. Raises
    ``TypeError`` for an unknown option, :class:`InvalidRequest` for a bad value.
    """
    checked = check_job_type(type, "type") if isinstance(type, str) else _type(type)
    if kwargs:
        return mark(from_call(checked, _with(args, kwargs), now=now, **options))
    args_json = encode_args(args)
    if not options:
        return Envelope(checked, args_json)
    check_names("enqueue()", options, _OPTIONS)
    given = {key: value for key, value in options.items() if value is not None}
    if "delay" in given and "scheduled_at" in given:
        raise InvalidRequest("delay", "excludes scheduled_at")
    name = "delay" if "delay" in given else "scheduled_at"
    when = given.get(name)
    if isinstance(when, float):
        parse_seconds_ms(when, name)
    if isinstance(when, int) and not isinstance(when, bool):
        when = f"{min(when, 10**11)}s" if when >= 0 else when
    start = None if when is None else (name, when)
    meta = given.get("meta")
    meta_json = "{}" if meta is None else _meta(meta, "meta")
    if meta is not None:
        check_marked(args, meta)
    envelope = _envelope(checked, args_json, meta_json, given, {}, start, now)
    extra: dict[str, Any] = {}
    if "rate_limit" in given:
        extra["rate_limit"] = stored_rate_limit(given["rate_limit"])
    policy = declared(given.get("unique"), given.get("throttle"), given.get("debounce"))
    if policy is not None:
        if given.get("debounce") is not None and (start is not None or envelope.pending):
            raise InvalidRequest(
                "debounce", "decides the start: it excludes delay, scheduled_at, pending"
            )
        extra["unique"] = policy and policy.to_wire()
    return envelope._replace(extra=extra) if extra else envelope


Found = tuple[str, Any]


def _envelope(
    job_type: str,
    args_json: str,
    meta_json: str,
    body: Mapping[str, Any],
    options: Mapping[str, Any],
    start: Found | None,
    now: datetime,
) -> Envelope:
    """What the two forms of a request have in common: each field in ``options`` or beside them."""
    expiry = _first(body, options, "expires_at")
    scheduled_at, scheduled_text = _moment(start, now)
    expires_at, expires_text = _moment(expiry, now)
    identity = body.get("id")
    return Envelope(
        type=job_type,
        args_json=args_json,
        id=None if identity is None else parse_uuid7(identity, "id"),
        queue=_queue(_first(body, options, "queue")),
        priority=_priority(_first(body, options, "priority")),
        meta_json=meta_json,
        tags=_tags(_first(body, options, "tags")),
        limits=_limits(body, options),
        retry=_retry(_first(body, options, "retry", "retry_policy")),
        scheduled_at=scheduled_at,
        scheduled_text=scheduled_text,
        expires_at=expires_at,
        expires_text=expires_text,
        times_asked=(_spelling(start), _spelling(expiry)),
        pending=_pending(_first(body, options, "pending")),
    )


def encode_args(args: Sequence[Any]) -> str:
    """Check the arguments of a call of the Python API and encode them as JSON text."""
    if not isinstance(args, (list, tuple)):
        raise InvalidRequest("args", "must be a list or a tuple")
    return encode(args, "args", max_bytes=MAX_ARGS_BYTES)


def encode_calls(envelope: Envelope, calls: Iterable[Arguments]) -> tuple[Envelope, list[str]]:
    """The envelope of many calls that differ in their arguments only, and the JSON text of each.

    If one of them has arguments by keyword, all have that object, since they share their ``meta``.
    """
    if envelope.args_json != "[]":
        raise TypeError("many calls have no option 'kwargs': a call may be a mapping")
    found = list(calls)
    if not any(kwargs for _, kwargs in found):
        return envelope, [encode_args(args) for args, _ in found]
    return mark(envelope), [encode_args(_with(args, kwargs)) for args, kwargs in found]


def mark(envelope: Envelope) -> Envelope:
    """The envelope, saying that the last of its arguments holds those by keyword."""
    meta = json.loads(envelope.meta_json)
    return envelope._replace(meta_json=_meta({**meta, KWARGS: True}, "meta"))


def _with(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    if not isinstance(args, (list, tuple)):
        raise InvalidRequest("args", "must be a list or a tuple")
    if not isinstance(kwargs, Mapping):
        raise InvalidRequest("kwargs", "must be a mapping")
    return [*args, dict(kwargs)]


def _first(body: Mapping[str, Any], options: Mapping[str, Any], *names: str) -> Found | None:
    for prefix, place in (("options.", options), ("", body)):
        for name in names:
            if place.get(name) is not None:
                return prefix + name, place[name]
    return None


def _type(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidRequest("type", "must be a string")
    return check_job_type(value, "type")


def _queue(found: Found | None) -> str | None:
    if found is None:
        return None
    if not isinstance(found[1], str):
        raise InvalidRequest(found[0], "must be a string")
    return check_queue_name(found[1], found[0])


def _priority(found: Found | None) -> int | None:
    return None if found is None else parse_priority(found[1], found[0])


def parse_priority(value: object, field: str) -> int:
    """Read a priority: -100 to 100, or ``HIGH``, ``NORMAL``, ``LOW`` (decision L6)."""
    if isinstance(value, str):
        value = _PRIORITIES.get(value.upper(), value)
    return check_priority(value, field)


def check_priority(value: object, field: str) -> int:
    """Check a priority: -100 to 100."""
    if type(value) is not int or not -100 <= value <= 100:
        raise InvalidRequest(field, "must be an integer from -100 to 100")
    return value


def _moment(found: Found | None, now: datetime) -> tuple[datetime | None, str | None]:
    return (None, None) if found is None else parse_instant(found[1], found[0], now)


def _spelling(found: Found | None) -> str | None:
    return None if found is None else str(found[1])


def _pending(found: Found | None) -> bool:
    if found is None:
        return False
    if type(found[1]) is not bool:
        raise InvalidRequest(found[0], "must be true or false")
    return found[1]


def _tags(found: Found | None) -> tuple[str, ...]:
    if found is None:
        return ()
    name, value = found
    if not isinstance(value, (list, tuple)) or len(value) > MAX_TAGS:
        raise InvalidRequest(name, f"must be an array of at most {MAX_TAGS} strings")
    if not all(isinstance(tag, str) and 0 < len(tag) <= 255 for tag in value):
        raise InvalidRequest(name, "must hold strings of 1 to 255 characters")
    encode(list(value), name, max_bytes=MAX_META_BYTES)
    return tuple(value)


def _retry(found: Found | None) -> Mapping[str, Any] | None:
    if found is None:
        return None
    # Only what is given can be checked here: the job type adds the rest.
    name = found[0].removeprefix("options.").replace("_policy", "")
    parse_policy(found[1], field=name)
    return with_names(found[1])


def _limits(body: Mapping[str, Any], options: Mapping[str, Any]) -> Limits:
    limits = parse_limits(body, options)
    total, timeout = limits.total_timeout_ms, limits.timeout_ms
    if total is not None and timeout is not None and total < timeout:
        raise InvalidRequest("total_timeout", "must not be below timeout")
    return limits


def _wire_meta(body: Mapping[str, Any], options: Mapping[str, Any], args: Sequence[Any]) -> str:
    """Merge ``meta`` over its aliases ``options.metadata``, ``options.meta`` and ``metadata``."""
    merged: dict[str, Any] = {}
    for name, value in (
        ("metadata", body.get("metadata")),
        ("options.meta", options.get("meta")),
        ("options.metadata", options.get("metadata")),
        ("meta", body.get("meta")),
    ):
        if value is not None:
            if not isinstance(value, Mapping):
                raise InvalidRequest(name, "must be an object")
            merged.update(value)
    check_lineage(merged)
    check_marked(args, merged)
    return _meta(merged, "meta") if merged else "{}"


def _meta(value: object, name: str) -> str:
    if not isinstance(value, Mapping):
        raise InvalidRequest(name, "must be an object")
    check_meta_keys(value, name)
    try:
        return encode(dict(value), name, max_bytes=MAX_META_BYTES)
    except TooLarge as error:
        error.code = "metadata_too_large"
        raise


def _check_version(value: object) -> None:
    if value is None:
        return
    if not isinstance(value, str) or not re.fullmatch(r"1(\.[0-9A-Za-z.-]+)?", value):
        raise Unsupported("specversion: must be 1.x", field="specversion", supported="1.0")
