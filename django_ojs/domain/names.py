"""The rules for names: job types, queues and workers. Each raises :class:`InvalidRequest`."""

from __future__ import annotations

import re
from functools import lru_cache

from django_ojs.domain.errors import InvalidRequest

_TYPE = re.compile(r"[a-z][a-z0-9_-]*(?:\.[a-z][a-z0-9_-]*)*", re.ASCII)
_QUEUE = re.compile(r"[a-z0-9][a-z0-9_\-.]*", re.ASCII)


@lru_cache(maxsize=4096)
def check_job_type(value: str, field: str) -> str:
    """A job type: dot-separated words of ``a-z 0-9 _ -``, at most 255 characters."""
    if not isinstance(value, str) or len(value) > 255 or not _TYPE.fullmatch(value):
        raise InvalidRequest(
            field, "must be dot-separated lower-case words such as 'report.generate', at most 255"
        )
    return value[:]  # of a member of an enumeration, its text


@lru_cache(maxsize=4096)
def check_queue_name(value: str, field: str) -> str:
    """A queue name: ``a-z 0-9 _ - .``, starting with a letter or digit, at most 255 characters."""
    if not isinstance(value, str) or len(value) > 255 or not _QUEUE.fullmatch(value):
        raise InvalidRequest(
            field, "must be of a-z, 0-9, '_', '-' and '.', start with a letter or digit, at most 255"
        )
    return value[:]  # of a member of an enumeration, its text


def queue_name(value: object, field: str) -> str:
    """As :func:`check_queue_name`, of a value of any type."""
    if not isinstance(value, str):
        raise InvalidRequest(field, "must be a string")
    return check_queue_name(value, field)


def check_worker_id(name: str, field: str) -> str:
    """A worker's name: at most 255 characters, and fit for one segment of a path."""
    if not 0 < len(name) <= 255 or not name.isprintable():
        raise InvalidRequest(field, "must be 1 to 255 printable characters")
    if "/" in name or name in (".", ".."):
        raise InvalidRequest(field, "must not contain '/', nor be '.' or '..'")
    return name
