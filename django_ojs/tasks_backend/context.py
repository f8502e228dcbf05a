"""What a task that takes a context gets."""

from __future__ import annotations

from typing import Any

from django_ojs.handlers.context import JobContext
from django_ojs.tasks_backend.compat import AnyContext, AnyResult, task_backends

BACKEND = "ojs.backend"
"""The key of ``meta`` that names the backend by which a task was enqueued, unless it is the default.

Who enqueues the job type in another way names none either: what its task declares holds then.
"""
_set: Any = object.__setattr__


class TaskContext(AnyContext):
    """The context of ``django.tasks``; ``job`` is the :class:`~django_ojs.JobContext`.

    ``job`` has progress, checkpoints, more time and the workflow. ``attempt`` counts from 1.
    ``task_result`` is read from the database when it is first asked for; in a coroutine, before.
    """

    __slots__ = ("_backend", "_result", "_unread", "job")
    job: JobContext
    _backend: str
    _result: AnyResult | None
    _unread: Exception | None

    def __init__(self, job: JobContext, backend: str) -> None:
        _set(self, "job", job)
        _set(self, "_backend", backend)
        _set(self, "_result", None)
        _set(self, "_unread", None)

    @property
    def task_result(self) -> AnyResult:  # type: ignore[override]
        """The result as it is stored when it is first asked for.

        Raises what kept it from being read, ``TaskResultDoesNotExist`` for one.
        """
        if self._unread is not None:
            raise self._unread
        return self.load()

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self.job.attempt

    def load_ahead(self) -> None:
        """Read the result before it is asked for; what that raises is raised when it is."""
        try:
            self.load()
        except Exception as error:
            _set(self, "_unread", error)

    def load(self) -> AnyResult:
        """Read the result, unless it was read."""
        if self._result is None:
            alias = self.job.meta.get(BACKEND, self._backend)
            _set(self, "_result", task_backends[alias].get_result(self.job.id))
        result: Any = self._result
        found: AnyResult = result
        return found
