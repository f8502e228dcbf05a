"""What the model found about a database clock that is set back."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest

from django_ojs.clock import FrozenClock
from django_ojs.models import Attempt
from django_ojs.services import up_to_date
from django_ojs.services.leases import beat
from django_ojs.services.reaper import scan
from tests.services.support import held, make, now_stored, take

pytestmark = pytest.mark.every_database
CADENCE = timedelta(seconds=5)


def outage(frozen: FrozenClock) -> Counter[str]:
    """Nobody looks for long; what the scan that finds it has ended."""
    scan(cadence=CADENCE, ran_by="test")
    frozen.advance(200)
    return scan(cadence=CADENCE, ran_by="test").counts


@pytest.mark.slow
@pytest.mark.fault("F75", "F100")
def test_an_outage_after_the_clock_was_set_back_stalls_nobody(
    ojs_db: None, frozen: FrozenClock
) -> None:
    """That there was an outage at a moment that is yet to come again does not hide the next one."""
    make(timeout=86_400)
    (job,) = take()
    assert not outage(frozen)
    frozen.advance(-7200)
    assert beat([held(job)])
    assert not outage(frozen)
    assert now_stored(job).lease_id == job.lease_id


def test_an_attempt_that_begins_after_an_outage_gets_no_air_for_it(
    ojs_db: None, frozen: FrozenClock
) -> None:
    """Not even if it begins at the very moment at which the outage was found to be over."""
    outage(frozen)
    make(timeout=10, grace_period=0)
    take()
    frozen.advance(10)
    assert scan(cadence=CADENCE, ran_by="test").counts == {"execution": 1}


def test_an_outage_at_a_moment_that_is_yet_to_come_again_moves_no_deadline(
    ojs_db: None, frozen: FrozenClock
) -> None:
    outage(frozen)
    frozen.advance(-7200)
    make(timeout=60, grace_period=5, visibility_timeout=12)
    (job,) = take(beats=False)
    frozen.advance(13)
    up_to_date.find_up_to_date(job.id)
    attempt = Attempt.objects.get(job_id=job.id)
    assert attempt.outcome == "visibility_timeout"
    assert attempt.deadline_at == job.deadline_at
