"""Make handlers fail on demand."""

from __future__ import annotations

from collections import deque
from typing import Any

from django_ojs.testing.job_types import type_of

_planned: dict[str, deque[BaseException]] = {}
_always: list[BaseException] = []


def fail_next(job: Any, error: BaseException | type[BaseException], *, times: int = 1) -> None:
    """Have the next attempts of a type raise ``error`` in place of calling their handler.

    ``job`` is a handler, a task or a job type. Holds for :func:`drain` in this process, until the end
    of the test; called again it adds to what is planned.
    """
    _planned.setdefault(type_of(job), deque()).extend([_made(error)] * times)


def fail_all(error: BaseException | type[BaseException]) -> None:
    """Have every attempt of every type raise ``error`` in place of calling its handler.

    As :func:`fail_next`, whose errors are raised first.
    """
    _always[:] = [_made(error)]


def _made(error: BaseException | type[BaseException]) -> BaseException:
    made = error() if isinstance(error, type) else error
    if not isinstance(made, BaseException):
        raise TypeError(f"error: must be an exception or a class of them, not {error!r}")
    return made


def planned(job_type: str) -> BaseException | None:
    """Take the error that the next attempt of the type is to raise."""
    waiting = _planned.get(job_type)
    if waiting:
        return waiting.popleft()
    return _always[0] if _always else None


def forget_plans() -> None:
    """Plan nothing."""
    _planned.clear()
    _always.clear()
