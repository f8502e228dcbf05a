"""The history of a job is in the order in which things happened, also at one moment."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import override_settings

from django_ojs.clock import FrozenClock
from django_ojs.models import Job
from django_ojs.services import derived, promote, reap

from .support import fail, make, take

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("ojs_db")]


@override_settings(OJS={})
@pytest.mark.parametrize("later_ms", [0, 1])
def test_a_job_that_starts_at_the_moment_at_which_it_becomes_available(
    frozen: FrozenClock, later_ms: int
) -> None:
    """By the clock of its own session it may have become available a little later."""
    made = make(12, retry={"initial_interval": "1s", "jitter": False})
    fail(*take(12))
    frozen.advance(1)
    assert promote.promote() == 12
    assert len(take(12)) == 12
    Job.objects.update(enqueued_at=frozen.time + timedelta(milliseconds=later_ms))
    for job in made:
        kinds = [event.kind for event in derived.history(job.id)]
        assert kinds[-2:] == ["job.enqueued", "job.started"]
        assert kinds[:2] == ["job.enqueued", "job.started"]


@pytest.mark.parametrize("kept", ["problems", "all"])
def test_what_ended_an_attempt_comes_before_the_next(frozen: FrozenClock, kept: str) -> None:
    """A lapsed visibility lease makes its job available at once."""
    with override_settings(OJS={"EVENTS": kept}):
        (made,) = make(1)
        take(1, visibility_ms=1000)
        frozen.advance(2)
        reap.reap()
        take(1)
        kinds = [event.kind for event in derived.history(made.id)]
    starts = ["job.enqueued", "job.started"]
    assert kinds == [*starts, "job.stalled", "job.failed", *starts]
