"""Tasks in the registry of handlers: workers find them by job type, like those of ``@job``."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any

from asgiref.sync import sync_to_async
from django.apps import apps

from django_ojs.conf import job_defaults
from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.names import check_job_type
from django_ojs.domain.reserved import OWN_PREFIX, is_own
from django_ojs.handlers import registry
from django_ojs.handlers.registry import JobHandler
from django_ojs.tasks_backend.compat import AnyTask, InvalidTask, Task
from django_ojs.tasks_backend.context import TaskContext
from django_ojs.tasks_backend.task import MODES, check_mode, mode_of, policy_of, type_of

_declared: dict[str, AnyTask] = {}
"""By job type the task that was declared first: what results are about."""
_late: set[str] = set()
_started = False


class TaskHandler(JobHandler[..., Any]):
    """Calls the function of a task. ``policy`` are the limits that it declares for its type."""

    def __init__(self, task: AnyTask, job_type: str, policy: Mapping[str, Any]) -> None:
        heartbeat: Any = mode_of(task, "heartbeat")
        soft: Any = mode_of(task, "soft") or "raise"
        isolate = bool(mode_of(task, "isolate"))
        super().__init__(task.func, job_type, heartbeat=heartbeat, soft=soft, isolate=isolate)
        self.policy = policy
        if task.takes_context:
            if not self.wants_context:
                # Its annotation did not say that it is the context.
                others = list(self._signature.parameters.values())[1:]
                self._signature = self._signature.replace(parameters=others)
            self.function = _with_context(task)
            self.wants_context = True


def _with_context(task: AnyTask) -> Any:
    """The function of a task, called with a ``TaskContext`` for the context of its job.

    Not ``Task.call()``: it runs a coroutine in a thread, which would be left behind.
    """
    function: Any = task.func

    @wraps(function)
    def call(context: Any, *args: Any, **kwargs: Any) -> Any:
        return function(TaskContext(context, task.backend), *args, **kwargs)

    @wraps(function)
    async def call_async(context: Any, *args: Any, **kwargs: Any) -> Any:
        given = TaskContext(context, task.backend)
        # It could not be read there when it is asked for.
        await sync_to_async(given.load_ahead)()
        return await function(given, *args, **kwargs)

    return call_async if iscoroutinefunction(function) else call


def declared(job_type: str) -> AnyTask | None:
    """The task of a job type, if this process knows one; imports nothing."""
    return _declared.get(job_type)


def declared_policy(job_type: str) -> Mapping[str, Any]:
    """The limits that a job of the type gets without asking, as its task declares them."""
    handler = registry.handler_of(job_type)
    return handler.policy if isinstance(handler, TaskHandler) else {}


def is_late(job_type: str) -> bool:
    """Whether the task was declared after the start, where no worker would see it."""
    return job_type in _late


def adopt(task: AnyTask) -> str:
    """Register the function of a task as the handler of its job type, which is returned.

    A function that is registered stays. Raises ``InvalidTask`` for a type that is taken or cannot be
    one, and for wrong options.
    """
    job_type = type_of(task)
    try:
        for name in MODES:
            check_mode(name, getattr(task, name, None))
    except InvalidRequest as error:
        raise InvalidTask(f"{task.module_path}: {error}") from error
    known = _declared.get(job_type)
    if known is not None and known.func is task.func and known.takes_context == task.takes_context:
        return job_type
    handler = registry.handler_of(job_type)
    _check(task, job_type, known, handler)
    try:
        policy = policy_of(task)
        defaults = job_defaults(policy, job_type, decorator="@task")
        if handler is None or isinstance(handler, TaskHandler):
            registry.register(TaskHandler(task, job_type, policy), defaults)
    except (InvalidRequest, TypeError) as error:
        raise InvalidTask(str(error)) from error
    _declared[job_type] = task
    if _started:
        _late.add(job_type)
    return job_type


def _check(
    task: AnyTask, job_type: str, known: AnyTask | None, handler: JobHandler[Any, Any] | None
) -> None:
    path = task.module_path
    try:
        check_job_type(job_type, "type")
    except InvalidRequest as error:
        raise InvalidTask(f"{path}: the job type {job_type!r}: {error}: name one, type=...") from error
    if is_own(type=job_type):
        raise InvalidTask(f"{path}: the job type {job_type!r} must not begin with {OWN_PREFIX!r}")
    there = known.module_path if known is not None else handler and registry.origin_of(handler)
    if there and there != path:
        raise InvalidTask(f"the job type {job_type!r} is both {there} and {path}: name one, type=...")
    plain = handler is not None and not isinstance(handler, TaskHandler)
    changed = known is not None and known.takes_context != task.takes_context
    if changed or (plain and task.takes_context):
        raise InvalidTask(f"{path}: {job_type!r} is registered for calls with another context")


def adopt_all(modules: Iterable[str]) -> None:
    """Adopt every task of the modules of these names in the installed apps, of other backends too.

    ``task.using(backend=...)`` may enqueue them here. What was imported is looked through, nothing is
    imported. A task that cannot be adopted is left out: enqueueing it says why.
    """
    global _started
    for app in apps.get_app_configs():
        for name in modules:
            module = sys.modules.get(f"{app.name}.{name}")
            for value in list(vars(module).values()) if module is not None else ():
                if isinstance(value, Task):
                    try:
                        adopt(value)
                    except InvalidTask:
                        continue
    _started = True
