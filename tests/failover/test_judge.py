"""The judge of a failover on given rows and effects, with one thing wrong at a time."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.failover.enqueuer import Ack
from tests.failover.judge import SOON, Attempt, Figures, Rows, judge
from tests.failover.report import Result, table
from tests.lab.effects import Effect

pytestmark = pytest.mark.tool

PROMOTED = 100.0
LIVING, LATER = "living", "later"
ACKS = [Ack(LIVING, "live", 90.0), Ack(LATER, "quick", 95.0)]
STATES = {LIVING: "completed", LATER: "completed"}


def ended(job: str, outcome: str = "completed", number: int = 1, lease: str | None = None) -> Attempt:
    return Attempt(job, lease or f"{job}-{number}", outcome, number)


def ran(job: str, number: int = 1, moment: float = PROMOTED + 2) -> list[Effect]:
    return [Effect(job, number, what, 1, moment) for what in ("start", "done")]


ENDED = [ended(LIVING), ended(LATER)]
DONE = [*ran(LIVING, moment=91.0), *ran(LATER)]


def judged(
    *,
    acks: Sequence[Ack] = ACKS,
    done: Sequence[Effect] = DONE,
    states: dict[str, str] = STATES,
    attempts: Sequence[Attempt] = ENDED,
    on_old: Sequence[Attempt] = (),
) -> Figures:
    """A job that outlasts the failover and one that is claimed after it, but for what is given."""
    return judge(
        acks=acks,
        done=done,
        after=Rows(states, list(attempts)),
        on_old=on_old,
        promoted=PROMOTED,
        taken=[LIVING],
    )


def test_nothing_wrong_is_good() -> None:
    found = judged()
    assert (found.counts(), found.unheard, found.unfinished) == ((0, 0, 0, 0), 0, 0)
    assert (found.acknowledged, found.claims_after) == (2, 2.0)
    assert found.good()


def test_an_acknowledged_job_that_is_not_there_is_lost() -> None:
    found = judged(acks=[*ACKS, Ack("gone", "quick", 99.0)])
    assert found.counts() == (1, 0, 0, 0)
    assert found.said == ["quick gone is not there"]
    assert not found.good()
    assert found.good(lossy=True), "the price of a standby that is not synchronous"


def test_a_job_that_was_settled_twice_is_reported() -> None:
    found = judged(attempts=[*ENDED, ended(LATER, number=2)])
    assert found.counts() == (0, 1, 0, 0)
    assert found.said == ["later ran 1 times and was settled 2 times"]
    assert not found.good()


def test_a_job_that_ran_twice_is_reported() -> None:
    found = judged(done=[*DONE, *ran(LATER, 2)])
    assert found.counts() == (0, 1, 0, 0)
    assert not found.good()


@pytest.mark.parametrize("job", [LIVING, LATER])
def test_an_attempt_that_began_and_was_taken_is_lost(job: str) -> None:
    again = [one for one in ENDED if one.job != job] + [ended(job, "stalled"), ended(job, number=2)]
    starts = [Effect(job, 1, "start", 1, 91.0), *ran(job, 2)]
    found = judged(done=[one for one in DONE if one.job != job] + starts, attempts=again)
    assert found.counts() == (0, 0, 0, 1)
    assert found.said == [f"an attempt of {job} ended: stalled"]
    assert not found.good()


def test_a_claim_whose_answer_was_lost_is_no_attempt() -> None:
    again = [ended(LIVING), ended(LATER, "stalled"), ended(LATER, number=2)]
    found = judged(done=[*ran(LIVING, moment=91.0), *ran(LATER, 2)], attempts=again)
    assert (found.counts(), found.unheard) == ((0, 0, 0, 0), 1)
    assert found.good()


def test_a_settlement_that_only_the_old_primary_knows_is_reported() -> None:
    found = judged(on_old=[ended(LIVING), ended(LATER, lease="other")])
    assert found.counts() == (0, 0, 1, 0)
    assert found.said == ["later was completed on the old primary alone"]
    assert not found.good()


@pytest.mark.parametrize("state", ["available", "active", "discarded"])
def test_a_job_that_does_not_end_well_is_reported(state: str) -> None:
    found = judged(states=STATES | {LATER: state})
    assert found.unfinished == 1
    assert not found.good() and not found.good(lossy=True)


@pytest.mark.parametrize(
    ("moment", "after"), [(PROMOTED + SOON, SOON), (PROMOTED + SOON + 0.1, SOON + 0.1), (99.0, None)]
)
def test_claims_have_to_come_soon(moment: float, after: float | None) -> None:
    found = judged(done=[*ran(LIVING, moment=PROMOTED + 1), *ran(LATER, moment=moment)])
    assert found.claims_after == (None if after is None else pytest.approx(after))
    assert found.good() is (after == SOON)


def test_the_table_says_what_was_wrong() -> None:
    wrong = Result("one that loses", judged(acks=[*ACKS, Ack("gone", "quick", 99.0)]))
    text = table([Result("a good one", judged()), wrong, Result("another", skipped="not here")])
    good, bad, left_out = text.splitlines()[2:5]
    assert good.split()[-1] == "good"
    assert bad.split()[-1] == "FAILED"
    assert left_out.endswith("skipped: not here")
    assert "one that loses: quick gone is not there" in text
    assert "2 cases, 1 failed, 1 skipped" in text
