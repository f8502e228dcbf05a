"""The screens of django_ojs in Django's admin; every action calls a service."""

from __future__ import annotations

from django_ojs.admin import (
    audit,
    dashboard,
    failures,
    jobs,
    queues,
    rate_limits,
    records,
    schedules,
    tokens,
    workers,
    workflows,
)

__all__ = [
    "audit",
    "dashboard",
    "failures",
    "jobs",
    "queues",
    "rate_limits",
    "records",
    "schedules",
    "tokens",
    "workers",
    "workflows",
]
