"""Remove what a test has enqueued so far."""

from __future__ import annotations

from django.db import models, transaction

from django_ojs.models import (
    Attempt,
    AttemptLog,
    Event,
    Job,
    LeaseBeat,
    RateLimit,
    RateLimitDue,
    RateLimitPlace,
    RateLimitStart,
    Schedule,
    ScheduleRun,
    UniqueKey,
    Workflow,
    WorkflowStep,
)
from django_ojs.testing import recorded
from django_ojs.testing.reach import databases_of

CLEARED: tuple[type[models.Model], ...] = (
    Attempt,
    AttemptLog,
    Event,
    LeaseBeat,
    RateLimitDue,
    RateLimitPlace,
    RateLimitStart,
    RateLimit,
    ScheduleRun,
    Schedule,
    UniqueKey,
    WorkflowStep,
    Job,
    Workflow,
)


def clear(*, using: str | None = None) -> None:
    """Remove every job and workflow, with their attempts, events, unique keys, rate limits and
    schedules: what follows begins anew.

    For what a test sets up. Known queues, workers and planned failures stay.
    """
    if recorded.jobs() is not None:
        recorded.clear()
        return
    for alias in databases_of("clear()", using=using):
        with transaction.atomic(using=alias):
            for model in CLEARED:
                model._default_manager.using(alias).all()._raw_delete(alias)
