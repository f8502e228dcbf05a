"""Handlers of django-tasks."""

from __future__ import annotations

from django_tasks import task

from benchmarks.harness import records


@task()
def noop(number: int, label: str) -> None:
    records.note(number)
