"""The request for a job as JSON, for a job that is enqueued later than it was asked for."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

from django_ojs.domain.envelope import Envelope
from django_ojs.domain.limits import NO_LIMITS, Limits
from django_ojs.domain.workflow import Call

_TIMES = ("scheduled_at", "expires_at")
_EMPTY = asdict(NO_LIMITS)


def dump(call: Call) -> dict[str, Any]:
    """The call as JSON values; what is not set is left out."""
    values: dict[str, Any] = {
        name: value
        for name, value in call.envelope._asdict().items()
        if value != Envelope._field_defaults.get(name)
    }
    for name in _TIMES:
        if name in values:
            values[name] = values[name].isoformat()
    if "limits" in values:
        limits = asdict(call.envelope.limits)
        values["limits"] = {name: limits[name] for name in limits if limits[name] != _EMPTY[name]}
    if call.delay_ms is not None:
        values["delay_ms"] = call.delay_ms
    return values


def load(values: dict[str, Any]) -> Call:
    """What :func:`dump` was given."""
    fields = dict(values)
    delay_ms = fields.pop("delay_ms", None)
    for name in _TIMES:
        if name in fields:
            fields[name] = datetime.fromisoformat(fields[name])
    for name in ("tags", "times_asked"):
        if name in fields:
            fields[name] = tuple(fields[name])
    if "limits" in fields:
        fields["limits"] = Limits(**fields["limits"])
    return Call(Envelope(**fields), delay_ms)
