"""The jobs of the mode ``fake``, which are in no database."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from django_ojs.domain.job import JobRow

_blocks: list[list[JobRow]] = []


@contextmanager
def recording() -> Iterator[None]:
    """Record jobs during the block."""
    _blocks.append([])
    try:
        yield
    finally:
        _blocks.pop()


def add(records: Iterable[JobRow]) -> None:
    """Record these."""
    _blocks[-1].extend(records)


def clear() -> None:
    """Forget what was recorded so far."""
    _blocks[-1].clear()


def jobs() -> list[JobRow] | None:
    """What was recorded so far; ``None`` outside of such a block."""
    return list(_blocks[-1]) if _blocks else None
