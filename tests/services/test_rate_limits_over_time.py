"""What rate limits keep while jobs are retried, limits change, and keys and queues are forgotten."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import override_settings

from django_ojs.clock import FrozenClock
from django_ojs.domain.errors import InvalidRequest
from django_ojs.models import Queue, RateLimit
from django_ojs.services.prune import prune
from django_ojs.services.rate_limits import admission, operate, policies

from .support import ack, make, take

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("ojs_db")]

ONE = {"key": "a", "concurrency": 1}


def test_a_queue_with_a_limit_is_not_forgotten(frozen: FrozenClock) -> None:
    operate.override("queue:mail", {"concurrency": 1})
    Queue.objects.update(used_at=frozen.time)
    frozen.advance(8 * 86_400)
    prune()
    policies.forget_limited()
    make(3, queue="mail")
    assert len(take(3, queues=("mail",))) == 1


@pytest.mark.parametrize("by_settings", [False, True])
def test_a_new_limit_of_a_queue_that_had_another_holds_for_all_its_jobs(by_settings: bool) -> None:
    make(2, queue="mail")
    operate.override("queue:mail", {"concurrency": 1})
    operate.clear_override("queue:mail")
    policies.forget_limited()
    limit: dict[str, Any] = {"rate_limit": {"concurrency": 1}}
    with override_settings(OJS={"QUEUES": {"mail": limit} if by_settings else {}}):
        make(1, queue="mail", **({} if by_settings else limit))
        policies.forget_limited()
    assert len(take(3, queues=("mail",))) == 1


def test_an_override_with_a_shorter_window_forgets_no_starts(frozen: FrozenClock) -> None:
    make(4, rate_limit={"key": "a", "rate": {"limit": 2, "period": "1h"}})
    ack(*take(4))
    frozen.advance(2)
    until = frozen.time + timedelta(seconds=60)
    operate.override("a", {"rate": {"limit": 1, "period": "1s"}}, until=until)
    ack(*take(4))
    frozen.advance(61)
    admission.admit_due(using="default")
    assert take(4) == []


def test_an_override_holds_over_a_policy_that_cannot_be_read() -> None:
    make(1, rate_limit={"key": "a", "rate": {"limit": 0, "period": "1h"}})
    RateLimit.objects.update(policy={"rate": "many"})
    operate.override("a", {"rate": {"limit": 1, "period": "1s"}})
    assert len(take(1)) == 1


def test_a_blocked_key_is_not_forgotten(frozen: FrozenClock) -> None:
    operate.block("a", frozen.time + timedelta(days=10))
    operate.block("b", frozen.time + timedelta(days=1))
    RateLimit.objects.update(used_at=frozen.time)
    frozen.advance(8 * 86_400)
    prune()
    assert [row.key for row in RateLimit.objects.all()] == ["a"]
    make(1, rate_limit=ONE)
    assert take(1) == []


def test_a_queue_with_the_longest_name_can_have_a_limit() -> None:
    queue = "q" * 255
    make(3, queue=queue, rate_limit={"concurrency": 1})
    operate.override(f"queue:{queue}", {"concurrency": 2})
    assert len(take(3, queues=(queue,))) == 2
    with pytest.raises(InvalidRequest):
        operate.override(f"queue:{queue}q", {"concurrency": 2})
