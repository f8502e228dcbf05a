"""Notifying workers of new jobs on PostgreSQL: with every commit, or sparsely (ADR 45).

PostgreSQL admits one commit with a NOTIFY at a time, so many writers wait for each other. But a worker
looks again twice after a notification: jobs of the same queue and type that are committed before the
last of these looks need none of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from typing import NamedTuple

from django.db import Error, connections

from django_ojs import clock, conf
from django_ojs.domain.lru import LRU
from django_ojs.engines import is_postgresql
from django_ojs.store import inserting
from django_ojs.store.contention import alone, is_in_transaction
from django_ojs.store.notifications import AGAIN_AFTER, payloads

_QUIET_S = AGAIN_AFTER[0]
"""Seconds after a notification in which a further one is left out."""
_IN_TIME_S = AGAIN_AFTER[-1] - 0.005
"""Seconds after a notification until which a commit is sure to be seen by the last look."""
_notified_at: LRU[tuple[str, str], float] = LRU(10_000)
"""By database and payload: when the statement that notified last was sent (boottime)."""


class Announcement(NamedTuple):
    """What a statement is to notify of, and what it leaves out as that was notified of just now."""

    payloads: Sequence[str] = ()
    left_out: Sequence[str] = ()
    sent_at: float | None = None


NOTHING = Announcement()


def announcement(places: Collection[tuple[str, str]], *, using: str) -> Announcement:
    """What a commit is to notify of: jobs of these queues and types are available with it.

    In a transaction of the caller everything: when it commits is not known.
    """
    notify = conf.current().notify
    connection = connections[using]
    if not places or not notify or not is_postgresql(connection):
        return NOTHING
    found = payloads(places)
    if notify != conf.SPARSE or is_in_transaction(connection):
        return Announcement(found)
    now = clock.boottime()
    due = [one for one in found if not 0 <= now - _last(using, one) < _QUIET_S]
    left_out = [one for one in found if one not in due] if len(due) < len(found) else ()
    return Announcement(due, left_out, now)


def committed(made: Announcement, *, using: str) -> None:
    """After the commit: remember what was notified of, and notify of what was left out if the commit
    took too long. If that fails workers find the jobs by polling.
    """
    if made.sent_at is None:
        return
    for one in made.payloads:
        _notified_at.put((using, one), made.sent_at)
    if not made.left_out:
        return
    now = clock.boottime()
    late = [one for one in made.left_out if not 0 <= now - _last(using, one) < _IN_TIME_S]
    if late:
        with suppress(Error):
            alone(using, partial(inserting.notify, late, using=using))
        for one in late:
            _notified_at.put((using, one), now)


def _last(using: str, payload: str) -> float:
    return _notified_at.get((using, payload)) or -inf
