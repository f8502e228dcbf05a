"""What a stream is asked for, and the places that streams take; their events: ``test_stream``."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connections
from django.test import AsyncClient

from django_ojs.http.limits import STREAMS
from django_ojs.http.principal import Principal
from django_ojs.http.views import events
from django_ojs.services import stream
from django_ojs.services.stream import Wanted
from tests.http.support import Api, enqueue, refused_field


@pytest.mark.parametrize("name", ["chanel", "cursor", "limit", "since", "Types"])
def test_a_stream_refuses_a_parameter_that_it_does_not_have(api: Api, name: str) -> None:
    job = enqueue(api)
    for path in ("/events/stream", f"/jobs/{job['id']}/events", "/queues/default/events"):
        refused_field(api.get(f"{path}?{name}=x"), name)


def test_a_stream_refuses_what_its_channel_has_fixed(api: Api) -> None:
    job = enqueue(api)
    for path in (f"/jobs/{job['id']}/events?", f"/events/stream?channel=job:{job['id']}&"):
        refused_field(api.get(f"{path}job_id={job['id']}"), "job_id")
        assert api("HEAD", f"{path}types=job.*&queues=default").status == 200
    for path in ("/queues/default/events?", "/events/stream?channel=queue:default&"):
        refused_field(api.get(f"{path}queues=other"), "queues")
        assert api("HEAD", f"{path}event_types=job.*&job_id={job['id']}").status == 200
    refused_field(api.get(f"/jobs/{job['id']}/events?channel=all"), "channel")
    assert api("HEAD", f"/events/stream?job_id={job['id']}&queue=default&after=").status == 200


def test_the_head_of_a_stream_takes_no_place(api: Api) -> None:
    answer = api("HEAD", "/events/stream")
    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/event-stream")
    assert not STREAMS._taken


@pytest.mark.slow
def test_a_stream_that_nobody_reads_gives_its_place_back(api: Api) -> None:
    async def begin() -> int:
        response = await AsyncClient().get(
            "/ojs/v1/events/stream", headers={"Authorization": f"Bearer {api.token}"}
        )
        assert response.status_code == 200
        await sync_to_async(lambda: connections["default"].close())()
        return STREAMS._taken.total()

    # The client is gone before the first byte: the server drops the answer without a word.
    assert asyncio.run(begin()) == 1
    gc.collect()
    assert not STREAMS._taken


def test_a_stream_does_not_look_twice_at_events_of_others(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "LOOK_EVERY", 0.0)
    monkeypatch.setattr(events, "HEARTBEAT_SECONDS", 0.0)
    read = stream.read
    behind: list[int] = []

    def counted(wanted: Wanted, *, after: int, **more: Any) -> Any:
        behind.append(after)
        return read(wanted, after=after, **more)

    monkeypatch.setattr(stream, "read", counted)
    principal = Principal("token:a", "a", frozenset({"inspect"}))
    STREAMS.enter(principal, most=1000, most_each=1000)
    lines = events._Lines(principal, Wanted(queues=["mine"]), stream.newest(), "default")
    try:
        assert next(lines) == b"retry: 1000\n\n"
        for _ in range(3):
            enqueue(api, queue="foreign")
            assert next(lines) == b":heartbeat\n\n"
        assert behind[-1] == stream.newest() - 1, "what was looked at is not looked at again"
        enqueue(api, queue="mine")
        assert b"job.enqueued" in next(lines)
    finally:
        lines.close()
