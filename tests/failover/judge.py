"""The judge of a failover: acknowledgements, effects, and rows read with SQL of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.failover.enqueuer import Ack
from tests.lab import raw
from tests.lab.effects import Effect

OWN_END = ("completed", "released")
"""How the attempt of a worker that lives may end."""
SOON = 10.0
"""Within how many seconds of the promotion jobs are claimed again."""


class Attempt(NamedTuple):
    """An attempt that has ended, as a server shows it."""

    job: str
    lease: str
    outcome: str
    number: int


@dataclass(frozen=True)
class Rows:
    """What a server shows."""

    states: dict[str, str]
    attempts: list[Attempt]


def rows(session: raw.Session) -> Rows:
    """The jobs and the attempts that have ended."""
    states = session.run("SELECT id, state FROM django_ojs_job")
    ended = session.run("SELECT job_id, lease_id, outcome, attempt FROM django_ojs_attempt ORDER BY id")
    return Rows(
        {raw.uuid(job): state for job, state in states},
        [
            Attempt(raw.uuid(job), raw.uuid(lease), outcome, number)
            for job, lease, outcome, number in ended
        ],
    )


@dataclass
class Figures:
    """What came of a case. With a standby that is not synchronous, ``lost`` and ``twice`` are the
    price, which is said and not judged.
    """

    acknowledged: int = 0
    lost: int = 0
    twice: int = 0
    settled_on_old: int = 0
    attempts_lost: int = 0
    unheard: int = 0
    """Claims that were committed while the answer was lost: no handler began, so it is no attempt,
    and it ends after the heartbeat timeout.
    """
    unfinished: int = 0
    claims_after: float | None = None
    wrong: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What is printed and not judged."""
    said: list[str] = field(default_factory=list)

    def good(self, *, lossy: bool = False) -> bool:
        """Whether everything is zero that has to be."""
        counts = [self.unfinished] if lossy else [*self.counts(), self.unfinished]
        soon = self.claims_after is not None and self.claims_after <= SOON
        return not any(counts) and soon and not self.wrong

    def counts(self) -> tuple[int, ...]:
        """What a failover must not cost."""
        return self.lost, self.twice, self.settled_on_old, self.attempts_lost


def judge(
    *,
    acks: Sequence[Ack],
    done: Sequence[Effect],
    after: Rows,
    on_old: Iterable[Attempt] = (),
    promoted: float,
    taken: Iterable[str],
) -> Figures:
    """The figures.

    ``after`` is what the new primary shows in the end, ``on_old`` what the old one had acknowledged
    when it was ended: whoever reads it sees no commit that still waits for the standby. ``taken`` are
    the jobs that were active at the promotion.
    """
    found = Figures(acknowledged=len(acks))
    for ack in acks:
        state = after.states.get(ack.job)
        if state is None:
            found.lost += 1
            found.said.append(f"{ack.kind} {ack.job} is not there")
        elif state != "completed":
            found.unfinished += 1
            found.said.append(f"{ack.kind} {ack.job} is {state}")
    ran = Counter(effect.job for effect in done if effect.what == "done")
    completed = Counter(one.job for one in after.attempts if one.outcome == "completed")
    for job in sorted(ran | completed):
        if (times := max(ran[job], completed[job])) > 1:
            found.twice += times - 1
            found.said.append(f"{job} ran {ran[job]} times and was settled {completed[job]} times")
    known = {(one.job, one.lease) for one in after.attempts}
    stray = [one for one in on_old if (one.job, one.lease) not in known]
    found.settled_on_old = len(stray)
    found.said += [f"{one.job} was {one.outcome} on the old primary alone" for one in stray]
    began = {(one.job, one.attempt) for one in done if one.what == "start"}
    ended = [one for one in after.attempts if one.outcome not in OWN_END]
    lost = [one for one in ended if (one.job, one.number) in began]
    found.unheard = len(ended) - len(lost)
    found.attempts_lost = len(lost)
    found.said += [f"an attempt of {one.job} ended: {one.outcome}" for one in lost]
    before = set(taken)
    starts = [one.moment for one in done if one.job not in before and one.moment > promoted]
    found.claims_after = min(starts, default=promoted + 1e9) - promoted if starts else None
    return found
