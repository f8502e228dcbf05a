"""The databases in which a test looks for jobs: all that have queues and that it may use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from django.db import connections
from django.test.testcases import _DatabaseFailure

from django_ojs import conf


def databases_of(
    what: str, *, using: str | None = None, queues: Iterable[str] | None = None
) -> Sequence[str]:
    """The database that is named, else those of the queues, else all that have queues and that the test
    may use; ``OJS["DATABASE"]`` first.

    Raises ``RuntimeError``, which names ``what`` was called, for one that the test may not use, or if
    it may use none of them.
    """
    settings = conf.current()
    if using is not None:
        return [_usable(using, f"{what} looks in the database {using!r}")]
    if queues is not None:
        named = list(queues)
        of = {settings.databases.of(name): name for name in reversed(named)}
        order = sorted(of, key=lambda alias: named.index(of[alias]))
        return [_usable(alias, f"{what}: the queue {of[alias]!r} is in {alias!r}") for alias in order]
    known = dict.fromkeys((settings.database, *settings.databases.aliases))
    found = [alias for alias in known if may_use(alias)]
    return found or [_usable(settings.database, f"{what} looks in the database {settings.database!r}")]


def left_out() -> Sequence[str]:
    """The databases with queues that the test may not use."""
    return [alias for alias in conf.current().databases.aliases if not may_use(alias)]


def may_use(alias: str) -> bool:
    """Whether the ``databases`` of the test case have it."""
    return not isinstance(connections[alias].cursor, _DatabaseFailure)


def _usable(alias: str, said: str) -> str:
    if may_use(alias):
        return alias
    raise RuntimeError(
        f"{said}, which this test may not use: add it to `databases` of the test case, or to "
        f"`@pytest.mark.django_db(databases=[...])`"
    )
