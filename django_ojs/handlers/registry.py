"""``@job``: handlers by job type, and how to enqueue them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, Unpack, overload

from asgiref.sync import sync_to_async
from django.db import transaction

from django_ojs import clock, hooks
from django_ojs.conf import DefaultsLayer, job_defaults
from django_ojs.domain.arguments import Arguments
from django_ojs.domain.envelope import Envelope, encode_calls, from_call
from django_ojs.domain.errors import HandlerNotFound, InvalidRequest
from django_ojs.domain.job_record import JobRecord, shown
from django_ojs.domain.names import check_job_type
from django_ojs.domain.options import (
    HeartbeatMode,
    SoftStopMode,
    TypeOptions,
    UsingOptions,
    check_names,
    names,
)
from django_ojs.domain.suggestions import did_you_mean
from django_ojs.domain.workflow import Fan, Step
from django_ojs.handlers import workflows
from django_ojs.handlers.context import JobContext
from django_ojs.services import databases
from django_ojs.services.enqueue import enqueue, enqueue_bulk

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
_USING = names(UsingOptions)


class JobHandler(Generic[P, R]):
    """A function that runs jobs of one type. Calling it runs it in this process."""

    def __init__(
        self,
        function: Callable[..., R],
        job_type: str,
        *,
        heartbeat: HeartbeatMode | None = None,
        soft: SoftStopMode = "raise",
        isolate: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.function = function
        self.type = job_type
        self.heartbeat = heartbeat
        self.soft = soft
        self.isolate = isolate
        self.options = dict(options or {})
        self.is_async = asyncio.iscoroutinefunction(function)
        signature = inspect.signature(function)
        parameters = list(signature.parameters.values())
        if parameters and parameters[0].name in ("self", "cls"):
            raise TypeError(
                f"@job({job_type!r}): {origin_of(self)} begins with {parameters[0].name!r}: a job has "
                "nothing to call a method on: decorate a function, or a @staticmethod"
            )
        self.wants_context = bool(parameters) and _is_context(parameters[0])
        if self.wants_context:
            if parameters[0].kind is inspect.Parameter.KEYWORD_ONLY:
                raise TypeError(
                    f"@job({job_type!r}): {origin_of(self)} takes its context as the keyword-only "
                    f"parameter {parameters[0].name!r}: put it in front of the *"
                )
            parameters = parameters[1:]
        self._signature = signature.replace(
            parameters=[one.replace(annotation=one.empty) for one in parameters],
            return_annotation=signature.empty,
        )
        self.__doc__ = function.__doc__
        self.__name__ = getattr(function, "__name__", job_type)
        self.__module__ = function.__module__
        self.__wrapped__ = function

    def __call__(self, *args: Any, **kwargs: Any) -> R:
        """Run the function directly, without a queue."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<JobHandler {self.type}>"

    def call(self, context: JobContext) -> Any:
        """Call the function with the arguments that the context has; a coroutine function returns a
        coroutine.
        """
        values = (context, *context.args) if self.wants_context else tuple(context.args)
        return self.function(*values, **context.kwargs)

    async def acall(self, context: JobContext) -> Any:
        """:meth:`call` of a coroutine function, awaited."""
        return await self.call(context)

    def using(self, **options: Unpack[UsingOptions]) -> JobHandler[P, R]:
        """Return a copy with other enqueue options: ``queue``, ``delay``, ``priority``, ``id``...

        Takes what :func:`django_ojs.enqueue` takes. Raises ``TypeError`` for an unknown option.
        """
        check_names("using()", options, _USING)
        twin: JobHandler[P, R] = JobHandler.__new__(JobHandler)
        twin.__dict__.update(self.__dict__)
        twin.options = {**self.options, **options}
        return twin

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobRecord:
        """Insert a job in the caller's transaction and return its record.

        Raises ``TypeError`` when the arguments do not fit the function, :class:`InvalidRequest`
        when they are not JSON or an option is wrong.
        """
        now = clock.now(self._database())
        return JobRecord(enqueue([self.envelope(args, kwargs, now)], now=now)[0])

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobRecord:
        """:meth:`enqueue` for coroutines, in the thread of Django's ORM."""
        return await sync_to_async(self.enqueue)(*args, **kwargs)

    async def aenqueue_many(
        self, calls: Iterable[Sequence[Any] | Mapping[str, Any]]
    ) -> list[JobRecord]:
        """:meth:`enqueue_many` for coroutines."""
        return await sync_to_async(self.enqueue_many)(calls)

    def enqueue_many(self, calls: Iterable[Sequence[Any] | Mapping[str, Any]]) -> list[JobRecord]:
        """Insert one job for each sequence, or mapping, of arguments, all or none."""
        now = clock.now(self._database())
        envelope = from_call(self.type, (), now=now, **self.options)
        envelope, texts = encode_calls(envelope, map(self._call, calls))
        return shown(enqueue_bulk(envelope, texts, now=now))

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the arguments that go by position."""
        every = self._signature.parameters.values()
        return tuple(p.name for p in every if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD))

    def step(self, *args: P.args, **kwargs: P.kwargs) -> Step:
        """A step of a workflow, checked here and now; options by :meth:`using`, also ``when``.

        Raises as :meth:`enqueue`. See :func:`django_ojs.step`.
        """
        fitting, named = self.arguments(args, kwargs)
        return workflows.step(self.type, fitting, kwargs=named, **self.options)

    def steps(self, calls: Iterable[Sequence[Any] | Mapping[str, Any]]) -> Fan:
        """One member of a group per sequence, or mapping, of arguments."""
        return workflows.fan(self.type, map(self._call, calls), self.options)

    def enqueue_on_commit(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Insert the job after the outermost transaction of its database commits. Arguments are checked
        now.
        """
        envelope = self.envelope(args, kwargs)
        transaction.on_commit(lambda: enqueue([envelope]) and None, using=self._database())

    def envelope(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], now: datetime | None = None
    ) -> Envelope:
        """Validate the request for one call."""
        fitting, named = self.arguments(args, kwargs)
        now = now or clock.now(self._database())
        return from_call(self.type, fitting, now=now, kwargs=named, **self.options)

    def _database(self) -> str:
        return databases.of_call(self.type, self.options.get("queue"))

    def arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Arguments:
        """The arguments of a call as they are sent: by position where that is possible, so that every
        language can read them. Raises ``TypeError`` when they do not fit the function.
        """
        if not kwargs:
            return self._fitting(args), kwargs
        bound = self._bound(args, kwargs)
        return bound.args, bound.kwargs

    def _call(self, call: Sequence[Any] | Mapping[str, Any]) -> Arguments:
        if isinstance(call, Mapping):
            return self.arguments((), call)
        return self._fitting(call), {}

    def _bound(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> inspect.BoundArguments:
        try:
            return self._signature.bind(*args, **kwargs)
        except TypeError as error:
            message = f"{self.type}: {origin_of(self)}{self._signature}: {error}"
            raise TypeError(message + self._nearest(kwargs)) from None

    def _nearest(self, kwargs: Mapping[str, Any]) -> str:
        parameters = self._signature.parameters.values()
        if any(one.kind is one.VAR_KEYWORD for one in parameters):
            return ""
        known = [one.name for one in parameters]
        unknown = [name for name in kwargs if name not in known]
        return f": {did_you_mean(unknown[0], known, 'parameters')}" if unknown and known else ""

    def _fitting(self, args: Sequence[Any]) -> Sequence[Any]:
        if not isinstance(args, (list, tuple)):
            if isinstance(args, (str, bytes)) or not isinstance(args, Sequence):
                raise InvalidRequest("args", "must be a list or a tuple")
            args = list(args)
        bounds = self.__dict__.get("_arity")
        if bounds is None:
            every = list(self._signature.parameters.values())
            positional = [p for p in every if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
            least = sum(p.default is p.empty for p in positional)
            most = 1 << 30 if any(p.kind is p.VAR_POSITIONAL for p in every) else len(positional)
            if any(p.kind is p.KEYWORD_ONLY and p.default is p.empty for p in every):
                most = -1  # nothing fits without keywords
            bounds = self.__dict__["_arity"] = (least, most)
        if not bounds[0] <= len(args) <= bounds[1]:
            self._bound(args, {})
        return args


def _is_context(parameter: inspect.Parameter) -> bool:
    annotation = parameter.annotation
    if isinstance(annotation, str):
        return annotation.rsplit(".", 1)[-1] == "JobContext"
    return annotation is JobContext


class _WithContext(Protocol[P, R_co]):
    """A function whose context is named ``ctx``: with ``**kwargs`` behind it, that name could be given
    by keyword too, so that for a type checker it is no ``Concatenate[JobContext, P]``.
    """

    def __call__(self, ctx: JobContext, *args: P.args, **kwargs: P.kwargs) -> R_co: ...


_handlers: dict[str, JobHandler[Any, Any]] = {}


@overload
def job(job_type: str, **options: Unpack[TypeOptions]) -> _Decorator: ...
@overload
def job(job_type: Callable[Concatenate[JobContext, P], R]) -> JobHandler[P, R]: ...
@overload
def job(job_type: _WithContext[P, R]) -> JobHandler[P, R]: ...
@overload
def job(job_type: Callable[P, R]) -> JobHandler[P, R]: ...
def job(job_type: str | Callable[..., Any], **options: Any) -> Any:
    """Register a function, plain or ``async``, as the handler of a job type.

    Durations are seconds, ``timedelta``, ``"10s"`` or ISO 8601 (decision T1). The options are the
    defaults of every job of the type, however it is enqueued; ``rate_limit`` is how many of its key may
    run, or start, at once (OJS rate limiting 6). A first parameter annotated
    ``JobContext`` gets the context. With ``heartbeat="manual"`` only ``ctx.heartbeat()``,
    ``ctx.progress()`` and ``ctx.checkpoint()`` are signs of life, so that a stuck handler is detected;
    ``"auto"``, unless ``runworker --heartbeat`` names another default, detects a stopped or frozen
    process. With ``on_partition="stop"``, for what must never
    overlap, a worker stops the handler itself when no heartbeat has arrived for half of the heartbeat
    timeout, and kills it a second before the timeout ends; with ``"continue"`` the handler goes on.
    With ``soft="flag"`` nothing is raised in a handler that must stop: ``ctx.cancelled`` is true from
    then on, and what it returns within its grace period counts. With ``isolate=True`` a coroutine has
    a process of its own even where others share one (``ASYNC_SLOTS``).

    Without an argument the type is ``<app module>.<function name>``. Raises :class:`InvalidRequest`
    for a bad option, ``ValueError`` if another function has the type, ``TypeError`` for an unknown
    option and for a method.
    """
    if callable(job_type):
        module = job_type.__module__.removesuffix(".jobs").removesuffix(".tasks")
        return job(f"{module}.{job_type.__name__}".lower())(job_type)
    check_job_type(job_type, "type")
    check_names(f"@job({job_type!r})", options, names(TypeOptions))
    heartbeat = options.pop("heartbeat", None)
    if heartbeat not in (None, "auto", "manual"):
        raise InvalidRequest(f"@job({job_type!r}): heartbeat", "must be one of auto, manual")
    soft = options.pop("soft", "raise")
    if soft not in ("raise", "flag"):
        raise InvalidRequest(f"@job({job_type!r}): soft", "must be one of raise, flag")
    isolate = options.pop("isolate", False)
    if not isinstance(isolate, bool):
        raise InvalidRequest(f"@job({job_type!r}): isolate", "must be one of True, False")
    modes = {"heartbeat": heartbeat, "soft": soft, "isolate": isolate}
    return _Decorator(job_type, modes, job_defaults(options, job_type))


class _Decorator:
    def __init__(self, job_type: str, modes: dict[str, Any], defaults: DefaultsLayer) -> None:
        self._type = job_type
        self._modes = modes
        self._defaults = defaults

    @overload
    def __call__(self, function: Callable[Concatenate[JobContext, P], R]) -> JobHandler[P, R]: ...
    @overload
    def __call__(self, function: _WithContext[P, R]) -> JobHandler[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R]) -> JobHandler[P, R]: ...
    def __call__(self, function: Callable[..., R]) -> JobHandler[..., R]:
        handler: JobHandler[..., R] = JobHandler(function, self._type, **self._modes)
        register(handler, self._defaults)
        return handler


def register(handler: JobHandler[Any, Any], defaults: DefaultsLayer) -> None:
    """Register a handler. Raises ``ValueError`` if its type has another one."""
    known = _handlers.get(handler.type)
    if known is not None and origin_of(known) != origin_of(handler):
        raise ValueError(
            f"job type {handler.type!r} is handled by both {origin_of(known)} and {origin_of(handler)}"
        )
    _handlers[handler.type] = handler
    hooks.declare_job_type(handler.type, replace(defaults, parameters=handler.parameters))


def origin_of(handler: JobHandler[Any, Any]) -> str:
    function = handler.function
    return f"{function.__module__}.{getattr(function, '__qualname__', function)}"


def find(job_type: str) -> JobHandler[Any, Any]:
    """Return the handler of a type. Raises :class:`HandlerNotFound`; imports nothing."""
    try:
        return _handlers[job_type]
    except KeyError:
        raise HandlerNotFound(f"no handler is registered for {job_type!r}") from None


def types() -> list[str]:
    """The job types with a handler in this process, sorted."""
    return sorted(_handlers)


def handler_of(job_type: str) -> JobHandler[Any, Any] | None:
    """Return the handler of a type, or ``None``."""
    return _handlers.get(job_type)
