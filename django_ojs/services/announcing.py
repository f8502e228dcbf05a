"""Notifying workers of new jobs on PostgreSQL: with every commit, or sparsely (ADR 45).

PostgreSQL admits one commit with a NOTIFY at a time, so many writers wait for each other. So a process
whose enqueues follow each other closely has workers look again several times after a notification:
jobs of the same queue and type that are committed before the last of these looks need none of their
own. One that enqueues now and then notifies each time.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from django.db import Error, connections

from django_ojs import clock, conf
from django_ojs.domain.lru import LRU
from django_ojs.engines import is_postgresql
from django_ojs.store import contention, inserting
from django_ojs.store.notifications import FEW, LOOKS, MANY, ONCE, payloads, repeated

_SOON_S, _OFTEN = 0.03, 4
"""A notification that follows so many others, each so soon after the one before, serves others."""
_MARGIN_S = 0.005
"""Seconds before the last look of a worker within which a commit may come too late for it."""
_DENSE = 100
"""How many enqueues a second rely on the last notification if there are many."""


class _Notified:
    """The last notification of a payload: when its statement was sent (boottime), how often its
    receivers look again, how many before it followed each other soon, and how many enqueues relied
    on it.
    """

    __slots__ = ("how", "in_a_row", "looks", "relied", "sent_at")

    def __init__(self, sent_at: float, how: str = ONCE, in_a_row: int = 0) -> None:
        self.sent_at, self.how, self.in_a_row, self.relied = sent_at, how, in_a_row, 0
        self.looks = LOOKS[how]

    def serves(self, now: float) -> bool:
        """Whether a commit that begins now need not notify, unless it takes long."""
        return bool(self.looks) and 0 <= now - self.sent_at < self.looks[-2]

    def served(self, now: float) -> bool:
        """Whether what has been committed by now is seen by the last look."""
        return bool(self.looks) and 0 <= now - self.sent_at < self.looks[-1] - _MARGIN_S

    def next(self, now: float) -> _Notified:
        """The notification of a commit now that this one does not serve."""
        passed = now - self.sent_at
        if not self.looks:
            in_a_row = self.in_a_row + 1 if 0 <= passed < _SOON_S else 0
            return _Notified(now, FEW if in_a_row >= _OFTEN else ONCE, in_a_row)
        if self.relied >= _DENSE * self.looks[-2] and 0 <= passed < 2 * self.looks[-1]:
            return _Notified(now, MANY)
        if self.relied and 0 <= passed < 2 * self.looks[-2]:
            return _Notified(now, FEW)
        return _Notified(now)


_notified: LRU[tuple[str, str], _Notified] = LRU(10_000)
"""By database and payload."""


class Announcement(NamedTuple):
    """What a statement is to notify of: its payloads, and what they stand for. ``left_out`` is what was
    notified of just now.
    """

    payloads: Sequence[str] = ()
    made: Sequence[tuple[str, _Notified]] = ()
    left_out: Sequence[str] = ()


NOTHING = Announcement()


def announcement(places: Collection[tuple[str, str]], *, alone: bool, using: str) -> Announcement:
    """What a commit is to notify of: jobs of these queues and types are available with it.

    Unless they are committed ``alone``, at once, everything: when the transaction of a caller commits
    is not known.
    """
    notify = conf.current().notify
    if not places or not notify or not is_postgresql(connections[using]):
        return NOTHING
    found = payloads(places)
    if notify != conf.SPARSE or not alone:
        return Announcement(found)
    now = clock.boottime()
    texts, made, left_out = [], [], []
    for payload in found:
        last = _notified.get((using, payload))
        if last is not None and last.serves(now):
            last.relied += 1
            left_out.append(payload)
        else:
            notified = _Notified(now) if last is None else last.next(now)
            texts.append(repeated(payload, notified.how))
            made.append((payload, notified))
    return Announcement(texts, made, left_out)


def committed(announced: Announcement, *, using: str) -> None:
    """After the commit: remember what was notified of, and notify of what was left out if the commit
    took too long. If that fails workers find the jobs by polling.
    """
    for payload, notified in announced.made:
        _notified.put((using, payload), notified)
    if not announced.left_out:
        return
    now, late = clock.boottime(), []
    for payload in announced.left_out:
        last = _notified.get((using, payload))
        if last is None or not last.served(now):
            late.append(payload)
    if late:
        texts = [repeated(payload, FEW) for payload in late]
        with suppress(Error):
            contention.alone(using, partial(inserting.notify, texts, using=using))
        for payload in late:
            _notified.put((using, payload), _Notified(now, FEW))
