"""The place of a waiting job in the line of its queue."""

from __future__ import annotations

from django_ojs.domain.job import JobRow
from django_ojs.domain.states import State
from django_ojs.models import Job
from django_ojs.store.columns import JOB
from django_ojs.store.dialect import cursor, dialect

MOST = 10_000
"""How many jobs of the queue are looked at."""
_ORDER = "queue, priority DESC, enqueued_at, id"


def ahead_of(job: JobRow, *, using: str) -> int:
    """How many jobs of its queue are before an available job, up to ``MOST``; one range of an index."""
    sql = dialect(using)
    head = (
        f"SELECT priority, enqueued_at, id FROM {Job._meta.db_table}"
        f" WHERE state = '{State.AVAILABLE}' AND NOT held AND queue = %s ORDER BY {_ORDER} LIMIT {MOST}"
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
