"""The judge: the file of effects and SQL of its own. It imports nothing of the product.

Deadlines are in seconds since the boot. What the rule of silence leaves of one is decided here from
the times in which the lab itself kept the database from answering: see :func:`left`.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from tests.lab import effects, raw
from tests.lab.effects import Effect

HEARTBEAT = 4
"""The heartbeat timeout of every job of the lab."""
REPORT = 15.0
"""How long a running job may take to report after the database was away."""
LATE = 1.0
"""How late a deadline on a row that nobody holds may be enforced."""
CALM = 6.0
"""How long after a step of the server's clock no silence is judged (ADR 15)."""
EARLY = 0.1
LOOK = 0.03

TERMINAL = ("completed", "cancelled", "discarded")
OWN_END = ("completed", "released")


class Block(NamedTuple):
    """Time in which the lab kept everybody from the database."""

    start: float
    end: float


@dataclass(frozen=True)
class Probe:
    """A job on a row that nobody holds, with a deadline that must be kept.

    ``kind`` is ``ttl`` (enqueue TTL), ``silent`` (a lease whose holder never beats) or ``overrun`` (an
    execution timeout whose holder never reports). It was made at some moment from ``begun`` on that
    lasted ``making`` seconds; ``due`` counts from its end.
    """

    job: str
    kind: str
    begun: float
    due: float
    making: float = 0.0


def left(probe: Probe, blocks: Iterable[Block], steps: Iterable[float] = ()) -> float:
    """The deadline that the rule leaves.

    What falls due while nobody can write, or so shortly before that it was not late yet, is due when
    everybody can; a silent holder gets a whole heartbeat timeout after it, and one that runs has time
    for its report. ``steps`` are the moments at which the server's clock was set: a while after each
    no silence is judged.
    """
    due = probe.due
    for step in steps:
        if probe.kind == "silent" and step <= due:
            due = max(due, step + CALM)
    for block in blocks:
        if block.end <= probe.begun or block.start - LATE >= due:
            continue
        if probe.kind == "silent":
            due = max(due, block.end + HEARTBEAT)
        elif block.start - LATE <= due <= block.end:
            due = block.end + (REPORT if probe.kind == "overrun" else 0.0)
    return due


def stalled(probe: Probe, end: float, stalls: Sequence[Block], blocks: Sequence[Block]) -> float:
    """For how long the machine itself stood still, as far as it may have made a deadline late: since
    the holder was last heard, or about when it was due. What the lab did is not counted again.
    """
    start = probe.begun if probe.kind == "silent" else probe.due - LATE
    moments = {start, end, *(moment for block in (*stalls, *blocks) for moment in block)}
    return sum(
        after - before
        for before, after in pairwise(sorted(moments))
        if start <= before < end
        and any(one.start <= before < one.end for one in stalls)
        and not any(one.start <= before < one.end for one in blocks)
    )


class Watch(threading.Thread):
    """Looks at some jobs all the time and notes when each was first seen in each state.

    ``jobs`` is asked at each look which. They are read by their key: reading a large table would
    take processors from those who are judged, and date each moment by the end of a long look.
    """

    def __init__(self, url: str, jobs: Callable[[], Sequence[str]]) -> None:
        super().__init__(daemon=True, name="watch")
        self._url = url
        self._jobs = jobs
        self._over = threading.Event()
        self._beats: dict[str, tuple[str, Any]] = {}
        self.seen: dict[str, dict[str, float]] = {}
        self.left_active: dict[str, float] = {}
        self.backwards: list[str] = []
        self.looks = 0

    def run(self) -> None:
        """Until :meth:`stop`; a lost session is opened again."""
        while not self._over.is_set():
            try:
                with raw.session(self._url) as session:
                    while not self._over.wait(LOOK):
                        self.look(session)
            except Exception:
                self._over.wait(0.1)

    def stop(self) -> None:
        """End it."""
        self._over.set()
        self.join(60)

    def look(self, session: raw.Session) -> None:
        """Once."""
        jobs = [session.id(job) for job in self._jobs()]
        marks = ", ".join(["%s"] * len(jobs)) or "NULL"
        rows = session.run(
            f"SELECT id, state, lease_id, heartbeat_at FROM django_ojs_job WHERE id IN ({marks})", *jobs
        )
        moment = effects.now()
        for job_id, state, lease, beat in rows:
            job = raw.uuid(job_id)
            states = self.seen.setdefault(job, {})
            if state != "active" and "active" in states:
                self.left_active.setdefault(job, moment)
            states.setdefault(state, moment)
            before = self._beats.get(job)
            if before and before[0] == str(lease) and beat is not None and beat < before[1]:
                self.backwards.append(job)
            if lease is not None and beat is not None:
                self._beats[job] = (str(lease), beat)
            else:
                self._beats.pop(job, None)
        self.looks += 1

    def ended(self, probe: Probe) -> float | None:
        """When a probe was first seen to have been ended."""
        if probe.kind != "ttl":
            return self.left_active.get(probe.job)
        found = [self.seen.get(probe.job, {}).get(state) for state in TERMINAL]
        return min((moment for moment in found if moment is not None), default=None)


@dataclass
class Figures:
    """What came of a round, or of several; all but the times must be zero or empty."""

    rounds: int = 0
    stalls: int = 0
    repeated: int = 0
    lost: int = 0
    lateness: float | None = None
    report: float | None = None
    """The longest time from a handler's end to its record; it is printed, not judged."""
    wrong: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    """The deadlines that were enforced too late."""
    excused: list[str] = field(default_factory=list)
    """The same, where the machine itself stood still for as long; it is printed, not judged."""

    @property
    def good(self) -> bool:
        """Whether everything that must be zero is, and no deadline was late."""
        return not (self.stalls or self.repeated or self.lost or self.wrong or self.late)

    def add(self, other: Figures) -> None:
        """Sum up; of times the worst."""
        self.rounds += other.rounds
        self.stalls += other.stalls
        self.repeated += other.repeated
        self.lost += other.lost
        self.lateness = _worst(self.lateness, other.lateness)
        self.report = _worst(self.report, other.report)
        self.wrong += other.wrong
        self.late += other.late
        self.excused += other.excused


class Attempt(NamedTuple):
    """An attempt that has ended."""

    job: str
    outcome: str


def judge(
    *,
    states: dict[str, str],
    attempts: Sequence[Attempt],
    done: Sequence[Effect],
    living: Sequence[str],
    cancelled: Sequence[str] = (),
    probes: Sequence[Probe] = (),
    blocks: Sequence[Block] = (),
    steps: Sequence[float] = (),
    stalls: Sequence[Block] = (),
    excuse: bool = False,
    watch: Watch,
) -> Figures:
    """The figures of a round: ``living`` are the jobs whose handlers were alive all the time.

    ``stalls`` are the times in which the machine itself stood still. They are told beside a deadline
    that was late, and with ``excuse`` they are subtracted first.
    """
    found = Figures(rounds=1)
    ours = set(living)
    for attempt in attempts:
        own = OWN_END if attempt.job not in cancelled else (*OWN_END, "cancelled")
        if attempt.job in ours and attempt.outcome not in own:
            found.stalls += 1
            found.wrong.append(f"{attempt.job} lives, and an attempt of it ended: {attempt.outcome}")
    times = Counter(effect.job for effect in done if effect.what == "done")
    found.repeated = sum(count - 1 for count in times.values() if count > 1)
    for job in living:
        good = ("completed",) if job not in cancelled else ("completed", "cancelled")
        if states.get(job) not in good or (job not in cancelled and not times[job]):
            found.lost += 1
            found.wrong.append(f"{job} is {states.get(job)}, its effects: {times[job]}")
    for probe in probes:
        due, moment = left(probe, blocks, steps), watch.ended(probe)
        if moment is None:
            found.lost += 1
            found.wrong.append(f"{probe.kind} {probe.job} was never ended: {states.get(probe.job)}")
            continue
        first = probe.due - probe.making
        if moment < first - EARLY:
            found.wrong.append(f"{probe.kind} {probe.job} was ended {first - moment:.2f} s early")
        found.lateness = _worst(found.lateness, max(0.0, moment - due))
        if moment - due >= LATE:
            stood = stalled(probe, moment, stalls, blocks)
            line = f"{probe.kind} {probe.job} was ended {moment - due:.2f} s late"
            if stood:
                line += f", and the machine stood still for {stood:.2f} s"
            excused = excuse and moment - due - stood < LATE
            (found.excused if excused else found.late).append(line)
    for effect in done:
        moment = watch.seen.get(effect.job, {}).get("completed")
        if effect.what == "done" and effect.job in ours and moment is not None:
            found.report = _worst(found.report, max(0.0, moment - effect.moment))
    found.wrong += [f"the beat of {job} went backwards" for job in watch.backwards if job in ours]
    return found


def rows(url: str) -> tuple[dict[str, str], list[Attempt]]:
    """The states of all jobs, and the attempts that have ended."""
    with raw.session(url) as session:
        states = {
            raw.uuid(job): state
            for job, state in session.run("SELECT id, state FROM django_ojs_job WHERE queue <> 'mass'")
        }
        ended = session.run("SELECT job_id, outcome FROM django_ojs_attempt ORDER BY id")
    return states, [Attempt(raw.uuid(job), outcome) for job, outcome in ended]


def _worst(one: float | None, other: float | None) -> float | None:
    known = [value for value in (one, other) if value is not None]
    return max(known, default=None)
