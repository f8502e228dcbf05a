"""What a test may name a type of job by."""

from __future__ import annotations

from typing import Any

from django_ojs.handlers.registry import JobHandler


def type_of(job: Any) -> str:
    """The job type of a handler, a task of ``django.tasks`` or a string. Raises ``TypeError``."""
    if isinstance(job, str):
        return job
    if isinstance(job, JobHandler):
        return job.type
    if hasattr(job, "__ojs_call__"):
        return str(job.__ojs_call__()[0])
    raise TypeError(
        f"{job!r} is no handler, no task and no job type: name the function that @job decorates"
    )
