"""Every event about a job says which state it led to."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import override_settings

from django_ojs.clock import FrozenClock
from django_ojs.domain.durations import format_instant
from django_ojs.domain.job import Actor
from django_ojs.models import Event
from django_ojs.services import leases, operate, promote, reap
from django_ojs.signals import job_heartbeat
from tests.services.support import ack, fail, held, make, take

pytestmark = pytest.mark.usefixtures("ojs_db")


def told() -> list[tuple[str, str]]:
    """Kind and state of the events of jobs in order."""
    rows = Event.objects.filter(kind__startswith="job.").order_by("pk")
    return [(row.kind, row.data["state"]) for row in rows]


def test_the_states_of_a_job_that_is_retried_and_completed(frozen: FrozenClock) -> None:
    job = make(delay="1m", retry={"initial_interval": "PT1S", "jitter": False})[0]
    frozen.advance(61)
    promote.promote()
    fail(*take())
    frozen.advance(2)
    promote.promote()
    ack(*take())
    assert told() == [
        ("job.scheduled", "scheduled"),
        ("job.enqueued", "available"),
        ("job.started", "active"),
        ("job.failed", "retryable"),
        ("job.retrying", "retryable"),
        ("job.enqueued", "available"),
        ("job.started", "active"),
        ("job.completed", "completed"),
    ]
    assert {row.data["job_id"] for row in Event.objects.filter(kind__startswith="job.")} == {
        str(job.id)
    }


def test_the_states_of_jobs_that_end_otherwise(frozen: FrozenClock) -> None:
    late = make(enqueue_ttl=1)[0]
    frozen.advance(2)
    reap.reap(limit=10)
    gone = make()[0]
    operate.cancel([gone.id], actor=Actor())
    assert told() == [
        ("job.enqueued", "available"),
        ("job.ttl_expired", "discarded"),
        ("job.expired", "discarded"),
        ("job.discarded", "discarded"),
        ("job.enqueued", "available"),
        ("job.cancelled", "cancelled"),
    ]
    assert late.id != gone.id


def test_a_beat_is_told_where_events_are_stored() -> None:
    make()
    job = take()[0]
    renewed = leases.beat([held(job)])
    leases.announce(renewed)
    row = Event.objects.get(kind="job.heartbeat")
    until = format_instant(renewed[0].heartbeat_at + timedelta(seconds=60))
    own = {"attempt": 1, "worker_id": "w1", "state": "active", "visible_until": until}
    assert row.data == {"job_id": str(job.id), "job_type": "test.job", "queue": "default"} | own
    ack(job)
    leases.announce(leases.beat([held(job)]))
    make()
    job = take()[0]
    with override_settings(OJS={}):
        leases.announce(leases.beat([held(job)]))
    assert Event.objects.filter(kind="job.heartbeat").count() == 1


def test_a_signal_of_beats() -> None:
    heard: list[str] = []

    def receive(event: Any, **_: Any) -> None:
        heard.append(event.data["worker_id"])

    make()
    job_heartbeat.connect(receive)
    try:
        leases.announce(leases.beat([held(take()[0])]))
    finally:
        job_heartbeat.disconnect(receive)
    assert heard == ["w1"]
