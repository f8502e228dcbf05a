"""Tasks of ``django.tasks`` for the workers of the tests, where they are installed."""

from __future__ import annotations

from tests.settings import HAS_TASKS

if HAS_TASKS:
    from tests.workload import django_tasks  # noqa: F401
