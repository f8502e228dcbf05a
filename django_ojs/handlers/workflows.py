"""Chains, groups, batches and DAGs of jobs, as Python builds them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from types import TracebackType
from typing import Any, Protocol, Self, Unpack
from uuid import UUID

from asgiref.sync import sync_to_async
from django.db import transaction

from django_ojs import clock
from django_ojs.domain.arguments import Arguments, arguments_of
from django_ojs.domain.durations import parse_seconds_ms
from django_ojs.domain.envelope import encode_calls, from_call
from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.ids import parse_uuid7
from django_ojs.domain.jsonvalue import MAX_META_BYTES, encode
from django_ojs.domain.options import Duration, StepOptions, WorkflowOptions
from django_ojs.domain.workflow import Call, Definition, Fan, Step, When, WorkflowKind, check
from django_ojs.services import databases
from django_ojs.services.workflows.create import create, database_of
from django_ojs.services.workflows.read import WorkflowRecord, errors_of, record

Member = "Step | Fan | WorkflowBuilder"


class Callee(Protocol):
    """What has a job type and options of its own: a task of ``django.tasks``."""

    def __ojs_call__(self) -> tuple[str, dict[str, Any]]: ...


def step(
    job_type: str | Callee,
    args: Sequence[Any] = (),
    *,
    kwargs: Mapping[str, Any] | None = None,
    **options: Unpack[StepOptions],
) -> Step:
    """A step of a workflow, of any job type, known here or not, or of a task.

    Takes the options of :func:`django_ojs.enqueue` but ``id`` and ``pending``. ``delay`` and all limits
    count from the moment at which the step is enqueued. ``when="ended"`` lets it start whether what it
    waits for has completed or not. Raises as :func:`django_ojs.enqueue`.
    """
    given: dict[str, Any] = {**options}
    when = given.pop("when", When.COMPLETED)
    if when not in list(When):
        raise InvalidRequest("when", f"must be one of {', '.join(When)}")
    if not isinstance(job_type, str) and hasattr(job_type, "__ojs_call__"):
        job_type, own = job_type.__ojs_call__()
        given = {**own, **given}
    return Step(call(job_type, args, {**given, "kwargs": kwargs}), when=When(when))


def steps(
    job_type: str, calls: Iterable[Sequence[Any] | Mapping[str, Any]], **options: Unpack[StepOptions]
) -> Fan:
    """One member of a group per list, or mapping, of arguments; stored like ``enqueue_many``."""
    return fan(job_type, map(arguments_of, calls), options)


def fan(job_type: str, calls: Iterable[Arguments], options: Mapping[str, Any]) -> Fan:
    """As :func:`steps`, of calls with arguments by position and by keyword."""
    one = call(job_type, (), options)
    envelope, texts = encode_calls(one.envelope, calls)
    return Fan(replace(one, envelope=envelope), texts)


def call(job_type: Any, args: Sequence[Any], options: Mapping[str, Any]) -> Call:
    """A checked call; a ``delay`` is kept as such."""
    now = clock.now(databases.of_call(job_type, options.get("queue")))
    envelope = from_call(job_type, args, now=now, **options)
    if options.get("delay") is None or envelope.scheduled_at is None:
        return Call(envelope)
    delay_ms = (envelope.scheduled_at - now) // timedelta(milliseconds=1)
    return Call(envelope._replace(scheduled_at=None), delay_ms)


class Node:
    """A step that was added to a workflow, for others to wait for."""

    def __init__(self, builder: WorkflowBuilder, place: int) -> None:
        self.builder = builder
        self.place = place


class WorkflowBuilder:
    """A workflow that can be enqueued, or be a member of another one.

    Made by :func:`chain`, :func:`group`, :func:`batch` and :func:`workflow`.
    """

    def __init__(
        self,
        kind: WorkflowKind,
        members: Iterable[Any] = (),
        *,
        name: str = "",
        timeout: Duration | None = None,
        callbacks: Mapping[str, Step | None] | None = None,
    ) -> None:
        self.kind = kind
        self.name = name
        self._timeout = timeout
        self._callbacks = {key: one for key, one in (callbacks or {}).items() if one is not None}
        self._members: list[Step | Fan] = []
        for member in members:
            self._append(member)

    def _append(self, member: Any, depends_on: tuple[int, ...] = ()) -> None:
        if isinstance(member, (list, tuple)):
            for one in member:
                self._append(one)
            return
        if isinstance(member, Fan) and self.kind in (WorkflowKind.CHAIN, WorkflowKind.DAG):
            raise TypeError(f"a {self.kind} cannot have many steps in one place: put a group there")
        if isinstance(member, WorkflowBuilder):
            member = Step(member.definition())
        if not isinstance(member, (Step, Fan)):
            raise TypeError(
                f"a {type(member).__name__} cannot be part of a {self.kind}: it takes steps, like "
                "handler.step(...), and other workflows"
            )
        if isinstance(member, Step):
            if self.kind is WorkflowKind.CHAIN and self._members:
                depends_on = (len(self._members) - 1,)
            member = replace(member, depends_on=depends_on)
        self._members.append(member)

    def add(self, member: Any, *, after: Node | Sequence[Node] | None = None) -> Node:
        """Add a step to a DAG; it starts when those in ``after`` have completed."""
        if self.kind is not WorkflowKind.DAG:
            raise TypeError(f"a {self.kind} is complete: only workflow(...) takes further steps")
        nodes = [] if after is None else list(after) if isinstance(after, Iterable) else [after]
        if not all(isinstance(node, Node) for node in nodes):
            raise TypeError("after: must be what add() returned, or a list of those")
        if any(node.builder is not self for node in nodes):
            raise ValueError("after: names a step of another workflow")
        self._append(member, tuple(node.place for node in nodes))
        return Node(self, len(self._members) - 1)

    def definition(
        self,
        *,
        workflow_timeout: Duration | None = None,
        id: UUID | str | None = None,
        name: str | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> Definition:
        """The checked definition. Raises :class:`InvalidRequest`."""
        timeout = self._timeout if workflow_timeout is None else workflow_timeout
        if not isinstance(meta or {}, Mapping):
            raise InvalidRequest("meta", "must be an object")
        encode(dict(meta or {}), "meta", max_bytes=MAX_META_BYTES)
        made = Definition(
            self.kind,
            self._members,
            {key: _only_call(key, one) for key, one in self._callbacks.items()},
            name=self.name if name is None else name,
            timeout_ms=None if timeout is None else parse_seconds_ms(timeout, "workflow_timeout"),
            id=None if id is None else parse_uuid7(id, "id"),
            meta=dict(meta or {}),
        )
        check(made)
        return made

    def enqueue(
        self,
        *,
        workflow_timeout: Duration | None = None,
        id: UUID | str | None = None,
        name: str | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> WorkflowRecord:
        """Insert the workflow with the jobs of its first steps, in the caller's transaction.

        ``workflow_timeout`` is one deadline over all, from now on: seconds, ``timedelta``, ``"2h"`` or
        ISO 8601. ``id`` is a UUIDv7: the same id and content again returns the same workflow. Raises
        :class:`InvalidRequest` naming the step, :class:`Duplicate`; nothing is written then.
        """
        made = self.definition(workflow_timeout=workflow_timeout, id=id, name=name, meta=meta)
        row = create(made)
        # One that was there before may have failed; of a new one nothing is read.
        return record(row, errors_of(row, using=row._state.db or database_of(made)))

    async def aenqueue(self, **options: Unpack[WorkflowOptions]) -> WorkflowRecord:
        """:meth:`enqueue` for coroutines, in the thread of Django's ORM."""
        return await sync_to_async(self.enqueue)(**options)

    def enqueue_on_commit(self, **options: Unpack[WorkflowOptions]) -> None:
        """Insert the workflow when the outermost transaction commits; checked here and now."""
        made = self.definition(**options)
        transaction.on_commit(lambda: create(made) and None, using=database_of(made))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Enqueue the workflow, unless the block failed."""
        if kind is None:
            self.record = self.enqueue()


def _only_call(name: str, one: object) -> Call:
    if not isinstance(one, Step) or not isinstance(one.what, Call):
        raise TypeError(f"{name}: must be a step, like handler.step(...)")
    return one.what


def chain(
    *members: Any,
    name: str = "",
    on_complete: Step | None = None,
    on_success: Step | None = None,
    on_failure: Step | None = None,
) -> WorkflowBuilder:
    """Steps that run one after the other; the first that fails ends the chain."""
    callbacks = {"on_complete": on_complete, "on_success": on_success, "on_failure": on_failure}
    return WorkflowBuilder(WorkflowKind.CHAIN, members, name=name, callbacks=callbacks)


def group(
    *members: Any,
    name: str = "",
    on_complete: Step | None = None,
    on_success: Step | None = None,
    on_failure: Step | None = None,
) -> WorkflowBuilder:
    """Jobs that run beside each other. It has failed if one of them has, when all have ended."""
    callbacks = {"on_complete": on_complete, "on_success": on_success, "on_failure": on_failure}
    return WorkflowBuilder(WorkflowKind.GROUP, members, name=name, callbacks=callbacks)


def batch(
    *members: Any,
    name: str = "",
    on_complete: Step | None = None,
    on_success: Step | None = None,
    on_failure: Step | None = None,
) -> WorkflowBuilder:
    """A group with callbacks: it has failed only if one of those has."""
    callbacks = {"on_complete": on_complete, "on_success": on_success, "on_failure": on_failure}
    return WorkflowBuilder(WorkflowKind.BATCH, members, name=name, callbacks=callbacks)


def workflow(
    name: str = "",
    *,
    timeout: Duration | None = None,
    on_complete: Step | None = None,
    on_success: Step | None = None,
    on_failure: Step | None = None,
) -> WorkflowBuilder:
    """A DAG: steps are added with what they wait for, then ``enqueue()`` inserts it.

    As a context manager it is enqueued at the end of the block, unless that fails; its record is in
    ``record`` then.
    """
    callbacks = {"on_complete": on_complete, "on_success": on_success, "on_failure": on_failure}
    return WorkflowBuilder(WorkflowKind.DAG, name=name, timeout=timeout, callbacks=callbacks)
