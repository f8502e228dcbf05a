"""Fields of a request that are checked, kept and returned beside the columns of a job; some of them do
nothing yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django_ojs.domain.durations import parse_seconds_ms
from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.rate_limit import parse_rate_limit
from django_ojs.domain.unique import parse_unique

KEPT = frozenset({"unique", "rate_limit", "schema", "version", "workflow_timeout"})
NOT_BUILT: Mapping[str, str] = {
    "schema": "kept, not enforced: args are not checked against it",
    "workflow_timeout": "kept, not enforced: it is for workflows, a job has total_timeout",
}
"""The warning for each that is given."""


def check_kept(extra: Mapping[str, Any]) -> None:
    """Raise :class:`InvalidRequest` for what could not be meant (``null`` counts as not given)."""
    if extra.get("unique") is not None:
        parse_unique(extra["unique"])
    if extra.get("rate_limit") is not None:
        parse_rate_limit(extra["rate_limit"])
    if not isinstance(extra.get("schema"), (str, type(None))):
        raise InvalidRequest("schema", "must be a string")
    version = extra.get("version")
    if isinstance(version, bool) or not isinstance(version, (int, str, type(None))):
        raise InvalidRequest("version", "must be an integer or a string")
    if extra.get("workflow_timeout") is not None:
        parse_seconds_ms(extra["workflow_timeout"], "workflow_timeout")


def check_queue_config(config: object) -> None:
    """The ``config`` of a queue. Raises :class:`InvalidRequest`."""
    if not isinstance(config, Mapping):
        raise InvalidRequest("config", "must be an object")
    _count(config, "config", "max_size", "max_depth", "max_size_bytes", "concurrency")


def _count(policy: Mapping[str, Any], field: str, *names: str) -> None:
    for name in names:
        value = policy.get(name)
        if value is not None and (type(value) is not int or value < 1):
            raise InvalidRequest(f"{field}.{name}", "must be an integer of at least 1")
