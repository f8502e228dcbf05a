"""The traces that jobs belong to, for their events (OJS events 8)."""

from __future__ import annotations

import re
from collections.abc import Collection
from uuid import UUID

from django.db.models.fields.json import KT
from django.db.models.functions import Left

from django_ojs.models import Job

MAX_TRACE_ID = 255
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_NOT_TEXT = ("{", "[")


def of_jobs(job_ids: Collection[UUID | None], *, using: str) -> dict[UUID | None, str]:
    """The trace ids of those of the jobs that have one: ``meta.trace_id``, or else that in
    ``meta.traceparent``. One that is not text, or longer than 255 characters, counts as none; so does
    ``None`` for a job.
    """
    known = [job_id for job_id in job_ids if job_id is not None]
    if not known:
        return {}
    rows = Job.objects.using(using).filter(pk__in=known)
    said = Left(KT("meta__trace_id"), MAX_TRACE_ID + 1)
    parents = Left(KT("meta__traceparent"), MAX_TRACE_ID + 1)
    found = rows.values_list("pk", said, parents)
    return {pk: trace for pk, own, parent in found if (trace := _trace_id(own, parent)) is not None}


def _trace_id(own: str | None, parent: str | None) -> str | None:
    # MariaDB has the text null for JSON's null.
    if own and own != "null" and len(own) <= MAX_TRACE_ID and not own.startswith(_NOT_TEXT):
        return own
    match = _TRACEPARENT.fullmatch(parent or "")
    return match[1] if match else None
