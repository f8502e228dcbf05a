"""What attempts have logged: stored beside their outcomes, and gone with their jobs."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import override_settings

from django_ojs import clock
from django_ojs.clock import FrozenClock
from django_ojs.domain.job import Actor, JobRow
from django_ojs.models import AttemptLog, Job
from django_ojs.services import attempt_logs, operate, prune
from django_ojs.services.attempt_logs import LoggedAttempt
from tests.services.support import ack, fail, held, holding, make, take
from tests.support import family

pytestmark = [pytest.mark.usefixtures("ojs_db"), pytest.mark.every_database]


def log(*jobs: JobRow, text: str = "one\ntwo", dropped: int = 0) -> None:
    """Store a log for the attempts of claimed jobs."""
    made = [LoggedAttempt(held(job), text, text.count("\n") + 1, dropped) for job in jobs]
    attempt_logs.write(made, using="default")


def stored() -> list[tuple[object, str, int, int]]:
    """The rows: of which lease, and what is in them."""
    rows = AttemptLog.objects.order_by("pk")
    return list(rows.values_list("lease_id", "text", "lines", "dropped"))


def test_a_later_log_of_an_attempt_takes_the_place_of_the_one_before() -> None:
    make(2)
    first, second = take(2)
    log(first, second)
    log(first, text="two\nthree\n…", dropped=1)
    assert stored() == [
        (first.lease_id, "two\nthree\n…", 3, 1),
        (second.lease_id, "one\ntwo", 2, 0),
    ]
    assert attempt_logs.of_job(first.id, most=5, using="default")[held(first).lease_id].lines == 3


@pytest.mark.skipif(family() == "sqlite", reason="it has one writer")
def test_the_row_of_the_job_is_not_waited_for() -> None:
    make()
    (job,) = take()
    with holding(job):
        log(job)
    assert len(stored()) == 1


def test_the_last_attempts_are_read() -> None:
    make(retry={"max_attempts": 3, "initial_interval": "PT1S", "jitter": False})
    found = []
    for _ in range(3):
        (job,) = take()
        log(job)
        fail(job)
        Job.objects.update(state="available", enqueued_at=clock.now("default"))
        found.append(job.lease_id)
    assert set(attempt_logs.of_job(job.id, most=2, using="default")) == set(found[1:])


def test_nothing_is_stored_for_a_job_that_is_gone() -> None:
    make(2)
    first, second = take(2)
    ack(first)
    operate.purge([first.id], actor=Actor("operator"))
    log(first, second)
    assert [lease for lease, *_ in stored()] == [second.lease_id]


def test_a_log_goes_with_its_job(frozen: FrozenClock) -> None:
    make(3)
    old, gone, runs = take(3)
    log(old, gone, runs)
    ack(old, gone)
    operate.purge([gone.id], actor=Actor("operator"))
    assert [lease for lease, *_ in stored()] == [old.lease_id, runs.lease_id]
    frozen.advance(8 * 86_400)
    assert prune.prune().counts["completed"] == 1
    assert [lease for lease, *_ in stored()] == [runs.lease_id]


def test_logs_have_a_retention_of_their_own(frozen: FrozenClock) -> None:
    make(2, retry={"max_attempts": 1})
    old, young = take(2)
    log(old)
    fail(old, young)
    frozen.advance(3 * 86_400)
    log(young)
    with override_settings(OJS={"RETENTION": {"logs": None}}):
        assert "logs" not in prune.prune().counts
    with override_settings(OJS={"RETENTION": {"logs": "48h"}}):
        assert prune.prune(dry_run=True).counts["logs"] == 1
        assert len(stored()) == 2
        assert prune.prune().counts["logs"] == 1
    assert [lease for lease, *_ in stored()] == [young.lease_id]
    assert Job.objects.count() == 2
    frozen.advance(timedelta(days=31).total_seconds())
    prune.prune()
    assert stored() == []
