"""Arguments that are given by keyword, though ``args`` of a job is a list (OJS core 5.1).

They are one object behind the others, ``[*args, kwargs]``, and ``meta["ojs.kwargs"]`` is ``true``.
Without any there is neither.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django_ojs.domain.errors import InvalidRequest

KWARGS = "ojs.kwargs"
"""The key of ``meta`` that says that the last of ``args`` holds the arguments by keyword."""
Arguments = tuple[Sequence[Any], Mapping[str, Any]]
"""Those of one call: by position, by keyword."""


def arguments_of(call: Sequence[Any] | Mapping[str, Any]) -> Arguments:
    """One of many calls: a list or a tuple of arguments, or a mapping of arguments by keyword."""
    return ((), call) if isinstance(call, Mapping) else (call, {})


def split(args: list[Any], meta: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a stored job: by position, by keyword."""
    if meta.get(KWARGS) is True and args and isinstance(args[-1], dict):
        return args[:-1], args[-1]
    return args, {}


def unmarked(meta: dict[str, Any]) -> dict[str, Any]:
    """``meta`` as callers gave it, without the mark."""
    return {name: value for name, value in meta.items() if name != KWARGS} if KWARGS in meta else meta


def check_marked(args: Sequence[Any], meta: Mapping[str, Any]) -> None:
    """Raise :class:`InvalidRequest` where ``meta`` names arguments by keyword that are not there."""
    if KWARGS not in meta:
        return
    if meta[KWARGS] is not True:
        raise InvalidRequest(f"meta.{KWARGS}", "must be true, or left out")
    if not args or not isinstance(args[-1], Mapping):
        raise InvalidRequest(
            "args", f"must end with an object, the arguments by keyword: meta.{KWARGS} is true"
        )
