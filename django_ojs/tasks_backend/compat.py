"""``django.tasks`` of Django 6.0 and newer, or the package ``django-tasks`` on Django 5.2.

The one place that knows which. Where both are there, Django's own is meant.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import django

OWN = django.VERSION >= (6, 0)
"""Whether Django has tasks itself."""

if TYPE_CHECKING or OWN:
    from django.tasks import task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskError, TaskResult, TaskResultStatus
    from django.tasks.base import TaskContext as DjangoTaskContext
    from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist
    from django.tasks.signals import (
        log_task_enqueued,
        log_task_finished,
        log_task_started,
        logger,
        task_enqueued,
        task_finished,
        task_started,
    )
    from django.utils.json import normalize_json
elif find_spec("django_tasks") is None:
    raise ImportError(
        "django_ojs.tasks_backend needs Django 6.0 or newer, or on Django 5.2 the package "
        "django-tasks: pip install 'django-ojs[tasks]'"
    )
else:
    from django_tasks import task_backends
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import Task, TaskError, TaskResult, TaskResultStatus
    from django_tasks.base import TaskContext as DjangoTaskContext
    from django_tasks.exceptions import TaskResultDoesNotExist

    try:
        from django_tasks.exceptions import InvalidTask
    except ImportError:  # renamed after 0.12
        from django_tasks.exceptions import InvalidTaskError as InvalidTask
    from django_tasks.signals import (
        log_task_enqueued,
        log_task_finished,
        log_task_started,
        logger,
        task_enqueued,
        task_finished,
        task_started,
    )
    from django_tasks.utils import normalize_json

if TYPE_CHECKING:
    AnyTask = Task[..., Any]
    AnyResult = TaskResult[..., Any]
    AnyContext = DjangoTaskContext[..., Any]
else:
    AnyTask, AnyResult, AnyContext = Task, TaskResult, DjangoTaskContext

__all__ = [
    "OWN",
    "AnyContext",
    "AnyResult",
    "AnyTask",
    "BaseTaskBackend",
    "InvalidTask",
    "Task",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultStatus",
    "log_task_enqueued",
    "log_task_finished",
    "log_task_started",
    "logger",
    "normalize_json",
    "task_backends",
    "task_enqueued",
    "task_finished",
    "task_started",
]
