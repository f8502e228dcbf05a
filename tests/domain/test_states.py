"""The table of transitions: what it has can be constructed, and nothing else (OJS core 6)."""

from __future__ import annotations

from itertools import product

import pytest

from django_ojs.domain.errors import Conflict, InvalidTransition
from django_ojs.domain.job import Transition
from django_ojs.domain.states import (
    ARROWS,
    FENCED,
    LIVE,
    TERMINAL,
    WAITING,
    State,
    Trigger,
    sources_of,
)
from tests.domain.records import LEASE, in_state, record

# Written out here and not derived from the table, so that an arrow cannot appear unnoticed.
_ROWS = """
    activate pending available | activate pending scheduled
    promote scheduled available | promote retryable available
    claim available active
    ack active completed
    fail active retryable | fail active discarded
    requeue active available
    release active available
    rate_limit available scheduled
    rate_limit available discarded
    timeout active retryable | timeout active discarded
    stall active retryable | stall active discarded
    lapse active available | lapse active discarded
    extend active active
    recover active active
    retry discarded available
    resume discarded available | resume cancelled available
    reschedule scheduled scheduled | reschedule scheduled available
    reschedule retryable retryable | reschedule retryable available
    expire scheduled discarded | expire available discarded | expire pending discarded
    total_timeout scheduled discarded | total_timeout available discarded
    total_timeout pending discarded | total_timeout retryable discarded
    total_timeout active discarded
    cancel scheduled cancelled | cancel available cancelled | cancel pending cancelled
    cancel retryable cancelled | cancel active cancelled
    discard scheduled discarded | discard available discarded | discard pending discarded
    discard retryable discarded
    edit scheduled scheduled | edit available available | edit pending pending
    edit retryable retryable
"""
LEGAL: set[tuple[str | None, ...]] = {
    tuple(row.split()) for row in _ROWS.replace("|", "\n").splitlines() if row.strip()
}
FROM_OR_TO_NOWHERE = {
    ("enqueue", None, "available"),
    ("enqueue", None, "scheduled"),
    ("enqueue", None, "pending"),
    ("purge", "completed", None),
    ("purge", "cancelled", None),
    ("purge", "discarded", None),
}
EVERY = sorted(product(Trigger, State, State))


def test_the_table_is_the_one_written_here() -> None:
    assert {tuple(arrow) for arrow in ARROWS} == LEGAL | FROM_OR_TO_NOWHERE
    assert len(EVERY) == len(Trigger) * 64


@pytest.mark.parametrize("trigger", list(Trigger))
def test_every_state_and_target(trigger: Trigger) -> None:
    tried = 0
    for source, target in product(State, State):
        job = in_state(source, lease_id=LEASE)
        if (trigger, source, target) in LEGAL:
            move = Transition(trigger, job, target, {"priority": 7})
            assert move.source is source
            assert move.written == job._replace(state=target.value, priority=7)
            assert type(move.written.state) is str
            assert (trigger, source, target) in ARROWS
        else:
            with pytest.raises(InvalidTransition) as caught:
                Transition(trigger, job, target, {})
            assert caught.value.details["current_state"] == source.value
            assert caught.value.details["job_id"] == str(job.id)
            assert (trigger, source, target) not in ARROWS
        tried += 1
    assert tried == 64


@pytest.mark.parametrize(("trigger", "source", "target"), sorted(LEGAL, key=str))
def test_reports_need_a_lease(trigger: str, source: str, target: str) -> None:
    job = in_state(source, lease_id=None)
    if trigger in ("ack", "fail", "requeue", "release"):
        with pytest.raises(InvalidTransition, match="needs a lease"):
            Transition(Trigger(trigger), job, State(target), {})
    else:
        assert Transition(Trigger(trigger), job, State(target), {}).target == target


def test_fenced_triggers_start_from_active_only() -> None:
    assert {str(trigger) for trigger in FENCED} == {"ack", "fail", "requeue", "release"}
    for trigger in FENCED:
        assert sources_of(trigger) == {State.ACTIVE}


def test_states_are_parted() -> None:
    assert WAITING | TERMINAL | {State.ACTIVE} == set(State)
    assert not WAITING & TERMINAL
    assert WAITING | {State.ACTIVE} == LIVE


def test_what_leads_out_of_the_terminal_states() -> None:
    def out_of(state: State) -> set[Trigger]:
        return {arrow.trigger for arrow in ARROWS if arrow.source == state}

    assert out_of(State.COMPLETED) == {Trigger.PURGE}
    assert out_of(State.CANCELLED) == {Trigger.PURGE, Trigger.RESUME}
    assert out_of(State.DISCARDED) == {Trigger.PURGE, Trigger.RETRY, Trigger.RESUME}


def test_every_state_can_be_reached_and_every_trigger_is_used() -> None:
    assert {arrow.target for arrow in ARROWS} - {None} == set(State)
    assert {arrow.trigger for arrow in ARROWS} == set(Trigger)


def test_an_invalid_transition_is_a_conflict() -> None:
    assert issubclass(InvalidTransition, Conflict)
    assert InvalidTransition.code == "conflict"


def test_the_source_is_a_state_even_for_an_unknown_text() -> None:
    with pytest.raises(ValueError, match="asleep"):
        Transition(Trigger.ACK, record(state="asleep"), State.COMPLETED, {})
