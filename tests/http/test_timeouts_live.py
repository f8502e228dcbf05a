"""Timeouts in real time, with a real server and a real reaper, and workers of our own making.

How each limit is computed is tested with a clock that stands still (``test_timeouts``,
``test_heartbeats``). Moments are compared that the server stored; whoever watches may be late.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from django_ojs.api import get
from django_ojs.domain.job_record import JobRecord
from django_ojs.models import Attempt
from tests.http.support import LiveApi, enqueue, fetch
from tests.http.timed import SLOW_RETRY, ack, after_start, beat, started
from tests.support import not_none, poll

pytestmark = [pytest.mark.every_database, pytest.mark.process]


def ended(job: dict[str, Any], *states: str) -> JobRecord:
    """The job as soon as its attempt is over, or it is in one of the states.

    The rows are looked at, not the API, which would do what is due by itself.
    """

    def over() -> bool:
        state = get(job["id"]).state
        return state in states if states else state != "active"

    poll(over, every=0.05)
    return get(job["id"])


def now_on(api: LiveApi) -> datetime:
    """The server's clock."""
    answer = api.post("/workers/heartbeat", {"worker_id": "watch"})
    return datetime.fromisoformat(answer.body["server_time"])


def is_discarded(job: dict[str, Any]) -> bool:
    """Whether it has been given up."""
    return get(job["id"]).state == "discarded"


def test_the_server_is_the_authority(live: LiveApi) -> None:
    """With workers that never say a word the server ends every attempt by itself, and not early."""
    retry = {"max_attempts": 2, "initial_interval_ms": 100, "jitter": False}
    job = enqueue(live, timeout=1, grace_period=0, retry=retry)
    leased = enqueue(live, queue="leased", visibility_timeout_ms=1000, retry={"max_attempts": 1})
    stalls = enqueue(live, queue="stalls", heartbeat_timeout=1, retry={"max_attempts": 1})
    total = enqueue(live, queue="total", total_timeout=60)
    for queue in ("leased", "stalls", "total"):
        assert len(fetch(live, queue, worker=None)) == 1
    unwanted = enqueue(live, queue="unwanted", enqueue_ttl=1)
    late = enqueue(live, queue="late", total_timeout=1)
    for number in (1, 2):
        got = poll(lambda: fetch(live, worker=None), every=0.05)
        assert got[0]["attempt"] == number
        ended(job)
    assert get(job["id"]).state == "discarded"
    outcomes = Attempt.objects.filter(job_id=job["id"]).order_by("lease_seq")
    assert [attempt.outcome for attempt in outcomes] == ["timeout"] * 2
    for stored in outcomes:
        assert stored.ended_at - stored.started_at >= timedelta(seconds=1)
    for other, of_type in (
        (leased, "visibility_timeout"),
        (stalls, "stalled"),
        (unwanted, "enqueue_ttl_expired"),
        (late, "total_timeout"),
    ):
        over = ended(other, "discarded")
        assert not_none(over.error)["type"] == of_type
    assert get(total["id"]).state == "active"


def test_the_grace_period(live: LiveApi) -> None:
    """The soft signal reaches a worker in a beat; the end comes at timeout plus grace."""
    terms: dict[str, Any] = {"timeout": 1, "grace_period": 20}
    good = started(live, queue="good", **terms)
    bad = started(live, queue="bad", timeout=1, grace_period=1, retry=SLOW_RETRY)

    def told() -> bool:
        return good["id"] in beat(live, good["worker_id"], good)["soft_timeout_jobs"]

    poll(told, every=0.1)
    assert now_on(live) >= after_start(good, 1)
    accepted = ack(live, good, result="just in time")
    assert (accepted.status, accepted.body["state"]) == (200, "completed")
    assert ended(bad).state == "retryable"
    assert Attempt.objects.get(job_id=bad["id"]).ended_at >= after_start(bad, 2)
    assert ack(live, bad).status == 409
    assert beat(live, bad["worker_id"], bad)["jobs_lost"] == [bad["id"]]


def test_beats_keep_a_job_beyond_its_heartbeat_timeout(live: LiveApi) -> None:
    """A stall clock and a visibility lease of six seconds each, and beats for longer than that."""
    stalls = started(live, queue="stalls", heartbeat_timeout=6, retry=SLOW_RETRY)
    enqueue(live, queue="leased")
    leased = fetch(live, "leased", worker="w-leased", visibility_timeout_ms=6000)[0]

    def beats_on() -> bool:
        for job in (stalls, leased):
            assert beat(live, job["worker_id"], job)["jobs_extended"] == [job["id"]]
        return now_on(live) > after_start(leased, 6.5)

    poll(beats_on, every=0.2)
    running = [get(job["id"]) for job in (stalls, leased)]
    assert [found.state for found in running] == ["active", "active"]
    for job, found, of_type in (
        (stalls, running[0], "stalled"),
        (leased, running[1], "visibility_timeout"),
    ):
        assert found.heartbeat_at is not None
        assert not_none(ended(job).error)["type"] == of_type
        over = Attempt.objects.get(job_id=job["id"]).ended_at
        assert over >= found.heartbeat_at + timedelta(seconds=6), "the last beat counts"
        assert over > after_start(job, 6.5)
