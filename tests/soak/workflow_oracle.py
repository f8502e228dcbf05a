"""The judgement of workflows: none lost or stuck, counters as the rows, every callback exactly once.

Pure: entries of the ledger and rows go in, findings go into the verdict.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from tests.soak.ledger import Entry
from tests.soak.oracle import Verdict

ON_COMPLETE, ON_SUCCESS, ON_FAILURE = -1, -2, -3
ENDS = {"completed": "completed", "discarded": "failed", "cancelled": "cancelled"}
"""How a member ended, by the state of its job."""


class Counts(NamedTuple):
    """The counters of a workflow."""

    total: int
    open: int
    completed: int
    failed: int


class WorkflowRow(NamedTuple):
    """A workflow at the end."""

    id: str
    parent: str
    kind: str
    state: str
    parent_step: int | None
    runs: int
    counts: Counts
    callbacks_open: int
    finished_at: datetime | None
    error: Mapping[str, Any] | None = None


class MemberRow(NamedTuple):
    """A job of a workflow. A negative ``step`` is a callback; what is not ``counted`` is detached."""

    workflow: str
    id: str
    state: str
    step: int
    counted: bool


class StepRow(NamedTuple):
    """A step of a workflow, started or not."""

    workflow: str
    state: str
    when: str
    child: str
    place: int
    depends_on: Sequence[int]


class End(NamedTuple):
    """How a member ended, by its own row."""

    how: str
    job: str = ""


def judge(
    verdict: Verdict,
    entries: Iterable[Entry],
    workflows: Sequence[WorkflowRow],
    members: Sequence[MemberRow],
    steps: Sequence[StepRow],
) -> None:
    """Add what is wrong with the workflows to the verdict."""
    events: dict[str, set[str]] = defaultdict(set)
    first: dict[str, dict[str, int]] = {"start": {}, "effect": {}}
    for entry in entries:
        if entry.event in first:
            first[entry.event].setdefault(entry.data["job"], entry.ns)
        if "workflow" in entry.data:
            events[entry.event].add(entry.data["workflow"])
    rows = {row.id: row for row in workflows}
    jobs: dict[str, list[MemberRow]] = defaultdict(list)
    for member in members:
        jobs[member.workflow].append(member)
    planned: dict[str, dict[int, StepRow]] = defaultdict(dict)
    for step in steps:
        planned[step.workflow][step.place] = step
    ends = {row.id: _ends(row, jobs[row.id], planned[row.id], workflows) for row in workflows}
    verdict.workflows.update(row.state for row in workflows if not row.parent)
    outermost = {row.id for row in workflows if not row.parent}
    wrong = verdict.wrong
    wrong["workflows lost"] = sorted(events["acknowledged workflow"] - rows.keys())
    wrong["workflows unexpected"] = sorted(outermost - events["try workflow"])
    wrong["workflows stuck"] = [
        f"{row.id} {row.kind} {row.state}: {row.counts}, {row.callbacks_open} callbacks"
        for row in workflows
        if row.finished_at is None or row.state == "running" or row.counts.open or row.callbacks_open
    ]
    wrong["counters unlike the rows"] = [
        f"{row.id} {row.kind}: {row.counts}, by the rows {found}"
        for row in workflows
        if (found := _counted(row.counts.total, ends[row.id])) != row.counts
    ]
    wrong["callbacks not exactly once"] = [
        finding
        for row in workflows
        for finding in _callbacks(row, jobs[row.id], planned[row.id], ends[row.id])
    ]
    wrong["started before their time"] = [
        finding
        for row in workflows
        if row.runs == 1
        for finding in _too_early(row, jobs[row.id], planned[row.id], ends[row.id], first)
    ]


def _ends(
    row: WorkflowRow,
    jobs: Sequence[MemberRow],
    steps: Mapping[int, StepRow],
    workflows: Sequence[WorkflowRow],
) -> dict[int, End]:
    """The ends of the members: of jobs, of workflows inside it, of steps that never ran."""
    found = {
        index: End("cancelled")
        for index, step in steps.items()
        if index >= 0 and step.state == "cancelled"
    }
    for job in jobs:
        if job.step >= 0:
            # Who was retried too late has failed for the workflow, whatever became of it.
            how = ENDS.get(job.state, "open") if job.counted else "failed"
            found[job.step] = End(how, job.id)
    for inner in workflows:
        if inner.parent == row.id and inner.parent_step is not None:
            how = "open" if inner.finished_at is None else inner.state
            found[inner.parent_step] = End(how)
    return found


def _counted(total: int, ends: Mapping[int, End]) -> Counts:
    hows = Counter(end.how for end in ends.values())
    return Counts(
        total, total - sum(hows[how] for how in ENDS.values()), hows["completed"], hows["failed"]
    )


def _callbacks(
    row: WorkflowRow, jobs: Sequence[MemberRow], steps: Mapping[int, StepRow], ends: Mapping[int, End]
) -> Iterator[str]:
    """In each run at most one of each, in the last run those that belong to how it ended."""
    fired = Counter(job.step for job in jobs if job.step < 0 and job.counted)
    complete = all(end.how == "completed" for end in ends.values())
    due = {ON_COMPLETE, ON_SUCCESS if complete else ON_FAILURE}
    if complete and row.error and fired[ON_FAILURE]:
        # Its deadline came before its last member had ended; after that it is too late for another one.
        due = {ON_COMPLETE, ON_FAILURE}
    for index in (ON_COMPLETE, ON_SUCCESS, ON_FAILURE):
        expected = 1 if index in steps and index in due else 0
        if fired[index] > 1 or (row.state != "cancelled" and fired[index] != expected):
            yield f"{row.id} {row.kind} {row.state}: callback {index} ran {fired[index]} times"


def _too_early(
    row: WorkflowRow,
    jobs: Sequence[MemberRow],
    steps: Mapping[int, StepRow],
    ends: Mapping[int, End],
    first: Mapping[str, Mapping[str, int]],
) -> Iterator[str]:
    """Steps that ran before what they wait for had ended, or although it did not complete.

    By the ledger: the times in two rows are those of two processes, of which one may have waited.
    """
    for job in jobs:
        step = steps.get(job.step)
        needed = list(ends) if job.step < 0 else list(step.depends_on) if step else []
        started = first["start"].get(job.id)
        for index in needed:
            end = ends.get(index, End("open"))
            done = first["effect"].get(end.job)
            if end.how == "completed" and started is not None and done is not None and started < done:
                yield f"{row.id} {row.kind}: step {job.step} ran before {index} had done its work"
            elif end.how == "open":
                yield f"{row.id} {row.kind}: step {job.step} ran, {index} has not ended"
            elif job.step >= 0 and step and step.when == "completed" and end.how != "completed":
                yield f"{row.id} {row.kind}: step {job.step} ran although {index} {end.how}"
