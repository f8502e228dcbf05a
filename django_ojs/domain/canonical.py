"""JSON in one form for what means the same: JSON Canonicalization Scheme (RFC 8785), strings in NFC.

Integers beyond 2**53 are kept exact, where the scheme would round them to the nearest double: ids that
differ stay different.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any
from unicodedata import normalize

_text = json.JSONEncoder(ensure_ascii=False).encode
_PLAIN_BELOW = 10**21
"""From here on numbers are written with an exponent, as ECMAScript does."""
_SMALLEST_PLAIN = 1e-6
_EXACT_BELOW = 2**53


def canonical(value: Any) -> str:
    """The canonical text of a JSON value: no spaces, keys sorted as UTF-16, ``1.0`` as ``1``."""
    if isinstance(value, str):
        return _text(normalize("NFC", value))
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, Mapping):
        named = sorted((normalize("NFC", name), name) for name in value)
        named.sort(key=lambda pair: pair[0].encode("utf-16-be"))
        members = (f"{_text(shown)}:{canonical(value[name])}" for shown, name in named)
        return "{" + ",".join(members) + "}"
    return "[" + ",".join(map(canonical, value)) + "]"


def _number(value: float) -> str:
    if value.is_integer() and abs(value) < _EXACT_BELOW:
        return str(int(value))
    shortest = repr(value)
    if _SMALLEST_PLAIN <= abs(value) < _PLAIN_BELOW:
        return f"{Decimal(shortest):f}"
    digits, _, exponent = shortest.partition("e")
    return f"{digits.removesuffix('.0')}e{int(exponent):+d}"
