"""A task of ``django.tasks`` with the limits, the retry policy and the options of a job."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from functools import cache
from typing import Any, TypeVar, Unpack, overload
from uuid import UUID

from django_ojs import clock, conf
from django_ojs.conf import job_defaults
from django_ojs.domain.arguments import arguments_of
from django_ojs.domain.durations import parse_seconds_ms
from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.options import (
    Duration,
    HeartbeatMode,
    LimitsOptions,
    OnPartition,
    SoftStopMode,
    TaskLimits,
    TaskOptions,
    TaskUsingOptions,
    check_names,
    names,
)
from django_ojs.domain.retry import given_fields
from django_ojs.domain.workflow import Fan, Step
from django_ojs.handlers import registry, workflows
from django_ojs.tasks_backend.compat import AnyResult, AnyTask, task_backends

F = TypeVar("F", bound=Callable[..., Any])
_SHORTHANDS: Mapping[str, frozenset[str]] = {
    "max_attempts": frozenset({"max_attempts"}),
    "backoff": frozenset({"backoff_strategy", "initial_interval"}),
}
"""The short forms, and the fields of ``retry`` that each stands for."""
_DECLARED = names(TaskLimits)
POLICY = tuple(name for name in _DECLARED if name not in _SHORTHANDS)
"""What a task declares for its job type."""
MODES: dict[str, tuple[Any, ...]] = {
    "heartbeat": ("auto", "manual"),
    "soft": ("raise", "flag"),
    "isolate": (True, False),
}
_LIMITS_OF = "__ojs_limits__"


class PreparedTask(AnyTask):
    """A task with room for what its backend computes once, for all calls."""

    __slots__ = ("prepared",)
    prepared: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class OJSTask(PreparedTask):
    """A task whose jobs have their own limits, retry policy, rate limit, ``meta`` and ``tags``.

    ``None`` is not given: what :func:`limits` says of the function holds, then ``OJS["QUEUES"]``, then
    ``OJS["DEFAULTS"]``. ``type`` is the job type, by default the module, without ``tasks``, and the
    function. Durations are seconds, ``timedelta``, ``"10s"`` or ISO 8601. ``max_attempts`` and
    ``backoff`` (``"exponential"``, or a fixed duration) are short for keys of ``retry``. ``heartbeat``
    (``"auto"``, ``"manual"``), ``soft`` (``"raise"``, ``"flag"``), ``isolate`` and ``on_partition``
    (``"continue"``, ``"stop"``) are as for ``@job``, and so are ``unique``, ``throttle`` and
    ``debounce``, which :meth:`using` may change too. ``id`` is a UUIDv7, given by :meth:`using`: the
    same id and content again is the same job. A wrong value raises ``InvalidTask``.
    """

    type: str | None = None
    timeout: Duration | None = None
    grace_period: Duration | None = None
    heartbeat_timeout: Duration | None = None
    total_timeout: Duration | None = None
    enqueue_ttl: Duration | None = None
    attempt_ttl: Duration | None = None
    heartbeat: HeartbeatMode | None = None
    soft: SoftStopMode | None = None
    isolate: bool | None = None
    on_partition: OnPartition | None = None
    retry: Mapping[str, Any] | None = field(default=None, hash=False)
    rate_limit: Mapping[str, Any] | None = field(default=None, hash=False)
    max_attempts: int | None = None
    backoff: Duration | None = None
    unique: Mapping[str, Any] | bool | None = field(default=None, hash=False)
    throttle: Duration | None = None
    debounce: Duration | Mapping[str, Duration] | None = field(default=None, hash=False)
    meta: Mapping[str, Any] | None = field(default=None, hash=False)
    tags: Sequence[str] | None = field(default=None, hash=False)
    id: UUID | str | None = None

    def using(self, **options: Unpack[TaskUsingOptions]) -> OJSTask:
        """A copy with other options; ``None`` leaves one as it is.

        Takes ``priority``, ``queue_name``, ``backend``, ``run_after`` (an aware ``datetime`` or a
        ``timedelta``), ``delay`` (seconds, ``timedelta``, ``"5m"``), ``id``, ``meta``, ``tags``, and
        the limits, the retry policy, ``unique``, ``throttle`` and ``debounce`` of :class:`OJSTask`.
        What ``retry`` names holds over ``max_attempts`` and ``backoff`` of the declaration.
        Raises ``TypeError`` for another name.
        """
        check_names("using()", options, names(TaskUsingOptions))
        changes: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
        if "delay" in changes:
            if "run_after" in changes:
                raise TypeError("using(): delay excludes run_after")
            delay_ms = parse_seconds_ms(changes.pop("delay"), "delay", allow_zero=True)
            changes["run_after"] = timedelta(milliseconds=delay_ms)
        if isinstance(changes.get("run_after"), timedelta):
            queue = changes.get("queue_name", self.queue_name)
            changes["run_after"] += clock.now(conf.current().databases.of(queue))
        for name in _replaced(changes.get("retry")):
            changes.setdefault(name, None)
        return replace(self, **changes)

    def enqueue(self, *args: Any, **kwargs: Any) -> AnyResult:
        """Insert a job in the caller's transaction. Raises as :meth:`OJSBackend.enqueue`."""
        try:
            ready = self.prepared
            backend: Any = (
                ready.backend if ready.params is task_backends.settings[self.backend] else None
            )
        except (AttributeError, KeyError):
            backend = None
        # Looking the backend up in a thread costs as much as making the result.
        chosen: Any = backend or self.get_backend()
        found: AnyResult = chosen.enqueue(self, args, kwargs)
        return found

    def step(self, *args: Any, **kwargs: Any) -> Step:
        """A step of a workflow with these arguments, checked here and now. See ``django_ojs.step``.

        Raises ``TypeError`` when they do not fit the function.
        """
        job_type, _ = self.__ojs_call__()
        registry.find(job_type).arguments(args, kwargs)
        return workflows.step(self, args, kwargs=kwargs)

    def steps(self, calls: Iterable[Sequence[Any] | Mapping[str, Any]]) -> Fan:
        """One member of a group per sequence, or mapping, of arguments. Raises as :meth:`step`."""
        job_type, options = self.__ojs_call__()
        handler = registry.find(job_type)
        given = list(map(arguments_of, calls))
        for args, kwargs in given:
            handler.arguments(args, kwargs)
        return workflows.fan(job_type, given, options)

    def __ojs_call__(self) -> tuple[str, dict[str, Any]]:
        """The job type and the options of a call: what ``django_ojs.step`` asks of a task."""
        backend: Any = task_backends[self.backend]
        found: tuple[str, dict[str, Any]] = backend.call_of(self)
        return found


def _replaced(retry: object) -> list[str]:
    """The short forms of which a policy gives a part itself."""
    given = given_fields(retry) if isinstance(retry, Mapping) else frozenset()
    return [name for name, parts in _SHORTHANDS.items() if given & parts]


def type_of(task: AnyTask) -> str:
    """The job type of a task: given, or made of its module and its function, as for a bare ``@job``."""
    given = getattr(task, "type", None)
    if given is not None:
        return str(given)
    module = task.func.__module__.removesuffix(".jobs").removesuffix(".tasks")
    return f"{module}.{task.func.__name__}".lower()


def policy_of(task: AnyTask) -> dict[str, Any]:
    """The limits and the retry policy of a task: its own over those of :func:`limits`."""
    given = getattr(task.func, _LIMITS_OF, {})
    found = {name: value for name, value in given.items() if name not in MODES}
    own = {name: getattr(task, name, None) for name in _DECLARED}
    return _written_out({**found, **{name: value for name, value in own.items() if value is not None}})


def mode_of(task: AnyTask, name: str) -> Any:
    """``heartbeat``, ``soft`` or ``isolate`` of a task: its own, or that of :func:`limits`."""
    own = getattr(task, name, None)
    return getattr(task.func, _LIMITS_OF, {}).get(name) if own is None else own


def check_mode(name: str, value: object) -> None:
    """Raise :class:`InvalidRequest` for a mode that there is not."""
    if value is not None and value not in MODES[name]:
        raise InvalidRequest(name, f"must be one of {', '.join(map(str, MODES[name]))}")


def limits(**options: Unpack[LimitsOptions]) -> Callable[[F], F]:
    """Declare limits, retry policy, ``heartbeat``, ``soft`` and ``isolate`` of a task on its function,
    below ``@task``.

    For reusable apps: other backends ignore them. Raises :class:`InvalidRequest` for a bad one,
    ``TypeError`` for an unknown one.
    """
    check_names("@limits()", options, names(LimitsOptions))
    for name in MODES:
        check_mode(name, options.get(name))
    given = _written_out({name: value for name, value in options.items() if value is not None})

    def declare(function: F) -> F:
        own = {name: value for name, value in given.items() if name not in MODES}
        job_defaults(own, function.__qualname__, decorator="@limits")
        setattr(function, _LIMITS_OF, given)
        return function

    return declare


def _written_out(given: dict[str, Any]) -> dict[str, Any]:
    """The options with the short forms as parts of ``retry``."""
    attempts, backoff = (given.pop(name, None) for name in _SHORTHANDS)
    short: dict[str, Any] = {}
    if attempts is not None:
        short["max_attempts"] = attempts
    if backoff == "exponential":
        short["backoff_strategy"] = "exponential"
    elif callable(backoff):
        raise InvalidRequest("backoff", "must be 'exponential' or a duration: the server decides")
    elif backoff is not None:
        short |= {"backoff_strategy": "constant", "initial_interval": backoff}
    return {**given, "retry": {**given.get("retry", {}), **short}} if short else given


@overload
def task(function: Callable[..., Any]) -> OJSTask: ...
@overload
def task(**options: Unpack[TaskOptions]) -> Callable[[Callable[..., Any]], OJSTask]: ...
def task(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """``@task`` with the options of :class:`OJSTask`, also on Django 6.0, whose own takes none.

    Takes ``priority``, ``queue_name``, ``backend`` and ``takes_context`` as Django's does. Raises
    ``TypeError`` for an unknown option, ``InvalidTask`` for a bad one.
    """
    for name in ("run_after", "id"):
        if name in options:
            raise TypeError(
                f"{name} cannot be defined statically with the @task decorator. "
                f"Use .using({name}=...) to set it dynamically."
            )

    def decorate(decorated: Callable[..., Any]) -> Any:
        given = {"priority": 0, "queue_name": "default", "backend": "default", "takes_context": False}
        given |= options
        # A backend of another project in a test must not make the import fail.
        task_class: Any = task_backends[str(given["backend"])].task_class
        known = {one.name for one in fields(task_class)}
        if not issubclass(task_class, OJSTask):
            ours = _all() - known
            given = {name: value for name, value in given.items() if name not in ours}
        return task_class(func=decorated, run_after=None, **given)

    return decorate if function is None else decorate(function)


@cache
def _all() -> frozenset[str]:
    return frozenset(one.name for one in fields(OJSTask))
