"""A heartbeat timeout that the operator set binds workers over HTTP that never beat, too."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.test import override_settings

from django_ojs.clock import FrozenClock
from django_ojs.services import http_workers
from django_ojs.services.reap import reap
from tests.http.support import Api, enqueue, fetch

pytestmark = pytest.mark.every_database


def started(api: Api, worker: str) -> dict[str, Any]:
    """A new job, fetched by the worker."""
    enqueue(api)
    (job,) = fetch(api, worker=worker)
    return job


@pytest.mark.parametrize(
    "settings",
    [
        {"DEFAULTS": {"heartbeat_timeout": 8}},
        {"QUEUES": {"default": {"heartbeat_timeout": 8}}},
    ],
)
def test_it_ends_a_silent_attempt(api: Api, frozen: FrozenClock, settings: dict[str, Any]) -> None:
    with override_settings(OJS=settings):
        job = started(api, "silent")
        assert job["heartbeat_timeout"] == 8
        frozen.advance(9)
        assert reap().counts == {"stalled": 1}


def test_the_built_in_default_does_not(api: Api, frozen: FrozenClock) -> None:
    started(api, "silent")
    frozen.advance(300)
    assert reap().counts == {}


def test_the_check_names_silent_workers_before_that(api: Api, frozen: FrozenClock) -> None:
    with override_settings(OJS={"DEFAULTS": {"heartbeat_timeout": 8}}):
        started(api, "silent")
        api.post("/workers/heartbeat", {"worker_id": "beating"})
        started(api, "beating")
    frozen.advance(1)
    assert http_workers.silent(now=frozen.time, using="default") == [], "they may have just begun"
    frozen.advance(2)
    (found,) = http_workers.silent(now=frozen.time, using="default")
    assert (found.worker_id, found.jobs) == ("silent", 1)
    out = StringIO()
    call_command("ojs", "check", stdout=out)
    assert f"worker silent of {found.client} sends no heartbeats: 1 of its jobs" in out.getvalue()
