"""Deleting jobs: for good, with their attempts."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from django_ojs.models import Attempt, Job


def jobs(ids: Sequence[UUID], *, using: str) -> None:
    """Delete finished jobs and their attempts; to be called under their locks."""
    Attempt.objects.using(using).filter(job_id__in=ids)._raw_delete(using)
    Job.objects.using(using).filter(pk__in=ids)._raw_delete(using)
