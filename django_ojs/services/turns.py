"""Short turns for the reaper and the promotion: small jobs first, in transactions of bounded size.

Both rewrite a job's whole error history. Sixty histories of half a megabyte take MariaDB seconds, which
other due jobs need not wait for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

from django_ojs import clock
from django_ojs.store import selectors
from django_ojs.store.batches import SetAside, in_batches

BATCH = 200
"""The most jobs of one transaction."""
SECONDS = 0.25
"""How long a turn takes at most, beside the transaction in hand when it is over."""
_WIDER = 3
"""How often a turn looks further when others hold what is due."""
_BYTES = 1 << 20
_LARGE = 16 << 10


def turn(
    due: Sequence[UUID],
    work: Callable[[Sequence[UUID], int], int],
    aside: SetAside,
    *,
    room: int,
    further: Callable[[int], Sequence[UUID]],
    whole: bool = False,
    using: str,
) -> int:
    """Do ``work`` with what is due until ``room`` jobs are moved, but for those that are set aside.
    Returns how many were moved.

    ``work`` is one transaction, with some of the jobs, that moves so many at most and returns how
    many. Rows that others hold it passes over. While there is room, the turn goes on with what is
    behind them: with the rest of ``due``, which the caller has looked up as far as ``room`` and what
    is set aside, then ``further``, four times as far each time.

    A turn may end early, unless it is ``whole``; the caller reads again what is due. A job that fails
    alone is set aside.
    """
    until = clock.boottime() + SECONDS
    most, widened, moved = room + len(aside), 0, 0
    tried: set[UUID] = set()
    while True:
        ids = [job_id for job_id in aside.without(due, using) if job_id not in tried]
        while ids and moved < room and not (tried and clock.boottime() >= until):
            size = max(BATCH, room - moved) if tried else room
            part, ids = ids[:size], ids[size:]
            tried.update(part)
            moved += _moved(part, work, aside, room - moved, None if whole else until, using)
        if moved >= room or len(due) < most or widened >= _WIDER or clock.boottime() >= until:
            return moved
        widened += 1
        most = 4 * max(most, BATCH)
        due = further(most)


def _moved(
    ids: list[UUID],
    work: Callable[[Sequence[UUID], int], int],
    aside: SetAside,
    room: int,
    until: float | None,
    using: str,
) -> int:
    """Do the work, as far as it goes ``until`` (boottime); returns how many were moved."""
    sizes = selectors.text_sizes(ids, ("errors",), using=using)
    # A stable sort: among small jobs the longest overdue stays first.
    ids.sort(key=lambda job_id: sizes.get(job_id, 0) > _LARGE)
    moved: list[int] = []
    in_batches(
        ids,
        lambda part: moved.append(work(part, room - sum(moved))),
        refused=lambda job_id, error: aside.add(job_id, error, using),
        size=lambda job_id: sizes.get(job_id, 0),
        most=BATCH,
        most_bytes=_BYTES,
        until=until,
        using=using,
    )
    return sum(moved)
