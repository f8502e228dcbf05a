"""What a handler returns, as JSON text."""

from __future__ import annotations

from typing import Any

from django.core.serializers.json import DjangoJSONEncoder

from django_ojs.domain.errors import InvalidRequest, TooLarge
from django_ojs.domain.jsonvalue import MAX_DEPTH, MAX_RESULT_BYTES, encode

_PLAIN = (str, int, float, bool, type(None))
_known = DjangoJSONEncoder().default


def result_text(value: Any) -> str | None:
    """The result as JSON text within its limits; ``None`` for no result.

    Dates, times, durations, UUIDs, decimals and lazy strings are written as Django's own encoder
    writes them: the work is done, and an attempt more would not change what it returned. Raises
    :class:`InvalidRequest` naming the path for what is still no JSON, :class:`TooLarge`.
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
    """The value with what Django's encoder knows in its JSON form; the rest is left for the encoder."""
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
