"""One validator for every JSON value that is stored: args, meta, results, progress (decision L9).

What PostgreSQL, MariaDB or SQLite alone would refuse is refused before any of them sees it.
"""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal
from typing import Any

from django_ojs.domain.errors import InvalidRequest, TooLarge

MAX_DEPTH = 30
MAX_ARGS_BYTES = 1 << 20
MAX_META_BYTES = 64 << 10
MAX_RESULT_BYTES = 1 << 20
MAX_ENVELOPE_BYTES = 2 << 20
MAX_ERROR_MESSAGE_BYTES = 8 << 10
MAX_BACKTRACE_BYTES = 64 << 10
MAX_DIGITS = 4300

_encode = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")
).encode
_BAD_TEXT = re.compile("[\x00\ud800-\udfff]")
_TOO_BIG = 10**MAX_DIGITS
_CONVERTED_KEY = re.compile(r'"(?:true|false|null|-?[0-9][0-9.]*(?:e[+-]?[0-9]+)?)":')
"""How the encoder writes a key that was no string."""
_LARGE_FLOAT = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|(-?[0-9.]+e\+[0-9]+)')
"""A string, or a float from 1e16 on, as the encoder writes them."""


def encode(value: Any, field: str, *, max_bytes: int) -> str:
    """``value`` as compact JSON text.

    Accepts ``None``, booleans, integers of up to 4,300 digits, finite floats, strings without NUL
    and lone surrogates, lists, tuples and dicts with string keys, nested up to 30 deep. Raises
    :class:`InvalidRequest` naming the path and the rule, :class:`TooLarge` above ``max_bytes``.
    """
    try:
        text = _encode(value)
        size = len(text) if text.isascii() else len(text.encode())
    except (TypeError, ValueError, RecursionError):
        _walk(value, field, 0)
        raise InvalidRequest(field, "must be a JSON value") from None
    if "e+" in text or "e-" in text:
        size += _exponents(value)
    if size > max_bytes:
        raise TooLarge(field, f"must not be larger than {max_bytes} bytes as JSON", limit=max_bytes)
    if "e+" in text:
        text = _LARGE_FLOAT.sub(_written_out, text)
    # The encoder has accepted it: what it lets through is rare and shows in its text.
    if (
        "\\u0000" in text
        or text.count("[") + text.count("{") > MAX_DEPTH
        or ("{" in text and _CONVERTED_KEY.search(text))
    ):
        _walk(value, field, 0)
    return text


def check_text(value: object, field: str) -> str:
    """Text that every database stores. Raises :class:`InvalidRequest`."""
    if not isinstance(value, str):
        raise InvalidRequest(field, f"must be text, not {_named(value)}")
    encode(value, field, max_bytes=MAX_META_BYTES)
    return value


def _written_out(found: re.Match[str]) -> str:
    """A float without its exponent. PostgreSQL writes out its digits; it keeps a fraction of zero, by
    which the number is a float again when it is read.
    """
    return found[0] if found[1] is None else f"{Decimal(found[1]):f}.0"


def _exponents(value: Any) -> int:
    """The digits that are written out for numbers like ``1e300`` and ``1e-300``: 300 for each."""
    if isinstance(value, float):
        return abs(int(text.partition("e")[2])) if "e" in (text := repr(value)) else 0
    if isinstance(value, (list, tuple)):
        return sum(map(_exponents, value))
    return sum(map(_exponents, value.values())) if isinstance(value, dict) else 0


def _walk(value: Any, path: str, depth: int) -> None:
    if value is None or value is True or value is False:
        return
    if isinstance(value, str):
        if _BAD_TEXT.search(value):
            raise InvalidRequest(path, "must not contain NUL or a lone surrogate")
    elif isinstance(value, int):
        if not -_TOO_BIG < value < _TOO_BIG:
            raise InvalidRequest(path, f"must not have more than {MAX_DIGITS} digits")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidRequest(path, "must be a finite number")
    elif isinstance(value, (list, tuple)):
        _deeper(path, depth)
        for index, item in enumerate(value):
            _walk(item, f"{path}[{index}]", depth + 1)
    elif isinstance(value, dict):
        _deeper(path, depth)
        for key, item in value.items():
            if not isinstance(key, str):
                raise InvalidRequest(path, "must have strings as keys")
            _walk(key, f"{path}.<key>", depth + 1)
            _walk(item, f"{path}.{sanitise_text(key, 40)}", depth + 1)
    else:
        raise InvalidRequest(path, f"must be a JSON value, not {_named(value)}")


_CONVERSIONS = {
    "UUID": "str(value)",
    "Decimal": "str(value)",
    "PurePath": "str(value)",
    "__proxy__": "str(value)",
    "date": "value.isoformat()",
    "time": "value.isoformat()",
    "timedelta": "value.total_seconds()",
    "set": "list(value)",
    "frozenset": "list(value)",
    "dict_keys": "list(value)",
    "dict_values": "list(value)",
    "generator": "list(value)",
    "QuerySet": "list(value.values())",
    "Model": "value.pk",
    "Enum": "value.value",
    "bytes": "value.decode()",
}
"""What to write instead of values of a class, by its name or that of a base."""


def _named(value: Any) -> str:
    kind = type(value)
    found = (_CONVERSIONS.get(base.__name__) for base in kind.__mro__)
    conversion = next(filter(None, found), None)
    return kind.__name__ if conversion is None else f"{kind.__name__}: write {conversion}"


def _deeper(path: str, depth: int) -> None:
    if depth >= MAX_DEPTH:
        short = path if len(path) < 80 else path[:80] + "..."
        raise InvalidRequest(short, f"must not be nested deeper than {MAX_DEPTH}")


def sanitise_text(text: str, max_bytes: int) -> str:
    """Text that every database stores: NUL and lone surrogates become U+FFFD, the rest is cut."""
    clean = _BAD_TEXT.sub("�", text[:max_bytes])
    data = clean.encode()
    if len(data) <= max_bytes and len(text) <= max_bytes:
        return clean
    return data[: max(0, max_bytes - 3)].decode(errors="ignore") + "…"
