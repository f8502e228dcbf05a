"""Warnings: parts of a request that were not done as requested, in the body and a header."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any
from urllib.parse import quote

HEADER = "OJS-Warnings"
_MOST = 20
"""The most warnings in the header; the body has all."""


def add_warnings(response: Any, warnings: Sequence[Mapping[str, Any]]) -> None:
    """Add the warnings about a request to its response."""
    if not warnings:
        return
    response[HEADER] = ", ".join(map(_line, warnings[:_MOST]))
    if isinstance(getattr(response, "data", None), MutableMapping):
        response.data["warnings"] = [dict(warning) for warning in warnings]


def _line(warning: Mapping[str, Any]) -> str:
    names = [name for name in ("index", "field", "near") if name in warning]
    return "; ".join(f"{name}={quote(str(warning[name])[:100], errors='replace')}" for name in names)
