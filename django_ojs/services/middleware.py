"""Middleware: what every job passes through before it is stored, and what every handler runs in (OJS
middleware 3 and 5).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Generic, TypeVar

from django.conf import settings
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from django_ojs import clock, conf
from django_ojs.domain.enqueue_request import EnqueueRequest
from django_ojs.domain.envelope import Envelope
from django_ojs.domain.job import JobRow

Next = Callable[[EnqueueRequest], EnqueueRequest | None]
EnqueueMiddleware = Callable[[EnqueueRequest, Next], EnqueueRequest | None]
"""Called as ``middleware(request, next)``; returns ``next(request)``, perhaps of a changed request.

``None`` drops the job, an exception aborts the enqueue. Two attributes are optional. With ``shared =
True`` what it does depends on nothing in which the jobs of an ``enqueue_many`` differ, their arguments:
it is called once for all of them. ``around(request, count, store)`` is called once for each call that
enqueues, with its first request and the number of its jobs; it returns ``store()``, the records.
"""

M = TypeVar("M", bound=Callable[..., Any])
Members = tuple[tuple[str, M], ...]
Change = Callable[[list[tuple[str, M]]], None]


class MiddlewareChain(Generic[M]):
    """The middleware of one kind of this process, in the order in which it is called.

    It begins as a list of dotted names in ``OJS``. Each member has a name: its dotted name, or the one
    that it is added under. Changes hold for this process alone and for later jobs: make them when
    Django starts, in ``AppConfig.ready``. Those made while the settings are being read are carried out
    when the chain is first used. All are carried out again when a test overrides ``OJS``, but for what
    has no place in the list of that; those made within the override end with it.
    """

    def __init__(self, kind: str, listed: Callable[[], Sequence[str]]) -> None:
        self._kind = kind
        self._listed = listed
        self._lock = threading.RLock()
        self._early: list[Change[M]] = []
        self._changes: tuple[Change[M], ...] = ()
        self._overridden: list[tuple[Change[M], ...]] = []
        """The changes as they were before each override of the settings."""
        self._members: Members[M] | None = None
        setting_changed.connect(self._settings_changed, dispatch_uid=f"django_ojs.{kind}_middleware")

    def names(self) -> list[str]:
        """The names of the members, in order."""
        return [name for name, _ in self.members()]

    def members(self) -> Members[M]:
        """Names and callables, in order. Raises ``ImportError`` for a name that cannot be imported."""
        if self._members is None:
            with self._lock:
                members = [(name, import_string(name)) for name in self._listed()]
                for change in self._early:
                    change(members)
                for change in self._changes:
                    with contextlib.suppress(LookupError, ValueError):
                        change(members)
                self._members = tuple(members)
        return self._members

    def add(self, middleware: M, name: str = "") -> None:
        """Add at the end, called last. Raises ``ValueError`` when the name is taken."""
        self._insert(middleware, name, lambda names: len(names))

    def prepend(self, middleware: M, name: str = "") -> None:
        """Add at the start, to be called first. Raises ``ValueError`` when the name is taken."""
        self._insert(middleware, name, lambda names: 0)

    def insert_before(self, other: str, middleware: M, name: str = "") -> None:
        """Add before another one. Raises ``LookupError`` when there is none of that name."""
        self._insert(middleware, name, lambda names: self._place(other, names))

    def insert_after(self, other: str, middleware: M, name: str = "") -> None:
        """Add after another one. Raises ``LookupError`` when there is none of that name."""
        self._insert(middleware, name, lambda names: self._place(other, names) + 1)

    def remove(self, name: str) -> None:
        """Take one out. Raises ``LookupError`` when there is none of that name."""

        def change(members: list[tuple[str, M]]) -> None:
            del members[self._place(name, [known for known, _ in members])]

        self._change(change)

    def reset(self) -> None:
        """Back to the settings."""
        with self._lock:
            self._changes = ()
            self._members = None

    def _insert(self, middleware: M, name: str, place: Callable[[list[str]], int]) -> None:
        name = name or name_of(middleware)

        def change(members: list[tuple[str, M]]) -> None:
            names = [known for known, _ in members]
            if name in names:
                raise ValueError(f"there is an {self._kind} middleware named {name!r} already")
            members.insert(place(names), (name, middleware))

        self._change(change)

    def _change(self, change: Change[M]) -> None:
        with self._lock:
            if not settings.configured:
                self._early.append(change)
                return
            members = list(self.members())
            change(members)
            self._members = tuple(members)
            self._changes += (change,)

    def _place(self, name: str, names: list[str]) -> int:
        if name not in names:
            known = ", ".join(names) or "none"
            raise LookupError(f"there is no {self._kind} middleware named {name!r}: there is {known}")
        return names.index(name)

    def _settings_changed(self, *, setting: str, enter: bool = False, **_: object) -> None:
        if setting != "OJS":
            return
        with self._lock:
            if enter:
                self._overridden.append(self._changes)
            elif self._overridden:
                self._changes = self._overridden.pop()
            self._members = None


chain: MiddlewareChain[EnqueueMiddleware] = MiddlewareChain(
    "enqueue", lambda: conf.current().enqueue_middleware
)
"""The enqueue middleware of this process; ``django_ojs.enqueue_middleware``."""


def name_of(middleware: Callable[..., Any]) -> str:
    """The dotted name of a callable, or of its class."""
    named = middleware if hasattr(middleware, "__qualname__") else type(middleware)
    return f"{named.__module__}.{named.__qualname__}"


def request_for(envelope: Envelope, *, now: datetime) -> EnqueueRequest:
    """The request of an envelope, with an id."""
    return EnqueueRequest(envelope.id or clock.new_id(), envelope, now)


def passed(requests: Sequence[EnqueueRequest]) -> list[EnqueueRequest | None]:
    """The requests as the chain leaves them, ``None`` for one that it dropped.

    The chain is read once: a change while it runs holds for later jobs.
    """
    members = chain.members()
    return [_call(members, request) for request in requests]


def is_shared() -> bool:
    """Whether the chain may be called once for jobs that differ in their arguments only."""
    return all(getattr(member, "shared", False) for _, member in chain.members())


def around(request: EnqueueRequest, count: int, store: Callable[[], list[JobRow]]) -> list[JobRow]:
    """Call ``store`` inside the ``around`` of each member that has one, the first outermost."""
    for _, member in reversed(chain.members()):
        if (outer := getattr(member, "around", None)) is not None:
            store = _inside(outer, request, count, store)
    return store()


def _inside(
    outer: Callable[..., list[JobRow]],
    request: EnqueueRequest,
    count: int,
    store: Callable[[], list[JobRow]],
) -> Callable[[], list[JobRow]]:
    return lambda: outer(request, count, store)


def _call(members: Members[EnqueueMiddleware], request: EnqueueRequest) -> EnqueueRequest | None:
    if not members:
        return request
    name, middleware = members[0]

    def call_next(changed: EnqueueRequest) -> EnqueueRequest | None:
        return _call(members[1:], _checked(changed, request, name))

    made = middleware(request, call_next)
    return None if made is None else _checked(made, request, name)


def _checked(made: object, given: EnqueueRequest, name: str) -> EnqueueRequest:
    if not isinstance(made, EnqueueRequest):
        raise TypeError(f"enqueue middleware {name} returned a {type(made).__name__}")
    if made.id != given.id or made.envelope.id != given.envelope.id:
        raise TypeError(f"enqueue middleware {name}: the id of a job cannot be changed")
    return made
