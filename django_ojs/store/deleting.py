"""Deleting jobs: for good, with their attempts and what those have logged."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from django_ojs.models import Attempt, AttemptLog, Job


def jobs(ids: Sequence[UUID], *, using: str) -> None:
    """Delete finished jobs, their attempts and the logs of these; to be called under their locks."""
    AttemptLog.objects.using(using).filter(job_id__in=ids)._raw_delete(using)
    Attempt.objects.using(using).filter(job_id__in=ids)._raw_delete(using)
    Job.objects.using(using).filter(pk__in=ids)._raw_delete(using)
