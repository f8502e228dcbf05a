"""What a task that takes a context gets."""

from __future__ import annotations

from typing import Any

from django_ojs.handlers.context import JobContext
from django_ojs.tasks_backend.compat import AnyContext, AnyResult, task_backends

BACKEND = "ojs.backend"
"""The key of ``meta`` that names the backend by which a task was enqueued, unless it is the default."""
_set: Any = object.__setattr__


class TaskContext(AnyContext):
    """The context of ``django.tasks``; ``job`` is the :class:`~django_ojs.JobContext`.

    ``job`` has progress, checkpoints, more time and the workflow. ``attempt`` counts from 1.
    ``task_result`` is read from the database when it is first asked for; in a coroutine, before.
    """

    __slots__ = ("_result", "job")
    job: JobContext
    _result: AnyResult | None

    def __init__(self, job: JobContext) -> None:
        _set(self, "job", job)
        _set(self, "_result", None)

    @property
    def task_result(self) -> AnyResult:  # type: ignore[override]
        """The result as it is stored when it is first asked for."""
        return self.load()

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self.job.attempt

    def load(self) -> AnyResult:
        """Read the result, unless it was read."""
        if self._result is None:
            alias = self.job.meta.get(BACKEND, "default")
            _set(self, "_result", task_backends[alias].get_result(self.job.id))
        result: Any = self._result
        found: AnyResult = result
        return found
