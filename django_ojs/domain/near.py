"""Unknown fields of a request that resemble a known one: probably mistakes."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any

from django_ojs.domain.envelope import READ, SYSTEM_MANAGED
from django_ojs.domain.kept import KEPT
from django_ojs.domain.unique import UNIQUE_FIELDS

_KNOWN = sorted((READ | KEPT) - {"id"})
_ALIASES: Mapping[str, str] = {
    "arguments": "args",
    "attempts": "retry.max_attempts",
    "backoff": "retry.backoff_strategy",
    "countdown": "scheduled_at",
    "delay": "scheduled_at",
    "delay_ms": "scheduled_at",
    "delay_seconds": "scheduled_at",
    "eta": "scheduled_at",
    "execution_timeout": "timeout",
    "execution_timeout_ms": "timeout_ms",
    "heartbeat": "heartbeat_timeout",
    "job_timeout": "timeout",
    "job_type": "type",
    "max_attempts": "retry.max_attempts",
    "max_retries": "retry.max_attempts",
    "non_retryable_errors": "retry.non_retryable_errors",
    "payload": "args",
    "queue_name": "queue",
    "retries": "retry.max_attempts",
    "run_at": "scheduled_at",
    "schedule_to_close_timeout": "total_timeout",
    "schedule_to_start_timeout": "attempt_ttl",
    "start_to_close_timeout": "timeout",
    "time_limit": "timeout",
    "ttl": "enqueue_ttl",
    "ttl_ms": "enqueue_ttl_ms",
}
"""Names of other systems for our fields."""
_LONGEST = 64
_MOST = 200
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])", re.ASCII)


class NearMisses:
    """Finds keys of a request that look like misspelled fields.

    Checks the first 200 unknown fields only: each takes a fraction of a millisecond, and a body has
    room for a hundred thousand.
    """

    def __init__(self) -> None:
        self._left = _MOST

    def of(self, body: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Pair each such key of a job to enqueue, also in ``options``, with the field it resembles."""
        found: list[tuple[str, str]] = []
        options = body.get("options")
        inner = options if isinstance(options, Mapping) else {}
        for prefix, place in (("", body), ("options.", inner)):
            for name in filter(_is_unknown, place):
                if not self._left:
                    return found
                self._left -= 1
                near = _nearest(name)
                if near is not None and not _repeats(name, place):
                    found.append((prefix + name, prefix + near))
            unique = place.get("unique")
            for name in unique if isinstance(unique, Mapping) else ():
                if name in UNIQUE_FIELDS or len(name) > _LONGEST or not self._left:
                    continue
                self._left -= 1
                if (near := _closest(_plain(name), UNIQUE_FIELDS)) is not None:
                    found.append((f"{prefix}unique.{name}", f"{prefix}unique.{near}"))
        return found


def _repeats(name: str, place: Mapping[str, Any]) -> bool:
    """Whether this repeats the policy, as answers do, which clients may send back."""
    policy = place.get("retry")
    return (
        name == "max_attempts" and isinstance(policy, Mapping) and policy.get(name) == place.get(name)
    )


@lru_cache(maxsize=4096)
def _nearest(name: str) -> str | None:
    plain = _plain(name)
    if plain in _ALIASES:
        return _ALIASES[plain]
    if plain == "id":
        return plain
    return _closest(plain, _KNOWN)


def _plain(name: str) -> str:
    return _CAMEL.sub("_", name).lower().replace("-", "_")


def _closest(plain: str, names: Collection[str]) -> str | None:
    if plain in names:
        return plain
    least, near = 3, None
    for known in names:
        # Two letters make another word of a short name.
        most = 1 if min(len(known), len(plain)) < 5 else 2
        apart = _apart(plain, known, most)
        if apart is not None and apart < least:
            least, near = apart, known
    return near


def nearest(name: str) -> str | None:
    """Find the field that a name misspells, by at most two letters, or that other systems call so.

    ``None`` for known fields, and for extensions' names, which begin with ``ext_`` or ``x_``.
    """
    return _nearest(name) if _is_unknown(name) else None


def _is_unknown(name: str) -> bool:
    if name in READ or name in KEPT or name.startswith(("ext_", "x_")) or len(name) > _LONGEST:
        return False
    return name not in SYSTEM_MANAGED or name == "max_attempts"


def _apart(one: str, other: str, most: int) -> int | None:
    """Count letters that are added, left out, changed or swapped; ``None`` above ``most``."""
    if abs(len(one) - len(other)) > most:
        return None
    before: list[int] = []
    last: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        before, last, row = last, row, [i]
        for j, wanted in enumerate(other, 1):
            best = min(last[j] + 1, row[-1] + 1, last[j - 1] + (letter != wanted))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == wanted:
                best = min(best, before[j - 2] + 1)
            row.append(best)
    return row[-1] if row[-1] <= most else None
