"""Retries that come due together."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest

from django_ojs import clock
from django_ojs.models import Job
from django_ojs.services import promote
from tests.services.support import fail, make, take
from tests.support import not_none


@pytest.mark.slow
@pytest.mark.fault("F128")
def test_a_herd_of_retries_is_spread(ojs_db: None, frozen: clock.FrozenClock) -> None:
    """Three hundred fail at one moment; they come back over the whole width of the jitter."""
    count = 300
    make(count, retry={"initial_interval": "PT100S", "jitter": True})
    fail(*take(count))
    due = sorted(map(not_none, Job.objects.values_list("scheduled_at", flat=True)))
    waits = [(moment - frozen.time).total_seconds() for moment in due]
    assert 50 <= waits[0] <= waits[-1] < 150
    by_tenth = Counter(int((wait - 50) // 10) for wait in waits)
    assert len(by_tenth) == 10
    assert max(by_tenth.values()) < count / 4
    frozen.time = due[-1] + timedelta(milliseconds=1)
    assert promote.promote(limit=120) == 120
    assert promote.promote() == count - 120
    assert set(Job.objects.values_list("state", flat=True)) == {"available"}
