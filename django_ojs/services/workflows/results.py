"""What a job of a workflow gets from those before it: ``parent_results`` (OJS workflows 7)."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import Case, Q, TextField, When
from django.db.models.functions import Cast, Length

from django_ojs.domain.errors import Conflict
from django_ojs.domain.job import JobRow
from django_ojs.domain.workflow import ORDERED, WorkflowKind
from django_ojs.models import Job, Workflow, WorkflowStep

MOST_BYTES = 1 << 20
"""How much text of results one job is given inline; more is read page by page."""
MOST_TOGETHER = 8 << 20
"""How much text of results the jobs of one claim are given inline."""
LARGEST = 8_000_000
"""Bytes of the largest result that a handler is given, an object of a nested workflow: the reply of the
supervisor must fit into one packet.
"""
MOST_INLINE = 10_000
"""How many results a job is given inline."""
_PAGE = 100
_STRIDE = 10_000
"""How many members one statement looks at."""
_MOST_INNER = 50_000
"""Members of nested workflows beyond which their results are not given inline."""
_COMMAS = 8
"""Characters about a result in the object of a nested workflow."""

Place = tuple[UUID, int]
"""A member: its workflow, and its index there."""
_NONE: Mapping[int, UUID] = {}


class Source(NamedTuple):
    """Whose results a job gets: members of a workflow, in order; ``nested`` are workflows by index."""

    workflow_id: UUID
    steps: Sequence[int]
    nested: Mapping[int, UUID] = _NONE


class ParentResults(NamedTuple):
    """The results, in the order of the steps; ``truncated`` when there was more than fits."""

    values: list[Any]
    truncated: bool = False


class ResultPage(NamedTuple):
    """Results as JSON texts, and the place to go on from, ``None`` at the end."""

    texts: list[str]
    after: int | None


def sources(jobs: Iterable[JobRow], *, using: str) -> dict[UUID, Source]:
    """By job, whose results it gets; jobs that wait for nothing are missing.

    A chain's step gets all before it, a DAG's step what it depends on, a callback all members. What
    comes first in a nested workflow gets what the nested workflow gets. No statement where no job is
    part of a workflow.
    """
    asked: dict[Place, list[UUID]] = {
        (job.workflow_id, job.workflow_step): [job.id]
        for job in jobs
        if job.workflow_id is not None and job.workflow_step is not None
    }
    found: dict[UUID, Source] = {}
    while asked:
        asked = _one_level(asked, found, using)
    return found


def _one_level(
    asked: Mapping[Place, list[UUID]], found: dict[UUID, Source], using: str
) -> dict[Place, list[UUID]]:
    """Find the sources of these steps; returns the steps of parents to ask instead."""
    workflows = Workflow.objects.using(using).in_bulk(list({workflow_id for workflow_id, _ in asked}))
    known = [place for place in asked if place[0] in workflows]
    # What comes first in a group has no step of its own.
    waiting = [place for place in known if place[1] < 0 or workflows[place[0]].kind in ORDERED]
    depends, nested = _steps(waiting, using)
    above: dict[Place, list[UUID]] = defaultdict(list)
    for workflow_id, index in known:
        workflow, jobs = workflows[workflow_id], asked[workflow_id, index]
        steps: Sequence[int] = depends.get((workflow_id, index), ())
        if index < 0:
            steps = range(workflow.total)
        elif workflow.kind == WorkflowKind.CHAIN:
            steps = range(index)
        if steps:
            source = Source(workflow_id, steps, nested.get(workflow_id, _NONE))
            found.update(dict.fromkeys(jobs, source))
        elif workflow.parent_id is not None and workflow.parent_step is not None:
            above[workflow.parent_id, workflow.parent_step] += jobs
    return above


def _steps(
    places: Sequence[Place], using: str
) -> tuple[dict[Place, Sequence[int]], dict[UUID, dict[int, UUID]]]:
    """What these steps depend on, and the workflows nested in theirs."""
    if not places:
        return {}, {}
    wanted = Q(workflow_id__in={workflow_id for workflow_id, _ in places}, child_id__isnull=False)
    for workflow_id, index in places:
        wanted |= Q(workflow_id=workflow_id, index=index)
    rows = WorkflowStep.objects.using(using).filter(wanted)
    depends: dict[Place, Sequence[int]] = {}
    nested: dict[UUID, dict[int, UUID]] = defaultdict(dict)
    for workflow_id, index, needed, child in rows.values_list(
        "workflow_id", "index", "depends_on", "child_id"
    ):
        depends[workflow_id, index] = needed
        if child is not None:
            nested[workflow_id][index] = child
    return depends, nested


def source_of(workflow: Workflow, *, using: str) -> Source:
    """All members of a workflow."""
    _, nested = _steps([(workflow.id, -1)], using)
    return Source(workflow.id, range(workflow.total), nested.get(workflow.id, _NONE))


def of_jobs(jobs: Iterable[JobRow], *, using: str) -> dict[UUID, ParentResults]:
    """What each of the jobs gets inline: up to ``MOST_BYTES`` of text, and ``MOST_INLINE`` results;
    together up to ``MOST_TOGETHER``. A job that waits for nothing gets an empty list, one without a
    workflow nothing.

    Few statements for all of them, however many they are; none where no job is part of a workflow.
    """
    jobs = [job for job in jobs if job.workflow_id is not None]
    found = sources(jobs, using=using)
    given = {job.id: ParentResults([]) for job in jobs}
    if not found:
        return given
    wanted: dict[UUID, set[int]] = defaultdict(set)
    nested: dict[UUID, Mapping[int, UUID]] = {}
    for source in found.values():
        wanted[source.workflow_id].update(source.steps[:MOST_INLINE])
        nested[source.workflow_id] = source.nested
    members = _Members({key: sorted(steps) for key, steps in wanted.items()}, nested, using)
    chosen: dict[UUID, Sequence[int]] = {}
    room = MOST_TOGETHER
    for job_id, source in found.items():
        chosen[job_id], size = members.fitting(source, 0, MOST_INLINE, min(MOST_BYTES, room))
        room -= size
    members.load(
        (found[job_id].workflow_id, step) for job_id, steps in chosen.items() for step in steps
    )
    for job_id, steps in chosen.items():
        texts = [members.text((found[job_id].workflow_id, step)) for step in steps]
        truncated = len(steps) < len(found[job_id].steps)
        given[job_id] = ParentResults([json.loads(text) for text in texts], truncated)
    return given


def page(
    source: Source, *, after: int, limit: int = _PAGE, largest: float = inf, using: str
) -> ResultPage:
    """A page of results with no more text than ``MOST_BYTES``, or one result.

    ``after`` is a place in the order of the source, -1 for the start. Raises :class:`Conflict` for a
    result of more than ``largest`` bytes, before it is read where its length says so.
    """
    asked = source.steps[after + 1 : after + 1 + limit]
    members = _Members({source.workflow_id: asked}, {source.workflow_id: source.nested}, using)
    steps, _ = members.fitting(source, after + 1, limit, MOST_BYTES)
    if asked and not steps:
        steps, texts = asked[:1], [_alone(source, asked[0], largest, using)]
    else:
        members.load((source.workflow_id, step) for step in steps)
        texts = [members.text((source.workflow_id, step)) for step in steps]
    last = after + len(steps)
    return ResultPage(texts, last if last + 1 < len(source.steps) else None)


def _alone(source: Source, step: int, largest: float, using: str) -> str:
    """The text of a result that fits into no page. It is measured again by itself: the members of all
    that were asked for may have been too many to look at.
    """
    place, nested = (source.workflow_id, step), {source.workflow_id: source.nested}
    members = _Members({source.workflow_id: [step]}, nested, using, alone=True)
    if members.size(place) <= largest:
        members.load([place])
        text = members.text(place)
        if len(text.encode()) <= largest:
            return text
    raise Conflict(
        f"the results of the nested workflow at index {step} have more than {largest} bytes together"
    )


def inline(workflow: Workflow, *, most: int, using: str) -> dict[int, Any]:
    """The results of the first members by index, as many as fit ``MOST_BYTES``; none of workflows."""
    asked = range(min(most, workflow.total))
    members = _Members({workflow.id: asked}, {}, using)
    steps, _ = members.fitting(Source(workflow.id, asked), 0, most, MOST_BYTES)
    members.load((workflow.id, step) for step in steps)
    return {step: json.loads(members.text((workflow.id, step))) for step in steps}


class _Members:
    """Members of workflows: how long their results are, and the results that were read.

    Short ones are read together with the lengths of all, so that one statement mostly does.
    """

    def __init__(
        self,
        wanted: Mapping[UUID, Sequence[int]],
        nested: Mapping[UUID, Mapping[int, UUID]],
        using: str,
        *,
        whole: bool = False,
        alone: bool = False,
    ) -> None:
        self._using = using
        self._alone = alone
        self._sizes: dict[Place, int] = {}
        self._texts: dict[Place, str] = {}
        self._inner = {
            (workflow_id, step): child
            for workflow_id, children in nested.items()
            for step, child in children.items()
            if step in wanted.get(workflow_id, ())
        }
        count = sum(map(len, wanted.values()))
        short = MOST_TOGETHER // max(count, 1) if not whole else None
        for part in _parts(wanted):
            self._look(part, short)
        if self._inner:
            self._objects(whole)

    def _look(self, part: Q, short: int | None) -> None:
        text = Cast("result", TextField())
        rows = Job.objects.using(self._using).filter(part, result__isnull=False)
        rows = rows.annotate(size=Length(text))
        small = text if short is None else Case(When(size__lte=short, then=text))
        for workflow_id, step, size, found in rows.annotate(small=small).values_list(
            "workflow_id", "workflow_step", "size", "small"
        ):
            if workflow_id is None or step is None:
                continue
            self._sizes[workflow_id, step] = size
            if found is not None:
                self._texts[workflow_id, step] = found

    def _objects(self, whole: bool) -> None:
        """Results of nested workflows: objects by index (OJS workflows 7.3)."""
        children = Workflow.objects.using(self._using).filter(pk__in=set(self._inner.values()))
        totals = dict(children.values_list("pk", "total"))
        if not (whole or self._alone) and sum(totals.values()) > _MOST_INNER:
            self._sizes.update(dict.fromkeys(self._inner, MOST_TOGETHER + 1))
            return
        wanted = {child: range(total) for child, total in totals.items()}
        rows = WorkflowStep.objects.using(self._using).filter(
            workflow_id__in=list(wanted), child_id__isnull=False
        )
        nested: dict[UUID, dict[int, UUID]] = defaultdict(dict)
        for workflow_id, index, child in rows.values_list("workflow_id", "index", "child_id"):
            if child is not None:
                nested[workflow_id][index] = child
        inner = _Members(wanted, nested, self._using, whole=whole, alone=self._alone)
        for place, child in self._inner.items():
            members = [(child, step) for step in wanted.get(child, ())]
            self._sizes[place] = sum(inner.size(member) + _COMMAS for member in members)
            if all(inner.is_read(member) for member in members):
                parts = (f'"{step}": {inner.text((child, step))}' for _, step in members)
                self._texts[place] = "{" + ", ".join(parts) + "}"

    def size(self, place: Place) -> int:
        """How long the text of a result is."""
        return self._sizes.get(place, len("null"))

    def is_read(self, place: Place) -> bool:
        """Whether the text is there."""
        return place in self._texts or place not in self._sizes

    def text(self, place: Place) -> str:
        """The result as JSON text; ``null`` for one without."""
        return self._texts.get(place, "null")

    def fitting(
        self, source: Source, start: int, most: int, most_bytes: int
    ) -> tuple[Sequence[int], int]:
        """The first steps of a source from ``start`` on whose results fit, and their size."""
        steps = source.steps[start : start + most]
        size = 0
        for count, step in enumerate(steps):
            more = self.size((source.workflow_id, step)) + 1
            if size + more > most_bytes:
                return steps[:count], size
            size += more
        return steps, size

    def load(self, places: Iterable[Place]) -> None:
        """Read the texts of these, which were too long to come with their sizes."""
        left: dict[UUID, list[int]] = defaultdict(list)
        for workflow_id, step in places:
            if not self.is_read((workflow_id, step)):
                left[workflow_id].append(step)
        if not left:
            return
        nested: dict[UUID, dict[int, UUID]] = defaultdict(dict)
        for (workflow_id, step), child in self._inner.items():
            nested[workflow_id][step] = child
        self._texts.update(_Members(left, nested, self._using, whole=True)._texts)


def _parts(wanted: Mapping[UUID, Sequence[int]]) -> Iterator[Q]:
    """Conditions for these members, each for at most ``_STRIDE`` of them."""
    part, room = Q(), _STRIDE
    for workflow_id, steps in wanted.items():
        for start in range(0, len(steps), _STRIDE):
            some = sorted(steps[start : start + _STRIDE])
            if len(some) > room:
                yield part
                part, room = Q(), _STRIDE
            room -= len(some)
            span = some[-1] - some[0] + 1
            if span == len(some):
                these = Q(workflow_step__gte=some[0], workflow_step__lte=some[-1])
            else:
                these = Q(workflow_step__in=some)
            part |= Q(these, workflow_id=workflow_id)
    if part:
        yield part
