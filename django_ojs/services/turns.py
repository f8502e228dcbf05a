"""Short turns for the reaper and the promotion: small jobs first, in transactions of bounded size.

Both rewrite a job's whole error history. Sixty histories of half a megabyte take MariaDB seconds, which
other due jobs need not wait for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from uuid import UUID

from django_ojs import clock
from django_ojs.store import selectors
from django_ojs.store.batches import SetAside, in_batches

BATCH = 200
"""The most jobs of one transaction."""
SECONDS = 0.25
"""How long a turn takes at most, beside the transaction in hand when it is over."""
_BYTES = 1 << 20
_LARGE = 16 << 10


def turn(
    due: Iterable[UUID],
    work: Callable[[Sequence[UUID]], int],
    aside: SetAside,
    *,
    room: int,
    whole: bool = False,
    using: str,
) -> int:
    """Do ``work``, one transaction that returns how many jobs it has moved, to the first ``room`` of
    the jobs, but for those that are set aside. Returns how many were moved.

    A turn may end early, unless it is ``whole``; the caller reads again what is due. A job that fails
    alone is set aside.
    """
    ids = aside.without(due, using)[:room]
    sizes = selectors.text_sizes(ids, ("errors",), using=using)
    # A stable sort: among small jobs the longest overdue stays first.
    ids.sort(key=lambda job_id: sizes.get(job_id, 0) > _LARGE)
    moved: list[int] = []
    in_batches(
        ids,
        lambda part: moved.append(work(part)),
        refused=lambda job_id, error: aside.add(job_id, error, using),
        size=lambda job_id: sizes.get(job_id, 0),
        most=BATCH,
        most_bytes=_BYTES,
        until=None if whole else clock.boottime() + SECONDS,
        using=using,
    )
    return sum(moved)
