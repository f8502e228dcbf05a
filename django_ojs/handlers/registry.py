"""``@job``: handlers by job type, and how to enqueue them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Concatenate, Generic, Literal, ParamSpec, TypeVar, overload

from django.db import transaction

from django_ojs import clock, conf, hooks
from django_ojs.conf import DefaultsLayer, job_defaults
from django_ojs.domain.envelope import Envelope, encode_args, from_call
from django_ojs.domain.errors import HandlerNotFound, InvalidRequest
from django_ojs.domain.job import JobRecord
from django_ojs.domain.names import check_job_type
from django_ojs.handlers.context import JobContext
from django_ojs.services.enqueue import enqueue, enqueue_bulk

P = ParamSpec("P")
R = TypeVar("R")
Duration = int | str | timedelta
HeartbeatMode = Literal["auto", "manual"]


class JobHandler(Generic[P, R]):
    """A function that runs jobs of one type. Calling it runs it here and now."""

    def __init__(
        self,
        function: Callable[..., R],
        job_type: str,
        *,
        heartbeat: HeartbeatMode = "auto",
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.function = function
        self.type = job_type
        self.heartbeat = heartbeat
        self.options = dict(options or {})
        self.is_async = asyncio.iscoroutinefunction(function)
        signature = inspect.signature(function)
        parameters = list(signature.parameters.values())
        if parameters and parameters[0].name in ("self", "cls"):
            raise TypeError(
                f"@job({job_type!r}): {_origin(self)} begins with {parameters[0].name!r}: a job has "
                "nothing to call a method on: decorate a function, or a @staticmethod"
            )
        self.wants_context = bool(parameters) and _is_context(parameters[0])
        if self.wants_context:
            parameters = parameters[1:]
        for parameter in parameters:
            if parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_KEYWORD):
                raise TypeError(
                    f"@job({job_type!r}): the arguments of a job are a list, so {_origin(self)} "
                    f"cannot have the keyword-only parameter {parameter.name!r}"
                )
        self._signature = signature.replace(
            parameters=[one.replace(annotation=one.empty) for one in parameters],
            return_annotation=signature.empty,
        )
        self.__doc__ = function.__doc__
        self.__name__ = getattr(function, "__name__", job_type)
        self.__module__ = function.__module__
        self.__wrapped__ = function

    def __call__(self, *args: Any, **kwargs: Any) -> R:
        """Run the function itself, in this process, without any queue."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<JobHandler {self.type}>"

    def using(self, **options: Any) -> JobHandler[P, R]:
        """The same handler with other enqueue options: ``queue``, ``delay``, ``priority``, ``id``...

        Takes what :func:`django_ojs.enqueue` takes. Raises ``TypeError`` for an unknown option.
        """
        twin: JobHandler[P, R] = JobHandler.__new__(JobHandler)
        twin.__dict__.update(self.__dict__)
        twin.options = {**self.options, **options}
        return twin

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobRecord:
        """Insert a job in the caller's transaction and return its record.

        Raises ``TypeError`` when the arguments do not fit the function, :class:`InvalidRequest`
        when they are not JSON or an option is wrong.
        """
        now = clock.now(conf.current().database)
        return enqueue([self.envelope(args, kwargs, now)], now=now)[0]

    def enqueue_many(self, calls: Iterable[Sequence[Any]]) -> list[JobRecord]:
        """Insert one job per sequence of arguments, all or none."""
        now = clock.now(conf.current().database)
        envelope = from_call(self.type, (), now=now, **self.options)
        return enqueue_bulk(envelope, [encode_args(self._fitting(args)) for args in calls], now=now)

    def enqueue_on_commit(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Insert the job once the outermost transaction has committed; checked here and now."""
        envelope = self.envelope(args, kwargs)
        using = conf.current().database
        transaction.on_commit(lambda: enqueue([envelope]) and None, using=using)

    def envelope(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], now: datetime | None = None
    ) -> Envelope:
        """The validated request for one call."""
        if kwargs:
            bound = self._bound(args, kwargs)
            bound.apply_defaults()
            args = bound.args
        else:
            args = self._fitting(args)
        return from_call(self.type, args, now=now or clock.now(conf.current().database), **self.options)

    def _bound(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> inspect.BoundArguments:
        try:
            return self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.type}: {_origin(self)}{self._signature}: {error}") from None

    def _fitting(self, args: Sequence[Any]) -> Sequence[Any]:
        bounds = self.__dict__.get("_arity")
        if bounds is None:
            kinds = list(self._signature.parameters.values())
            positional = [p for p in kinds if p.kind is not p.VAR_POSITIONAL]
            least = sum(p.default is p.empty for p in positional)
            most = len(positional) if len(positional) == len(kinds) else 1 << 30
            bounds = self.__dict__["_arity"] = (least, most)
        if not bounds[0] <= len(args) <= bounds[1]:
            self._bound(args, {})
        return args if isinstance(args, (list, tuple)) else list(args)


def _is_context(parameter: inspect.Parameter) -> bool:
    annotation = parameter.annotation
    if isinstance(annotation, str):
        return annotation.rsplit(".", 1)[-1] == "JobContext"
    return annotation is JobContext


_handlers: dict[str, JobHandler[Any, Any]] = {}


@overload
def job(
    job_type: str,
    *,
    queue: str | None = None,
    timeout: Duration | None = None,
    total_timeout: Duration | None = None,
    enqueue_ttl: Duration | None = None,
    grace_period: Duration | None = None,
    heartbeat_timeout: Duration | None = None,
    heartbeat: HeartbeatMode = "auto",
    retry: Mapping[str, Any] | None = None,
    priority: int | None = None,
) -> _Decorator: ...
@overload
def job(job_type: Callable[P, R]) -> JobHandler[P, R]: ...
def job(
    job_type: str | Callable[..., Any],
    *,
    queue: str | None = None,
    timeout: Duration | None = None,
    total_timeout: Duration | None = None,
    enqueue_ttl: Duration | None = None,
    grace_period: Duration | None = None,
    heartbeat_timeout: Duration | None = None,
    heartbeat: HeartbeatMode = "auto",
    retry: Mapping[str, Any] | None = None,
    priority: int | None = None,
) -> Any:
    """Register a function, plain or ``async``, as the handler of a job type.

    Durations are seconds, ``timedelta``, ``"10s"`` or ISO 8601 (decision T1). What is given here
    holds for every job of the type, however it is enqueued, unless the request says otherwise. A
    first parameter annotated ``JobContext`` gets the context. ``heartbeat="manual"`` counts only
    ``ctx.heartbeat()``, ``ctx.progress()`` and ``ctx.checkpoint()`` as signs of life, so that a
    stuck handler is seen; ``"auto"`` sees a stopped or frozen process.

    Without an argument the type is ``<app module>.<function name>``. Raises :class:`InvalidRequest`
    for a bad option, ``ValueError`` when another function has the type, ``TypeError`` for a method
    and for keyword-only parameters.
    """
    if callable(job_type):
        module = job_type.__module__.removesuffix(".jobs").removesuffix(".tasks")
        return job(f"{module}.{job_type.__name__}".lower())(job_type)
    check_job_type(job_type, "type")
    if heartbeat not in ("auto", "manual"):
        raise InvalidRequest(f"@job({job_type!r}): heartbeat", "must be one of auto, manual")
    named = {
        "queue": queue,
        "timeout": timeout,
        "total_timeout": total_timeout,
        "enqueue_ttl": enqueue_ttl,
        "grace_period": grace_period,
        "heartbeat_timeout": heartbeat_timeout,
        "retry": retry,
        "priority": priority,
    }
    return _Decorator(job_type, heartbeat, job_defaults(named, job_type))


class _Decorator:
    def __init__(self, job_type: str, heartbeat: HeartbeatMode, defaults: DefaultsLayer) -> None:
        self._type = job_type
        self._heartbeat = heartbeat
        self._defaults = defaults

    @overload
    def __call__(self, function: Callable[Concatenate[JobContext, P], R]) -> JobHandler[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R]) -> JobHandler[P, R]: ...
    def __call__(self, function: Callable[..., R]) -> JobHandler[..., R]:
        handler: JobHandler[..., R] = JobHandler(function, self._type, heartbeat=self._heartbeat)
        register(handler, self._defaults)
        return handler


def register(handler: JobHandler[Any, Any], defaults: DefaultsLayer) -> None:
    """Make a handler known. Raises ``ValueError`` when its type has another one."""
    known = _handlers.get(handler.type)
    if known is not None and _origin(known) != _origin(handler):
        raise ValueError(
            f"job type {handler.type!r} is handled by both {_origin(known)} and {_origin(handler)}"
        )
    _handlers[handler.type] = handler
    hooks.declare_job_type(handler.type, defaults)


def _origin(handler: JobHandler[Any, Any]) -> str:
    function = handler.function
    return f"{function.__module__}.{getattr(function, '__qualname__', function)}"


def find(job_type: str) -> JobHandler[Any, Any]:
    """The handler of a type. Raises :class:`HandlerNotFound`; never imports anything."""
    try:
        return _handlers[job_type]
    except KeyError:
        raise HandlerNotFound(f"no handler is registered for {job_type!r}") from None


def types() -> list[str]:
    """All job types with a handler in this process, in order."""
    return sorted(_handlers)


def handler_of(job_type: str) -> JobHandler[Any, Any] | None:
    """The handler of a type, if there is one."""
    return _handlers.get(job_type)
