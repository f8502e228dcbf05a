"""The job that runs here, and the middleware that its handler runs in (OJS middleware 4).

Imports no models: ``LOGGING`` may name what uses it, before Django's apps are ready.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from django_ojs import conf
from django_ojs.services.middleware import MiddlewareChain

if TYPE_CHECKING:
    from django_ojs.handlers.context import JobContext

    Next = Callable[[JobContext], Any]
    ExecutionMiddleware = Callable[[JobContext, Next], Any]

running: ContextVar[JobContext | None] = ContextVar("django_ojs.running", default=None)
"""The job that runs here; set by the executor."""

chain: MiddlewareChain[ExecutionMiddleware] = MiddlewareChain(
    "execution", lambda: conf.current().execution_middleware
)
"""The execution middleware of this process; ``django_ojs.execution_middleware``.

Called as ``middleware(context, next)`` in the executor; returns ``next(context)``, the result of the
handler, or another one. What is raised, by it or below it, fails the attempt.
"""


def current() -> JobContext | None:
    """The context of the job that runs here, or ``None``.

    In the handler and what it calls, in its coroutines and ``sync_to_async``. A thread that the handler
    starts has it only when it is run in a copy of the handler's ``contextvars`` context.
    """
    return running.get()


def run(context: JobContext, handle: Next) -> Any:
    """Call ``handle(context)`` inside the middleware; without any, at once."""
    members = chain.members()
    return _call(members, 0, context, handle) if members else handle(context)


def _call(members: Any, place: int, context: JobContext, handle: Next) -> Any:
    if place == len(members):
        return handle(context)
    return members[place][1](context, lambda given: _call(members, place + 1, given, handle))
