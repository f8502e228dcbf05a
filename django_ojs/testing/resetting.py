"""Forget, after a test, what the process remembers of its rows."""

from __future__ import annotations

from django_ojs.services.enqueue import forget_all_queues
from django_ojs.testing.failing import forget_plans


def forget() -> None:
    """Forget known queues and planned failures: the rows are gone, the plans were for this test."""
    forget_all_queues()
    forget_plans()
