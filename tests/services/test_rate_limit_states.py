"""What a rate limit says of itself, and that many are read by as many statements as one."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_ojs.clock import FrozenClock
from django_ojs.models import RateLimit
from django_ojs.services.rate_limits import operate, read

from .support import make, take

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("ojs_db")]

LIMITS: dict[str, dict[str, Any]] = {
    "busy": {"concurrency": 2},
    "both": {"concurrency": 9, "rate": {"limit": 2, "period": "1h"}},
    "rate": {"rate": {"limit": 3, "period": "1h"}},
    "spaced": {"throttle": {"limit": 1, "period": "1m"}},
    "twice": {"rate": {"limit": 2, "period": "1h"}, "throttle": {"limit": 1, "period": "2h"}},
}


def use(key: str, jobs: int, starts: int) -> None:
    """Enqueue jobs of the key, and start some."""
    make(jobs, queue=key, rate_limit={"key": key, **LIMITS[key]})
    assert len(take(starts, queues=(key,))) == starts


def test_each_says_what_is_taken_and_when_it_opens(frozen: FrozenClock) -> None:
    use("rate", 4, 1)
    frozen.advance(10)
    use("busy", 4, 1)
    use("both", 5, 2)
    use("spaced", 2, 1)
    use("twice", 2, 1)
    operate.block("blocked", frozen.time + timedelta(minutes=5))
    operate.override("unused", {"concurrency": 1})
    rows = list(RateLimit.objects.order_by("key"))
    with CaptureQueriesContext(connection) as seen:
        states = read.states(rows, frozen.time, "default")
    found = {
        state.row.key: (state.running, state.admitted, state.waiting, state.full) for state in states
    }
    assert found == {
        "blocked": (0, 0, 0, True),
        "both": (2, 0, 3, True),
        "busy": (1, 1, 2, True),
        "rate": (1, 2, 1, True),
        "spaced": (1, 0, 1, True),
        "twice": (1, 0, 1, True),
        "unused": (0, 0, 0, False),
    }
    hour = timedelta(hours=1)
    starts = {state.row.key: (state.starts, state.resets_at) for state in states if state.starts}
    assert starts == {
        "both": (2, frozen.time + hour),
        "rate": (1, frozen.time + hour - timedelta(seconds=10)),
        "twice": (1, frozen.time + hour),
    }
    opens = {state.row.key: state.opens_at for state in states if state.opens_at}
    assert opens == {
        "blocked": frozen.time + timedelta(minutes=5),
        "both": frozen.time + hour,
        "rate": frozen.time + hour - timedelta(seconds=10),
        "spaced": frozen.time + timedelta(minutes=1),
        "twice": frozen.time + 2 * hour,
    }
    spaced = {state.row.key: state.next_start_at for state in states if state.next_start_at}
    assert spaced == {
        "spaced": frozen.time + timedelta(minutes=1),
        "twice": frozen.time + 2 * hour,
    }
    assert [state.row.key for state in states if state.overridden] == ["unused"]
    assert len(seen) == 2


def test_what_has_left_its_window_counts_no_more(frozen: FrozenClock) -> None:
    use("twice", 2, 1)
    frozen.advance(3601)
    state = read.state_of("twice", using="default")
    assert (state.starts, state.resets_at) == (0, None)
    frozen.advance(3601)
    state = read.state_of("twice", using="default")
    assert state.next_start_at == frozen.time


def test_more_than_one_statement_takes_are_read_in_order(frozen: FrozenClock) -> None:
    both = {"rate": {"limit": 1, "period": "1h"}, "throttle": {"limit": 1, "period": "1m"}}
    for number in range(301):
        operate.override(f"k{number:03}", both)
    rows = RateLimit.objects.order_by("key")
    found = read.states(rows, frozen.time, "default")
    assert [state.row.key for state in found] == [f"k{number:03}" for number in range(301)]
    assert {(state.waiting, state.full) for state in found} == {(0, False)}
