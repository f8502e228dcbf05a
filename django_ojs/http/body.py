"""Read the JSON body of a request; checks size, depth and numbers."""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Mapping
from typing import Any, BinaryIO, NoReturn

from django.http import HttpRequest

from django_ojs.domain.errors import InvalidRequest, TooLarge
from django_ojs.domain.jsonvalue import MAX_DEPTH, MAX_DIGITS
from django_ojs.http.problems import InvalidPayload

_CHUNK = 1 << 16
_DEEPEST = MAX_DEPTH + 5
"""Stored values may be MAX_DEPTH deep, within a few levels of the request itself."""
_TYPES = frozenset({"", "application/openjobspec+json", "application/json"})
# An unterminated string matches to the end, so that every byte is scanned once.
_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[\[{]|[\]}]', re.DOTALL)


def read(request: HttpRequest, *, limit: int) -> tuple[Any, int]:
    """The JSON value in the body, ``None`` for an empty body, and its size when unpacked.

    Raises :class:`TooLarge` above ``limit`` bytes, before and after decompression,
    :class:`InvalidPayload` for what is not JSON, :class:`InvalidRequest` for another content type
    and for what is nested too deep.
    """
    declared = request.META.get("CONTENT_LENGTH") or "0"
    if declared.isascii() and declared.isdigit() and int(declared[:20]) > limit:
        raise _too_large(limit)
    raw = _read(_source(request), limit)
    if not raw:
        return None, 0
    media = request.content_type or ""
    if media.lower() not in _TYPES:
        raise InvalidRequest("Content-Type", "must be application/openjobspec+json or application/json")
    plain = _decoded(raw, request.META.get("HTTP_CONTENT_ENCODING", ""), limit)
    value = parse(plain)
    if value is None:
        raise InvalidPayload("The body is null; a JSON object is needed.")
    return value, len(plain)


def parse(raw: bytes) -> Any:
    """The JSON value in ``raw``, strictly: no NaN, no infinity, finite numbers, bounded depth."""
    check_depth(raw)
    try:
        return json.loads(raw.decode(), parse_constant=_constant, parse_float=_finite, parse_int=_int)
    except UnicodeDecodeError:
        raise InvalidPayload("The body is not UTF-8.") from None
    except json.JSONDecodeError as error:
        raise InvalidPayload(
            f"The body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}."
        ) from None
    except RecursionError:
        raise _too_deep() from None


def check_depth(raw: bytes) -> None:
    """Raise :class:`InvalidRequest` for deeper nesting than any value may have; reads ``raw`` once."""
    if raw.count(b"[") + raw.count(b"{") <= _DEEPEST:
        return
    depth = 0
    for match in _TOKENS.finditer(raw):
        token = match[0][:1]
        if token in b"[{":
            depth += 1
            if depth > _DEEPEST:
                raise _too_deep()
        elif token != b'"':
            depth -= 1


def as_object(value: Any) -> Mapping[str, Any]:
    """The value, if it is an object. Raises :class:`InvalidPayload`."""
    if not isinstance(value, dict):
        what = "empty" if value is None else "not a JSON object"
        raise InvalidPayload(f"The body is {what}; a JSON object is needed.")
    return value


def is_chunked(request: HttpRequest) -> bool:
    """Whether the body comes in chunks, without a declared length, from a server that ends it."""
    coding = request.META.get("HTTP_TRANSFER_ENCODING", "")
    return "chunked" in coding.lower() and bool(request.META.get("wsgi.input_terminated"))


def _source(request: HttpRequest) -> Any:
    # Django does not read a body without a declared length.
    return request.META["wsgi.input"] if is_chunked(request) else request


def _read(source: BinaryIO, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    try:
        while chunk := source.read(_CHUNK):
            size += len(chunk)
            if size > limit:
                raise _too_large(limit)
            parts.append(chunk)
    except OSError:
        raise InvalidPayload("The body broke off.") from None
    return b"".join(parts)


def _decoded(raw: bytes, encoding: str, limit: int) -> bytes:
    match encoding.strip().lower():
        case "" | "identity":
            return raw
        case "gzip" | "x-gzip" | "deflate":
            pass
        case _:
            raise InvalidRequest("Content-Encoding", "must be gzip, deflate or identity")
    # 32 + 15: gzip and zlib by their header.
    inflate = zlib.decompressobj(47)
    try:
        plain = inflate.decompress(raw, limit + 1)
    except zlib.error:
        raise InvalidPayload("The body is not what its Content-Encoding says.") from None
    if len(plain) > limit:
        raise _too_large(limit)
    if not inflate.eof or inflate.unused_data:
        raise InvalidPayload("The compressed body is not complete, or more than one.")
    return plain


def _too_large(limit: int) -> TooLarge:
    return TooLarge("body", f"must not be larger than {limit} bytes", max_bytes=limit)


def _too_deep() -> InvalidRequest:
    return InvalidRequest("body", f"must not be nested deeper than {MAX_DEPTH}")


def _constant(name: str) -> NoReturn:
    raise InvalidPayload(f"The body is not JSON: {name} is no JSON number.")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise InvalidRequest("body", "must have finite numbers only")
    return number


def _int(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise InvalidRequest("body", f"must not have a number of more than {MAX_DIGITS} digits")
    return int(text)
