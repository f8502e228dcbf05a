"""Workflows as they are defined, and the rules by which they advance (OJS workflows)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple
from uuid import UUID

from django_ojs.domain.envelope import Envelope
from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.jsonvalue import check_text
from django_ojs.domain.states import State

MAX_STEPS = 1000
"""The most steps of a chain or a DAG."""
MAX_MEMBERS = 100_000
"""The most members of a group or a batch."""
MAX_DEPTH = 3
"""How deep workflows may be nested: a chain with a group of chains is the deepest."""
MAX_NAME = 255


class WorkflowKind(StrEnum):
    """How the members of a workflow follow each other."""

    CHAIN = "chain"
    GROUP = "group"
    BATCH = "batch"
    DAG = "dag"


ORDERED = frozenset({WorkflowKind.CHAIN.value, WorkflowKind.DAG.value})
"""The kinds whose members may wait for each other."""


class WorkflowState(StrEnum):
    """The states of a workflow (OJS workflows 8)."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class When(StrEnum):
    """Which ends of its dependencies let a step start."""

    COMPLETED = "completed"
    ENDED = "ended"


class MemberEnd(StrEnum):
    """How a member of a workflow ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


ENDINGS: Mapping[str, MemberEnd] = {
    State.COMPLETED.value: MemberEnd.COMPLETED,
    State.DISCARDED.value: MemberEnd.FAILED,
    State.CANCELLED.value: MemberEnd.CANCELLED,
}
"""How a member ended, by the terminal state of its job."""

CALLBACKS: Mapping[str, int] = {"on_complete": -1, "on_success": -2, "on_failure": -3}
"""The callbacks, and the index that each has as a step."""
CALLBACK_NAMES: Mapping[int, str] = {index: name for name, index in CALLBACKS.items()}


@dataclass(frozen=True, slots=True)
class Call:
    """A job of a workflow: its envelope; ``delay_ms`` counts from when it is enqueued."""

    envelope: Envelope
    delay_ms: int | None = None

    def due(self, now: datetime) -> Envelope:
        """The envelope to enqueue ``now``, with the time at which the job is to start."""
        if self.delay_ms is None:
            return self.envelope
        start = now + timedelta(milliseconds=self.delay_ms)
        return self.envelope._replace(scheduled_at=start, scheduled_text=None)


@dataclass(frozen=True, slots=True)
class Step:
    """A member of a workflow: a job, or a workflow that counts as one.

    ``depends_on`` has the places of other members. ``key`` is the client's name for it.
    """

    what: Call | Definition
    key: str = ""
    depends_on: tuple[int, ...] = ()
    when: When = When.COMPLETED


@dataclass(frozen=True, slots=True)
class Fan:
    """Many members of a group that differ in their arguments only: one call, and JSON texts."""

    call: Call
    args: Sequence[str]


@dataclass(frozen=True, slots=True)
class Definition:
    """A workflow as it was asked for. ``members`` of a chain follow each other in their order."""

    kind: WorkflowKind
    members: Sequence[Step | Fan]
    callbacks: Mapping[str, Call] = field(default_factory=dict)
    name: str = ""
    timeout_ms: int | None = None
    id: UUID | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """How many members there are."""
        return sum(len(member.args) if isinstance(member, Fan) else 1 for member in self.members)

    @property
    def is_ordered(self) -> bool:
        """Whether members may wait for each other."""
        return self.kind in ORDERED


def each_call(definition: Definition) -> Iterator[Call]:
    """All calls of a definition, those of nested workflows and callbacks too."""
    for member in definition.members:
        if isinstance(member, Fan):
            yield member.call
        elif isinstance(member.what, Definition):
            yield from each_call(member.what)
        else:
            yield member.what
    yield from definition.callbacks.values()


def check(definition: Definition, *, path: str = "", depth: int = 1) -> None:
    """Raise :class:`InvalidRequest`, naming the place, for a workflow that cannot run to its end."""
    place = path or "workflow"
    named = "steps" if definition.is_ordered else "jobs"
    if depth > MAX_DEPTH:
        raise InvalidRequest(place, f"must not be nested deeper than {MAX_DEPTH} workflows")
    if not definition.total:
        raise InvalidRequest(_join(path, named), "must have at least one member")
    most = MAX_STEPS if definition.is_ordered else MAX_MEMBERS
    if definition.total > most:
        raise InvalidRequest(_join(path, named), f"must have at most {most} members")
    if len(check_text(definition.name, _join(path, "name"))) > MAX_NAME:
        raise InvalidRequest(_join(path, "name"), f"must have at most {MAX_NAME} characters")
    if definition.kind is WorkflowKind.BATCH and not definition.callbacks:
        raise InvalidRequest(
            _join(path, "callbacks"), "must not be empty: without callbacks it is a group"
        )
    _check_keys(definition, path, named)
    steps = [member for member in definition.members if isinstance(member, Step)]
    if any(step.depends_on for step in steps):
        _check_order(steps, _join(path, named))
    for index, member in enumerate(definition.members):
        if isinstance(member, Step) and isinstance(member.what, Definition):
            check(member.what, path=_join(path, f"{named}[{index}]"), depth=depth + 1)


def _check_keys(definition: Definition, path: str, named: str) -> None:
    keys = [m.key for m in definition.members if isinstance(m, Step) and m.key]
    seen: set[str] = set()
    for key in keys:
        if key in seen:
            raise InvalidRequest(_join(path, named), f"has two members with the id {key!r}")
        seen.add(key)


def _check_order(steps: Sequence[Step], field: str) -> None:
    for index, step in enumerate(steps):
        if index in step.depends_on:
            raise InvalidRequest(f"{field}[{index}].depends_on", "must not name the step itself")
    if len(in_order([step.depends_on for step in steps])) < len(steps):
        raise InvalidRequest(field, "must not depend on each other in a circle")


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def in_order(depends_on: Sequence[Collection[int]]) -> list[int]:
    """The steps so that each comes after those that it depends on; those in a circle are left out."""
    waits = [len(set(needed)) for needed in depends_on]
    dependents: list[list[int]] = [[] for _ in depends_on]
    for index, needed in enumerate(depends_on):
        for other in set(needed):
            dependents[other].append(index)
    order = [index for index, count in enumerate(waits) if not count]
    for index in order:
        for other in dependents[index]:
            waits[other] -= 1
            if not waits[other]:
                order.append(other)
    return order


class Planned(NamedTuple):
    """A step that has no job: what it waits for, and whether it can still start."""

    place: int
    depends_on: Sequence[int]
    when: When


class Plan(NamedTuple):
    """What becomes of the steps without a job: due now, waiting for so many others, never to start."""

    due: list[int]
    waiting: dict[int, int]
    dead: list[int]


def plan(steps: Iterable[Planned], ended: Mapping[int, MemberEnd]) -> Plan:
    """What becomes of ``steps``, none of which has a job, when others have ``ended``.

    A step that needs its dependencies completed is dead as soon as one of them is not; others then
    treat it as ended. What is neither in ``steps`` nor in ``ended`` is still running.
    """
    unstarted = {step.place: step for step in steps}
    ends = dict(ended)
    made = Plan([], {}, [])
    ordered = list(unstarted)
    places = {index: place for place, index in enumerate(ordered)}
    inside = [
        [places[other] for other in unstarted[index].depends_on if other in places] for index in ordered
    ]
    for place in in_order(inside):
        step = unstarted[ordered[place]]
        known = [ends.get(other) for other in step.depends_on]
        bad = any(end is not None and end is not MemberEnd.COMPLETED for end in known)
        if step.when is When.COMPLETED and bad:
            made.dead.append(step.place)
            ends[step.place] = MemberEnd.CANCELLED
        elif waits := known.count(None):
            made.waiting[step.place] = waits
        else:
            made.due.append(step.place)
    return made


def triggered(*, complete: bool) -> list[str]:
    """The callbacks to run when all members have ended (OJS workflows 6.5)."""
    return ["on_complete", "on_success" if complete else "on_failure"]


def final_state(kind: str, *, complete: bool, callback_failed: bool) -> WorkflowState:
    """The state when members and callbacks have ended (OJS workflows 8.3): a batch is what its
    callbacks are.
    """
    if callback_failed or not (complete or kind == WorkflowKind.BATCH):
        return WorkflowState.FAILED
    return WorkflowState.COMPLETED
