"""Rows that change although they are locked: the locks of a node of a Galera cluster are its own."""

from __future__ import annotations

from itertools import count

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_ojs import clock
from django_ojs.domain import lifecycle
from django_ojs.domain.errors import LeaseLost
from django_ojs.domain.job import JobRow, Transition
from django_ojs.models import Job
from django_ojs.services.claim import claim, sources
from django_ojs.store import claiming, transitions
from django_ojs.store.contention import LockLost, atomically
from tests.services.support import make, now_stored, take

pytestmark = [pytest.mark.usefixtures("ojs_db"), pytest.mark.every_database]


def stale() -> Transition:
    """What was decided about a job that has changed since."""
    make(1)
    (job,) = take()
    Job.objects.filter(pk=job.id).update(lease_id=clock.new_lease())
    return lifecycle.ack(job, result=None, now=clock.now("default"))


def test_a_decision_under_a_lock_that_did_not_hold_is_taken_again() -> None:
    decision, tries = stale(), count()

    def work() -> None:
        if next(tries) < 2:
            transitions.apply([decision], using="default")

    # An engine that refuses transactions lets those through whose statements are counted.
    with CaptureQueriesContext(connection):
        atomically("default", work)
    assert next(tries) == 3


@pytest.mark.slow
def test_one_that_never_holds_is_an_error() -> None:
    decision = stale()
    with pytest.raises(LockLost, match="1 of 1 jobs were no longer active as decided"):
        atomically("default", lambda: transitions.apply([decision], using="default"))


def test_one_without_a_lock_is_for_the_caller() -> None:
    decision, tries = stale(), count()

    def work() -> None:
        next(tries)
        transitions.apply([decision], seen=["deadline_at"], using="default")

    with pytest.raises(LeaseLost):
        atomically("default", work)
    assert next(tries) == 1


def test_a_claim_whose_lock_did_not_hold_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted, left = make(2)
    real, tries = claiming.first, count()

    def first(*args: object, **named: object) -> list[JobRow]:
        found: list[JobRow] = real(*args, **named)  # type: ignore[arg-type]
        if not next(tries):
            # As another node has it by now.
            found = [job._replace(lease_id=clock.new_lease()) for job in found]
        return found

    monkeypatch.setattr(claiming, "first", first)
    with CaptureQueriesContext(connection):
        (claimed,) = claim(sources(["default"], ["test.job"]), limit=1, worker_id="w1", beats=True)
    assert next(tries) == 2
    assert claimed.id == wanted.id and now_stored(left).state == "available"
