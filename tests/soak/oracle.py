"""The judgement: what the ledger says happened against what the database says at the end.

Pure: entries of the ledger and rows go in, findings and figures come out.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any, NamedTuple

from tests.soak.ledger import Entry
from tests.soak.plan import LAST_WORD

TERMINAL = frozenset({"completed", "cancelled", "discarded"})
EXPLAINS = frozenset(
    {
        "stalled",
        "timeout",
        "total_timeout",
        "visibility_timeout",
        "worker_crash",
        "shutdown",
        "cancelled",
    }
)
"""Outcomes of attempts after which the job runs again although its effect may have happened."""


LONGEST_PAUSE = 10.0
"""How long before the start of an attempt its worker may have been suspended, to be still so."""


OUTAGES = frozenset(
    {"end sessions", "restart database", "stop database", "freeze database", "hold table"}
)
SHOWS_IN = 18.0
"""How long an outage may take to show, with the air that deadlines get for it."""


CLOCKS = 0.1
"""How far the clocks of the database and of the ledger are apart."""
GIVEN_BACK = 0.02
"""The share of jobs that may be given back unbegun."""
LEARNS_IN = 4.0
"""How long after its silence a worker may take to stop what it has lost: a beat, the grace, air."""
CONNECTS_IN = 2.0
"""How long after an outage a worker may take to have its connections again."""
LATE = 3.0
"""How late a deadline may be on a busy machine."""


class JobRow(NamedTuple):
    """A job at the end."""

    id: str
    type: str
    state: str
    result: Any
    error: Mapping[str, Any] | None
    queue: str = ""
    promoted_late: bool = False
    """Whether it was made available when its time to start was over."""
    of_workflow: bool = False
    """Whether a workflow enqueued it, and nobody else."""


class AttemptRow(NamedTuple):
    """One ended attempt."""

    job: str
    seq: int
    lease: str
    attempt: int
    worker: str | None
    outcome: str
    started_at: datetime
    ended_at: datetime
    error: Mapping[str, Any] | None
    late: bool = False


@dataclass
class Verdict:
    """``wrong`` is what must be empty, by rule; the rest are figures."""

    wrong: dict[str, list[str]] = field(default_factory=dict)
    jobs: Counter[str] = field(default_factory=Counter)
    discarded: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    duplicates: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)
    workflows: Counter[str] = field(default_factory=Counter)
    refused: int = 0
    recovery: list[float] = field(default_factory=list)
    crashes: list[float] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        return not any(self.wrong.values())


def judge(
    entries: Iterable[Entry],
    jobs: Sequence[JobRow],
    attempts: Sequence[AttemptRow],
    *,
    backoff: float = 0.0,
    origin: float = 0.0,
    one_writer: bool = False,
    lasts_at_most: Callable[[str], float] | None = None,
) -> Verdict:
    """Compare. ``lasts_at_most`` says how long attempts of a type may run.

    ``origin`` is the wall clock at zero of the ledger's; ``backoff`` that of retries. With
    ``one_writer`` a process that is suspended may hold a lock that everybody needs: SQLite.
    """
    by_event: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        by_event[entry.event].append(entry)
    history: dict[str, list[AttemptRow]] = defaultdict(list)
    for row in sorted(attempts, key=lambda row: (row.job, row.seq)):
        history[row.job].append(row)
    rows = {job.id: job for job in jobs}
    verdict = Verdict()
    verdict.jobs.update(job.state for job in jobs)
    verdict.jobs["enqueued"] = len(_jobs(by_event["acknowledged"]))
    verdict.discarded.update(
        str((job.error or {}).get("type")) for job in jobs if job.state == "discarded"
    )
    verdict.outcomes.update(row.outcome for row in attempts)
    verdict.faults.update(entry.data["kind"] for entry in by_event["fault"])
    verdict.skipped.update(entry.data["kind"] for entry in by_event["not injected"])
    verdict.left.update(f"{e.data['name']} ({e.data['code']})" for e in by_event["left"])
    verdict.refused = len(by_event["refused"]) + sum(row.late for row in attempts)
    wrong = verdict.wrong
    finished = {job.id for job in jobs if job.state in TERMINAL}
    wrong["lost"] = sorted(_jobs(by_event["acknowledged"]) - finished)
    asked_for = {job.id for job in jobs if not job.of_workflow}
    wrong["unexpected"] = sorted(asked_for - _jobs(by_event["try"]))
    wrong["stuck"] = [f"{job.id} {job.type} {job.state}" for job in jobs if job.id not in finished]
    wrong["uncancelled"] = sorted(
        job for job in _jobs(by_event["cancelled"]) if job in rows and rows[job].state != "cancelled"
    )
    wrong["double-settled"] = _double_settled(by_event["honoured"], history)
    wrong["stale reports honoured"] = _stale(by_event["honoured"], rows, history)
    wrong["completed without effect"] = _without_effect(by_event["effect"], jobs, history)
    wrong["unexplained duplicates"] = _duplicates(by_event, history, verdict.duplicates)
    wrong["stalled though alive"] = _false_stalls(by_event, history, origin, one_writer)
    wrong["claimed while paused"] = _paused(by_event["paused"], rows, history, origin)
    wrong["promoted though expired"] = [job.id for job in jobs if job.promoted_late]
    killed = _jobs(entry for entry in by_event["fault"] if "job" in entry.data)
    wrong["last words unread"] = [
        f"{job.id}: {heard}"
        for job in jobs
        if job.id not in killed
        and isinstance(job.result, dict)
        and (heard := job.result.get("heard", LAST_WORD)) != LAST_WORD
        and [row.outcome for row in history[job.id]] == ["worker_crash", "completed"]
    ]
    wrong["single attempts claimed ahead"] = _ahead(rows, history)
    wrong["outlived its executor"] = [
        f"{entry.data['job']}: {entry.data['pids']}" for entry in by_event["outlived"]
    ]
    wrong["worked on without a lease"] = _without_lease(by_event, history, origin)
    if lasts_at_most is not None:
        wrong["late deadlines"] = _late(by_event, rows, history, origin, lasts_at_most)
    verdict.recovery = _recovery(by_event["fault"], history, backoff, origin)
    verdict.crashes = _crashes([*by_event["fault"], *by_event["crash"]], history, origin)
    return verdict


def _jobs(entries: Iterable[Entry]) -> set[str]:
    return {entry.data["job"] for entry in entries}


def _double_settled(honoured: Sequence[Entry], history: Mapping[str, list[AttemptRow]]) -> list[str]:
    """Jobs that were completed twice: by their history, or by what HTTP workers were told."""
    completed = {
        job for job, rows in history.items() if sum(row.outcome == "completed" for row in rows) > 1
    }
    leases: dict[str, set[str]] = defaultdict(set)
    for entry in honoured:
        if entry.data["verb"] == "ack":
            leases[entry.data["job"]].add(entry.data["lease"])
    return sorted(completed | {job for job, found in leases.items() if len(found) > 1})


def _stale(
    honoured: Sequence[Entry], jobs: Mapping[str, JobRow], history: Mapping[str, list[AttemptRow]]
) -> list[str]:
    """Attempts that ended by the report of another one."""
    found = []
    outcomes = {(row.job, row.lease): row.outcome for rows in history.values() for row in rows}
    for entry in honoured:
        job, verb = entry.data["job"], entry.data["verb"]
        outcome = outcomes.get((job, entry.data["lease"]))
        if outcome != ("completed" if verb == "ack" else "failed"):
            found.append(f"{job}: {verb} of attempt {entry.data['attempt']} taken, it is {outcome}")
    for job, rows in history.items():
        for row in rows:
            by = _reported_by(jobs.get(job), row)
            if by is not None and by != row.attempt:
                found.append(f"{job}: attempt {row.attempt} {row.outcome} by the report of {by}")
    return found


def _reported_by(job: JobRow | None, row: AttemptRow) -> int | None:
    """The attempt that a report names: results and errors of the soak's handlers do."""
    if row.outcome == "completed" and job is not None and isinstance(job.result, dict):
        if job.result.get("lease", row.lease) != row.lease:
            return -1
        return job.result.get("attempt")
    message = str((row.error or {}).get("message", ""))
    if row.outcome == "failed" and message.startswith("attempt "):
        return int(message.removeprefix("attempt "))
    return None


def _without_effect(
    effects: Sequence[Entry], jobs: Sequence[JobRow], history: Mapping[str, list[AttemptRow]]
) -> list[str]:
    done = {(entry.data["job"], entry.data["attempt"]) for entry in effects}
    return [
        f"{row.job} attempt {row.attempt}"
        for job in jobs
        if job.state == "completed"
        for row in history[job.id]
        if row.outcome == "completed" and (row.job, row.attempt) not in done
    ]


def _duplicates(
    by_event: Mapping[str, Sequence[Entry]],
    history: Mapping[str, list[AttemptRow]],
    explained: Counter[str],
) -> list[str]:
    """Effects beyond a job's last one, counted by the outcome that explains them; the others.

    A workflow that is resumed counts the attempts of its jobs anew.
    """
    found = []
    outcomes: dict[tuple[str, int], list[str]] = defaultdict(list)
    for row in (row for rows in history.values() for row in rows if row.outcome != "released"):
        outcomes[row.job, row.attempt].append(row.outcome)
    runs = {which: len(known) for which, known in outcomes.items()}
    effects: dict[str, list[int]] = defaultdict(list)
    for entry in by_event["effect"]:
        effects[entry.data["job"]].append(entry.data["attempt"])
    for job, numbers in effects.items():
        for attempt in sorted(numbers)[:-1]:
            known = outcomes[job, attempt]
            explaining = [outcome for outcome in known if outcome in EXPLAINS]
            if explaining:
                known.remove(explaining[0])
                explained[explaining[0]] += 1
            else:
                which = ", ".join(known) or "not known"
                found.append(f"{job}: effect of attempt {attempt}, which is {which}")
    starts = Counter((entry.data["job"], entry.data["attempt"]) for entry in by_event["start"])
    found += [
        f"{job}: attempt {attempt} started {n} times"
        for (job, attempt), n in starts.items()
        if n > max(1, runs.get((job, attempt), 0))
    ]
    return found


def _false_stalls(
    by_event: Mapping[str, Sequence[Entry]],
    history: Mapping[str, list[AttemptRow]],
    origin: float,
    one_writer: bool,
) -> list[str]:
    """Attempts that had begun in a worker, and ended as stalled although nobody touched it.

    One that never began may be a claim whose answer was lost with a session.
    """
    touched: dict[str, list[float]] = defaultdict(list)
    for entry in by_event["fault"]:
        if "worker" in entry.data:
            held_up = one_writer and entry.data["kind"].startswith("suspend")
            whom = "everybody" if held_up else entry.data["worker"]
            touched[whom].append(entry.data["at"] / 1e9 + origin)
    begun = {(e.data["job"], e.data["attempt"]) for e in by_event["start"] if "lease" not in e.data}
    return [
        f"{job}: attempt {row.attempt} of {row.worker}"
        for job, rows in history.items()
        for row in rows
        if row.outcome == "stalled"
        and (job, row.attempt) in begun
        and not any(
            row.started_at.timestamp() - LONGEST_PAUSE < at < row.ended_at.timestamp()
            for at in (*touched[row.worker or ""], *touched["everybody"])
        )
    ]


def _paused(
    pauses: Sequence[Entry],
    jobs: Mapping[str, JobRow],
    history: Mapping[str, list[AttemptRow]],
    origin: float,
) -> list[str]:
    """Attempts that were claimed from a queue that was paused. Of two pauses of a queue at the same
    time the first that ends is the end of both.
    """
    found = []
    for entry in pauses:
        ends = [e.data["until"] for e in pauses if e.data["queue"] == entry.data["queue"]]
        since = entry.data["since"] / 1e9 + origin
        until = min(end for end in ends if end > entry.data["since"]) / 1e9 + origin
        found += [
            f"{row.job}: attempt {row.attempt} of {row.worker}"
            for rows in history.values()
            for row in rows
            if jobs[row.job].queue == entry.data["queue"]
            and since + CLOCKS < row.started_at.timestamp() < until - CLOCKS
        ]
    return found


def _ahead(jobs: Mapping[str, JobRow], history: Mapping[str, list[AttemptRow]]) -> list[str]:
    """Jobs of one attempt that were given back, where that is more than an executor's end explains."""
    singles = [row for rows in history.values() for row in rows if jobs[row.job].type == "soak.single"]
    back = [row for row in singles if row.outcome == "released"]
    if len(back) <= max(3, GIVEN_BACK * len(singles)):
        return []
    return [f"{row.job}: given back by {row.worker}" for row in back]


def _without_lease(
    by_event: Mapping[str, Sequence[Entry]], history: Mapping[str, list[AttemptRow]], origin: float
) -> list[str]:
    """Attempts that the server ended for silence, and whose handlers went on long after their worker
    could have learnt it from a beat.
    """
    back: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for entry in by_event["fault"]:
        if entry.data["kind"] == "suspend worker":
            at = entry.data["at"] / 1e9 + origin
            back[entry.data["worker"]].append(
                (at, entry.ns / 1e9 + origin + entry.data.get("lasts", 0.0))
            )
    outages = [
        (entry.data["at"] / 1e9 + origin, entry.ns / 1e9 + origin + entry.data.get("lasts", 0.0))
        for entry in by_event["fault"]
        if entry.data["kind"] in OUTAGES
    ]
    ended = {
        (row.job, row.attempt): row
        for rows in history.values()
        for row in rows
        if row.outcome == "stalled"
    }
    found = []
    for entry in by_event["step"]:
        row = ended.get((entry.data["job"], entry.data["attempt"]))
        if row is None:
            continue
        at = entry.ns / 1e9 + origin
        silent = [over for began, over in back[row.worker or ""] if began < at]
        since = max([row.ended_at.timestamp(), *silent])
        cut_off = any(began < at and since < over + CONNECTS_IN for began, over in outages)
        if at - since > LEARNS_IN and not cut_off:
            found.append(f"{row.job}: attempt {row.attempt} of {row.worker}, for {at - since:.1f} s")
    return found


def _late(
    by_event: Mapping[str, Sequence[Entry]],
    jobs: Mapping[str, JobRow],
    history: Mapping[str, list[AttemptRow]],
    origin: float,
    lasts_at_most: Callable[[str], float],
) -> list[str]:
    """Timeouts that came long after the limits of their jobs, and met no fault that moves them."""
    moved = [
        entry.data["at"] / 1e9 + origin
        for entry in by_event["fault"]
        if entry.data["kind"] in OUTAGES or entry.data["kind"].startswith("suspend")
    ]
    held = [
        (job, entry.data["at"] / 1e9 + origin)
        for entry in by_event["fault"]
        for job in entry.data.get("jobs", ())
    ]
    found = []
    for row in (row for rows in history.values() for row in rows if row.outcome == "timeout"):
        began, over = row.started_at.timestamp(), row.ended_at.timestamp()
        late = over - began - lasts_at_most(jobs[row.job].type)
        faults = [*moved, *(at for job, at in held if job == row.job)]
        if late > LATE and not any(began - SHOWS_IN < at < over for at in faults):
            found.append(f"{row.job}: attempt {row.attempt} timed out {late:.1f} s late")
    return found


def _recovery(
    faults: Sequence[Entry], history: Mapping[str, list[AttemptRow]], backoff: float, origin: float
) -> list[float]:
    """From the SIGKILL of a worker to the next start of each job that it ran, without the backoff."""
    killed = {
        entry.data["worker"]: entry.data["killed"] / 1e9 + origin
        for entry in faults
        if entry.data["kind"] == "kill worker"
    }
    found = []
    for rows in history.values():
        for row, following in pairwise(rows):
            at = killed.get(row.worker or "")
            if at is not None and row.started_at.timestamp() <= at < row.ended_at.timestamp():
                found.append(following.started_at.timestamp() - at - backoff)
    return sorted(found)


def _crashes(
    entries: Sequence[Entry], history: Mapping[str, list[AttemptRow]], origin: float
) -> list[float]:
    """From the end of an executor to the record of its failure."""
    found = []
    for entry in entries:
        if "attempt" not in entry.data:
            continue
        at = entry.data.get("killed", entry.ns) / 1e9 + origin
        found += [
            max(0.0, row.ended_at.timestamp() - at)
            for row in history[entry.data["job"]]
            if row.attempt == entry.data["attempt"] and row.outcome == "worker_crash"
        ]
    return sorted(found)


def percentile(values: Sequence[float], share: float) -> float | None:
    """The nearest of sorted values."""
    return values[min(len(values) - 1, int(share * len(values)))] if values else None
