"""The options of a job by what they mean: some have two names on the wire, or two units."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

_SAME = {"retry_policy": "retry", "delay_until": "scheduled_at", "metadata": "meta"}


def meaning(name: str) -> str:
    """The name that all spellings of an option share."""
    plain = name.removesuffix("_ms")
    return _SAME.get(plain, plain)


def without(options: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """The options but those that one of these names means too."""
    left_out = {meaning(name) for name in names}
    return {name: value for name, value in options.items() if meaning(name) not in left_out}
