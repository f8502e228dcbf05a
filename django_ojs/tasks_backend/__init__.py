"""Jobs as tasks of Django: a backend for ``django.tasks`` (docs/howto/django-tasks.md)."""

from __future__ import annotations

from django_ojs.tasks_backend.backend import OJSBackend
from django_ojs.tasks_backend.context import TaskContext
from django_ojs.tasks_backend.task import OJSTask, limits, task

__all__ = ["OJSBackend", "OJSTask", "TaskContext", "limits", "task"]
