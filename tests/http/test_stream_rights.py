"""Streams show what a token may see, as long as it may."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client, override_settings

from django_ojs.clock import FrozenClock
from django_ojs.http.principal import Principal, of_token
from django_ojs.http.views import events as event_views
from django_ojs.services import stream, tokens
from django_ojs.services.stream import Wanted
from tests.http.conftest import Caller
from tests.http.guarding import MISSING, error
from tests.http.support import Api, enqueue

pytestmark = pytest.mark.usefixtures("one_window")


def of(api: Api) -> Principal:
    assert api.token is not None
    token = tokens.verify(api.token)
    assert token is not None
    return of_token(token)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that asks after its token before every step, and does not sleep."""
    monkeypatch.setattr(event_views, "RECHECK_SECONDS", 0.0)
    monkeypatch.setattr(event_views, "LOOK_EVERY", 0.001)
    monkeypatch.setattr(event_views, "STREAM_SECONDS", 20.0)


def follow(api: Api, **wanted: Any) -> Iterator[bytes]:
    lines = event_views._follow(of(api), Wanted(**wanted), stream.newest(), "default")
    assert next(lines) == b"retry: 1000\n\n"
    return lines


@pytest.mark.fault("S30")
def test_a_stream_ends_when_its_token_is_revoked(caller: Caller, hasty: None) -> None:
    every, mine = caller(name="all"), caller("inspect", name="mine")
    lines, others = follow(mine), follow(every)
    job = enqueue(every)
    assert job["id"].encode() in next(lines)
    tokens.revoke("mine")
    more = enqueue(every)
    assert list(lines) == []
    assert job["id"].encode() in next(others)
    assert more["id"].encode() in next(others)


def test_a_stream_ends_when_its_token_expires(caller: Caller, hasty: None, frozen: FrozenClock) -> None:
    every = caller(name="all")
    mine = caller("inspect", name="mine", expires_at=frozen.time + timedelta(minutes=1))
    lines = follow(mine)
    enqueue(every)
    next(lines)
    frozen.advance(60)
    enqueue(every)
    assert list(lines) == []


@pytest.mark.fault("S30")
def test_a_stream_shows_what_its_token_may_see(caller: Caller, hasty: None) -> None:
    every, mine = caller(name="all"), caller("inspect", name="mine", queues=["q1"])
    lines = follow(mine, within=list(of(mine).queues))
    enqueue(every, queue="q2")
    every.post("/workers/register", {"worker_id": "foreign"})
    own = enqueue(every, queue="q1")
    assert own["id"].encode() in next(lines)


def test_places_of_streams_are_given_back(caller: Caller) -> None:
    mine = caller("inspect", name="mine")
    with override_settings(OJS={"HTTP": {"STREAMS_PER_TOKEN": 1}}):
        client = Client(raise_request_exception=False)
        headers = {"Authorization": f"Bearer {mine.token}"}
        response = client.get("/ojs/v1/events/stream", headers=headers)
        assert response.status_code == 200
        answer = mine.get("/events/stream")
        error(answer, 429, "rate_limited")
        assert int(answer.headers["Retry-After"]) > 0
        response.close()
        again = client.get("/ojs/v1/events/stream", headers=headers)
        assert again.status_code == 200
        again.close()
        for path in ("/events/stream?channel=x", f"/jobs/{MISSING}/events"):
            assert mine.get(path).status in (400, 404), "a refused one takes no place"
        last = client.get("/ojs/v1/events/stream", headers=headers)
        assert (last.status_code, last.headers["X-Content-Type-Options"]) == (200, "nosniff")
        last.close()
