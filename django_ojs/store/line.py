"""The line of jobs that can be claimed: the place of one in that of its queue, and who is first."""

from __future__ import annotations

from uuid import UUID

from django_ojs.domain.job import JobRow
from django_ojs.domain.states import State
from django_ojs.models import Job
from django_ojs.store.columns import JOB, ColumnType
from django_ojs.store.dialect import cursor, dialect

MOST = 10_000
"""How many jobs of the queue are looked at."""
_ORDER = "queue, priority DESC, enqueued_at, id"
_CLAIMABLE = f"state = '{State.AVAILABLE}' AND NOT held"


def ahead_of(job: JobRow, *, using: str) -> int:
    """How many jobs of its queue are before an available job, up to ``MOST``; one range of an index."""
    sql = dialect(using)
    head = (
        f"SELECT priority, enqueued_at, id FROM {Job._meta.db_table}"
        f" WHERE {_CLAIMABLE} AND queue = %s ORDER BY {_ORDER} LIMIT {MOST}"
    )
    before = (
        "h.priority > %s OR (h.priority = %s AND (h.enqueued_at < %s"
        " OR (h.enqueued_at = %s AND h.id < %s)))"
    )
    since = sql.bind(JOB["enqueued_at"], job.enqueued_at)
    place = [job.priority, job.priority, since, since, sql.bind(JOB["id"], job.id)]
    with cursor(using) as cur:
        cur.execute(f"SELECT COUNT(*) FROM ({head}) h WHERE {before}", [job.queue, *place])
        return int(cur.fetchone()[0])


def first(queue: str, most: int, *, last_first: bool = False, using: str) -> list[UUID]:
    """The jobs that are claimed first, or last, of a queue or of all (``""``); a range of an index."""
    order = "priority, enqueued_at DESC, id DESC" if last_first else "priority DESC, enqueued_at, id"
    sql, where, index, pinned = dialect(using), _CLAIMABLE, "ojs_job_claim_any", list[str]()
    if queue:
        where, index, pinned = f"{where} AND queue = %s", "ojs_job_claim", [queue]
        order = f"queue{' DESC' if last_first else ''}, {order}"
    statement = f"SELECT id FROM {Job._meta.db_table}{sql.by_index(index)} WHERE {where}"
    with cursor(using) as cur:
        cur.execute(f"{statement} ORDER BY {order} LIMIT {most}", pinned)
        return [sql.decode(ColumnType.UUID, job_id) for (job_id,) in cur.fetchall()]
