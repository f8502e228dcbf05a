"""Encode the result of a handler as JSON text."""

from __future__ import annotations

from typing import Any

from django.core.serializers.json import DjangoJSONEncoder

from django_ojs.domain.errors import InvalidRequest, TooLarge
from django_ojs.domain.jsonvalue import MAX_DEPTH, MAX_RESULT_BYTES, encode

_PLAIN = (str, int, float, bool, type(None))
_known = DjangoJSONEncoder().default


def result_text(value: Any) -> str | None:
    """Encode a result within its limits; ``None`` for no result.

    Dates, times, durations, UUIDs, decimals and lazy strings are written as by Django's encoder: the
    work is done, and another attempt would return the same. Raises :class:`TooLarge`, and
    :class:`InvalidRequest` with the path to a value that cannot be encoded.
    """
    if value is None:
        return None
    try:
        return encode(value, "result", max_bytes=MAX_RESULT_BYTES)
    except TooLarge:
        raise
    except InvalidRequest:
        return encode(_converted(value, 0), "result", max_bytes=MAX_RESULT_BYTES)


def _converted(value: Any, depth: int) -> Any:
    """Convert what Django's encoder knows; leave the rest as it is."""
    if isinstance(value, _PLAIN) or depth > MAX_DEPTH:
        return value
    if isinstance(value, dict):
        return {key: _converted(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_converted(item, depth + 1) for item in value]
    try:
        return _known(value)
    except (TypeError, ValueError):
        return value
