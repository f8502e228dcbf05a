"""The public calls for coroutines."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from asgiref.sync import sync_to_async

P = ParamSpec("P")
R = TypeVar("R")


def twin(call: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """``call`` as a coroutine function.

    It runs in the thread in which Django's ORM works for coroutines, on that thread's connection: as
    with the ORM's own, a transaction does not span an ``await``.
    """
    inner = sync_to_async(call, thread_sensitive=True)

    @wraps(call)
    async def made(*args: P.args, **kwargs: P.kwargs) -> R:
        return await inner(*args, **kwargs)

    made.__name__ = made.__qualname__ = f"a{call.__name__}"
    made.__doc__ = f"``{call.__name__}`` for coroutines. {call.__doc__}"
    return made
