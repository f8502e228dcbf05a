"""What rate limits keep while jobs are retried, limits change, and keys and queues are forgotten."""

from __future__ import annotations

import pytest

from django_ojs import batch, get_workflow, step
from django_ojs.api import retry
from django_ojs.services.rate_limits.policies import LIMITED

from .support import ack, fail, now_stored, take

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("ojs_db")]

ONE = {"key": "a", "concurrency": 1}
ONCE = {"max_attempts": 1}


def test_a_member_that_is_retried_too_late_stays_detached_from_its_workflow() -> None:
    member = step("test.job", rate_limit=ONE, retry=ONCE)
    made = batch(member, on_complete=step("test.callback")).enqueue()
    (failed,) = take(1)
    fail(failed)
    retry(failed.id)
    assert now_stored(failed).hooks == LIMITED
    ack(*take(1))
    assert get_workflow(made).open == 0
    ack(*take(1, types=("test.callback",)))
    ended = get_workflow(made)
    assert (ended.open, ended.state, ended.failed) == (0, "completed", 1)
