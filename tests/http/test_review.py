"""What a review of the binding found: lost orders, stale checkpoints, leaks, unbounded looks."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connections
from django.test import AsyncClient, override_settings

from django_ojs.clock import FrozenClock
from django_ojs.domain.errors import Conflict
from django_ojs.extensions.schemas import services as schemas
from django_ojs.http import waiting
from django_ojs.http.limits import STREAMS
from django_ojs.http.principal import Principal
from django_ojs.http.views import events
from django_ojs.models import JobSchema, Worker
from django_ojs.services import stream, tokens, workers
from django_ojs.services.reap import reap
from django_ojs.services.stream import Wanted
from tests.http.conftest import Caller
from tests.http.support import Api, enqueue, fetch, look


def test_an_order_to_a_worker_outlives_a_beat_at_the_same_moment(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers.seen("w1", None, beats=False)
    take = workers._take
    other: list[threading.Thread] = []

    def order() -> None:
        try:
            workers.direct("w1", "quiet")
        finally:
            connections["default"].close()

    def interrupted(*args: Any) -> None:
        # The beat has read the row; before it writes, an operator gives an order.
        other.append(threading.Thread(target=order))
        other[0].start()
        other[0].join(0.5)
        take(*args)

    monkeypatch.setattr(workers, "_take", interrupted)
    workers.seen("w1", None, beats=True)
    other[0].join(10)
    monkeypatch.undo()
    assert Worker.objects.get(pk="w1").directive == "quiet"


@pytest.fixture
def lost(api: Api, frozen: FrozenClock) -> dict[str, Any]:
    """A job as its first worker got it, which has lost it since: it waits for its retry."""
    enqueue(api, timeout=10, grace_period=0)
    job = fetch(api)[0]
    saved = api("PUT", f"/jobs/{job['id']}/checkpoint", {"state": "right"})
    assert saved.status == 200
    frozen.advance(11)
    assert reap().counts == {"execution": 1}
    assert look(api, job)["state"] == "retryable"
    return job


def test_a_lost_lease_saves_no_checkpoint_of_a_waiting_job(api: Api, lost: dict[str, Any]) -> None:
    path = f"/jobs/{lost['id']}/checkpoint"
    late = api("PUT", path, {"state": "stale", "lease_id": lost["lease"]["id"]})
    assert (late.status, late.code) == (409, "conflict")
    assert late.body["error"]["details"]["current_state"] == "retryable"
    assert api.get(path).body["state"] == "right"
    assert api("PUT", path, {"state": "fresh"}).status == 200, "without evidence anybody may"


def test_a_lost_lease_clears_no_checkpoint_of_a_waiting_job(api: Api, lost: dict[str, Any]) -> None:
    path = f"/jobs/{lost['id']}/checkpoint"
    late = api("DELETE", path, None, OJS_Lease=lost["lease"]["id"])
    assert (late.status, late.code) == (409, "conflict")
    assert api.get(path).body["state"] == "right"


def test_the_figures_are_of_the_queues_that_one_sees(api: Api, caller: Caller) -> None:
    for queue in ("mine", "foreign", "foreign"):
        enqueue(api, queue=queue)
    fetch(api, "foreign", worker="w-foreign")
    some = caller("inspect", queues=["mine"]).get("/admin/stats").body
    assert (some["queues"], some["workers"]) == (1, 0)
    assert (some["jobs"]["available"], some["jobs"]["active"]) == (1, 0)
    everything = api.get("/admin/stats").body
    assert (everything["queues"], everything["workers"]) == (2, 1)
    assert (everything["jobs"]["available"], everything["jobs"]["active"]) == (2, 1)


def test_health_tells_a_restricted_caller_nothing_of_the_others(api: Api, caller: Caller) -> None:
    enqueue(api, queue="foreign")
    found = caller("inspect", queues=["mine"]).get("/health").body
    assert (found["queues"], found["workers"]) == ({}, {})
    assert api.get("/health").body["queues"] == {"total": 1}


def test_a_method_that_is_not_there_is_not_a_question_of_scopes(api: Api) -> None:
    answer = api("OPTIONS", "/jobs")
    assert (answer.status, answer.code) == (405, "invalid_request")
    assert "POST" in answer.headers["Allow"]
    assert Api(None)("OPTIONS", "/jobs").status == 401


def test_a_rate_that_is_used_up_says_so_in_headers(api: Api) -> None:
    with override_settings(OJS={"HTTP": {"ENQUEUE_RATE": 1}}):
        answers = [api.post("/jobs", {"type": "a.b", "args": []}) for _ in range(5)]
    refused = [answer for answer in answers if answer.status == 429]
    assert refused
    assert refused[0].headers["Retry-After"] == "1"
    assert refused[0].headers["X-RateLimit-Limit"] == "1"
    assert refused[0].headers["X-RateLimit-Remaining"] == "0"
    assert refused[0].headers["X-RateLimit-Reset"].isdigit()


def test_a_stream_that_nobody_reads_gives_its_place_back(api: Api) -> None:
    async def begin() -> int:
        response = await AsyncClient().get(
            "/ojs/v1/events/stream", headers={"Authorization": f"Bearer {api.token}"}
        )
        assert response.status_code == 200
        await sync_to_async(lambda: connections["default"].close())()
        return STREAMS._taken.total()

    before = STREAMS._taken.total()
    # The client is gone before the first byte: the server drops the answer without a word.
    assert asyncio.run(begin()) == before + 1
    gc.collect()
    assert STREAMS._taken.total() == before


def test_a_beat_says_which_queues_are_served(api: Api, caller: Caller) -> None:
    body = {"worker_id": "w1", "queues": ["mail", "default"]}
    assert api.post("/workers/heartbeat", body).status == 200
    assert api.get("/workers/w1").body["queues"] == ["mail", "default"]
    assert api.post("/workers/heartbeat", {**body, "queues": []}).status == 200
    assert api.get("/workers/w1").body["queues"] == ["mail", "default"]
    assert caller("work", queues=["mine"]).post("/workers/heartbeat", body).status == 403


def test_the_head_of_a_stream_takes_no_place(api: Api) -> None:
    before = STREAMS._taken.total()
    answer = api("HEAD", "/events/stream")
    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/event-stream")
    assert STREAMS._taken.total() == before


def test_a_revoked_token_gets_nothing_from_a_poll_under_way(
    api: Api, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = caller("work", name="poller")

    def until(look: Callable[[], Any], *args: Any, **more: Any) -> Any:
        assert look() == []
        tokens.revoke("poller")
        enqueue(api)
        return look()

    monkeypatch.setattr(waiting, "until", until)
    answer = worker.post("/workers/fetch", {"queues": ["default"], "wait_ms": 1000})
    assert (answer.status, answer.code) == (401, "unauthenticated")
    assert len(fetch(api)) == 1


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


def test_a_token_that_is_rotated_at_the_same_moment_is_revoked_too(
    ojs_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, old = tokens.create("client", scopes=["work"])
    issue = tokens._issue
    other: list[threading.Thread] = []

    def revoke() -> None:
        try:
            tokens.revoke("client")
        finally:
            connections["default"].close()

    def interrupted(*args: Any) -> Any:
        # The rotation holds the old token; before the new one is there, an operator revokes.
        other.append(threading.Thread(target=revoke))
        other[0].start()
        other[0].join(0.5)
        return issue(*args)

    monkeypatch.setattr(tokens, "_issue", interrupted)
    _, new = tokens.rotate("client")
    other[0].join(10)
    assert (tokens.verify(old), tokens.verify(new)) == (None, None)


def test_true_and_one_are_different_schemas(ojs_db: None) -> None:
    JobSchema.objects.all().delete()
    schemas.put("a.b", 1, {"const": 1})
    assert schemas.put("a.b", 1, {"const": 1})[1] is False
    with pytest.raises(Conflict):
        schemas.put("a.b", 1, {"const": True})
    JobSchema.objects.all().delete()
