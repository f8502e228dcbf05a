"""What is for django_ojs itself: types, the queue that has no others, keys of ``meta``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.printable import is_plain

OWN_PREFIX = "ojs."
"""How the types of django_ojs itself begin."""
OWN_QUEUE = "ojs-admin"
"""Where the jobs of those types are. A worker takes no others from it."""
OWN_META = "_ojs_"
"""How keys of ``meta`` begin that are for us (OJS security 8)."""
RETRIED_FROM = "retried_from"
"""Where the meta of a requeued job has the id of the old one."""


def is_own(*, type: str = "", queue: str = "") -> bool:
    """Whether the type, or the queue, is for the work of django_ojs itself.

    Such jobs are started in the admin only; clients can neither enqueue nor change them.
    """
    return type.startswith(OWN_PREFIX) or queue == OWN_QUEUE


def check_meta_keys(meta: Mapping[Any, Any], name: str) -> None:
    """Raise :class:`InvalidRequest` for control characters, and for keys that are reserved for us."""
    for key in (key for key in meta if isinstance(key, str)):
        if not is_plain(key):
            raise InvalidRequest(f"{name}.<key>", f"must have no control characters: {key[:80]!r}")
        if key.startswith(OWN_META):
            raise InvalidRequest(f"{name}.<key>", f"must not begin with {OWN_META!r}: {key[:80]!r}")


def check_lineage(meta: Mapping[str, Any]) -> None:
    """Raise :class:`InvalidRequest` for the key that names the job which one was made from."""
    if RETRIED_FROM in meta:
        raise InvalidRequest(f"meta.{RETRIED_FROM}", "is reserved for jobs that were made from others")
