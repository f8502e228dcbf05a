"""A schedule: when which job is enqueued, again and again (OJS cron)."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from django_ojs.domain import stored_envelope
from django_ojs.domain.cron import EVERY, Timing, check_expression, timing_of
from django_ojs.domain.durations import format_iso, parse_instant, parse_seconds_ms
from django_ojs.domain.envelope import Envelope
from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.workflow import Call

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*", re.ASCII)
MAX_DESCRIPTION = 1000
_LONGEST_LIMITED = 250
"""Its rate limit is named after it."""
CATCH_UP_WITHIN_MS = 600_000
"""Ten minutes: a deployment loses no nightly job, and last week's newsletter is not sent today."""
NO_TIME = datetime(2026, 1, 1, tzinfo=UTC)
"""For requests without a time that counts from now."""
_AT_ONCE = ("id", "scheduled_at", "expires_at")
NOT_REPEATED = (*_AT_ONCE, "pending")
"""Fields of a job that make no sense for one that is enqueued again and again."""


class Overlap(StrEnum):
    """What happens at a tick while the job of the last one has not ended (OJS cron 6)."""

    SKIP = "skip"
    ALLOW = "allow"
    CANCEL_PREVIOUS = "cancel_previous"
    ENQUEUE = "enqueue"


class CatchUp(StrEnum):
    """What becomes of ticks that passed while nobody could enqueue."""

    NONE = "none"
    ONE = "one"


class ScheduleSource(StrEnum):
    """Who a schedule belongs to. Those of code and settings are changed there."""

    CODE = "code"
    SETTINGS = "settings"
    ADMIN = "admin"
    HTTP = "http"


DECLARED = frozenset({ScheduleSource.CODE, ScheduleSource.SETTINGS})
_OVERLAPS = {str(one): one for one in Overlap} | {
    "cancel": Overlap.CANCEL_PREVIOUS,
    "replace": Overlap.CANCEL_PREVIOUS,
    "queue": Overlap.ENQUEUE,
}


@dataclass(frozen=True, slots=True)
class ScheduleSpec:
    """A checked schedule. ``envelope`` is the request for its jobs; durations are milliseconds."""

    name: str
    expression: str
    envelope: Envelope
    timezone: str = "UTC"
    overlap: Overlap = Overlap.SKIP
    catch_up: CatchUp = CatchUp.ONE
    catch_up_within_ms: int = CATCH_UP_WITHIN_MS
    jitter_ms: int = 0
    enabled: bool = True
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    description: str = ""

    @property
    def timing(self) -> Timing:
        """When it is due."""
        return timing_of(self.expression, self.timezone)

    def template(self) -> dict[str, Any]:
        """The request for the jobs as JSON values."""
        return stored_envelope.dump(Call(self.envelope))

    def fingerprint(self) -> str:
        """The same for the same declaration."""
        parts = [getattr(self, name) for name in _COMPARED]
        text = json.dumps([self.template(), *parts], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()


_COMPARED = tuple(name for name in ScheduleSpec.__dataclass_fields__ if name != "envelope")


def make(
    name: object,
    expression: object,
    envelope: Envelope,
    options: Mapping[str, Any] = {},
) -> ScheduleSpec:
    """A schedule of checked parts. ``options`` are those of ``@periodic``; ``None`` counts as not
    given.

    Raises :class:`InvalidRequest` naming the option and the rule.
    """
    given = {key: value for key, value in options.items() if value is not None}
    every = given.pop("every", None)
    if (every is None) == (expression is None):
        raise InvalidRequest("schedule", "must be given, or every: one of the two")
    if every is not None:
        expression = f"{EVERY}{format_iso(parse_seconds_ms(every, 'every'))}"
    timezone = given.pop("timezone", "UTC")
    check_expression(expression, timezone)
    spec = ScheduleSpec(
        check_schedule_name(name),
        str(expression).strip(),
        _checked(envelope),
        timezone,
        **{_COLUMNS.get(key, key): _READ[key](value, key) for key, value in given.items()},
    )
    if spec.overlap is Overlap.ENQUEUE and (envelope.extra or {}).get("rate_limit") is not None:
        raise InvalidRequest("overlap", "'enqueue' is a rate limit: the job cannot have another one")
    if spec.overlap is Overlap.ENQUEUE and len(spec.name) > _LONGEST_LIMITED:
        raise InvalidRequest("name", f"must be at most {_LONGEST_LIMITED} long with overlap 'enqueue'")
    if spec.starts_at is not None and spec.ends_at is not None and spec.ends_at <= spec.starts_at:
        raise InvalidRequest("ends_at", "must be after starts_at")
    return spec


def check_schedule_name(name: object, field: str = "name") -> str:
    """A name: ``a-z 0-9 . _ -``, starting with a letter or digit, at most 255 characters."""
    if not isinstance(name, str) or len(name) > 255 or not _NAME.fullmatch(name):
        raise InvalidRequest(
            field, "must be of a-z, 0-9, '.', '_' and '-', start with a letter or digit, at most 255"
        )
    return name


def _checked(envelope: Envelope) -> Envelope:
    for field in _AT_ONCE:
        if getattr(envelope, field) is not None:
            raise InvalidRequest(field, "makes no sense for a job that is enqueued again and again")
    if envelope.pending:
        raise InvalidRequest("pending", "makes no sense for a job that is enqueued again and again")
    return envelope


def _overlap(value: object, field: str) -> Overlap:
    if not isinstance(value, str) or value not in _OVERLAPS:
        raise InvalidRequest(field, f"must be one of {', '.join(Overlap)}")
    return _OVERLAPS[value]


def _catch_up(value: object, field: str) -> CatchUp:
    if not isinstance(value, str) or value not in list(CatchUp):
        raise InvalidRequest(field, f"must be one of {', '.join(CatchUp)}")
    return CatchUp(value)


def _flag(value: object, field: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidRequest(field, "must be true or false")
    return value


def _text(value: object, field: str) -> str:
    if not isinstance(value, str) or len(value) > MAX_DESCRIPTION or "\x00" in value:
        raise InvalidRequest(field, f"must be a string of at most {MAX_DESCRIPTION} characters")
    return value


def _moment(value: object, field: str) -> datetime:
    if isinstance(value, timedelta) or (isinstance(value, str) and not re.match(r"\d{4}-", value)):
        raise InvalidRequest(field, "must be a time with a zone")
    return parse_instant(value, field, NO_TIME)[0]


_READ: Mapping[str, Any] = {
    "overlap": _overlap,
    "catch_up": _catch_up,
    "catch_up_within": lambda value, field: parse_seconds_ms(value, field),
    "jitter": lambda value, field: parse_seconds_ms(value, field, allow_zero=True),
    "enabled": _flag,
    "starts_at": _moment,
    "ends_at": _moment,
    "description": _text,
}
_COLUMNS = {"catch_up_within": "catch_up_within_ms", "jitter": "jitter_ms"}
OPTIONS = ("every", "timezone", *_READ)
"""What a schedule may say beside its name, its expression and its job."""
