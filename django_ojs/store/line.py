"""The line of jobs that can be claimed: the place of one in that of its queue, and who is first."""

from __future__ import annotations

from uuid import UUID

from django_ojs.domain.job import JobRow
from django_ojs.store.columns import JOB, ColumnType
from django_ojs.store.dialect import cursor, dialect
from django_ojs.store.sources import Lane

MOST = 10_000
"""How many jobs of the queue are looked at."""


def ahead_of(job: JobRow, *, using: str) -> int:
    """How many jobs of its queue are before an available job, up to ``MOST``; one range of an index."""
    sql = dialect(using)
    columns = "j.priority, j.enqueued_at, j.id"
    head, pinned = Lane(job.queue).select(columns, f"LIMIT {MOST}", sql)
    before = (
        "h.priority > %s OR (h.priority = %s AND (h.enqueued_at < %s"
        " OR (h.enqueued_at = %s AND h.id < %s)))"
    )
    since = sql.bind(JOB["enqueued_at"], job.enqueued_at)
    place = [job.priority, job.priority, since, since, sql.bind(JOB["id"], job.id)]
    with cursor(using) as cur:
        cur.execute(f"SELECT COUNT(*) FROM ({head}) h WHERE {before}", [*pinned, *place])
        return int(cur.fetchone()[0])


def first(queue: str, most: int, *, last_first: bool = False, using: str) -> list[UUID]:
    """The jobs that are claimed first, or last, of a queue or of all (``""``); a range of an index."""
    sql = dialect(using)
    statement, pinned = Lane(queue or None).select("j.id", f"LIMIT {most}", sql, last_first=last_first)
    with cursor(using) as cur:
        cur.execute(statement, pinned)
        return [sql.decode(ColumnType.UUID, job_id) for (job_id,) in cur.fetchall()]
