"""What the repetition of a request to enqueue shows, and to whom."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from django_ojs.clock import new_id
from django_ojs.domain.job import Actor
from django_ojs.services import operate
from tests.http.conftest import Caller
from tests.http.support import Answer, Api, fetch


def request() -> dict[str, Any]:
    return {"id": str(new_id()), "type": "test.job", "args": [1], "queue": "a-1", "custom": "x"}


def finish(api: Api, queue: str) -> None:
    job = fetch(api, queue)[0]
    said = {"job_id": job["id"], "lease_id": job["lease"]["id"], "result": {"secret": "RESULT"}}
    assert api.post("/workers/ack", said).status == 200


def again(api: Api, body: dict[str, Any], *, batch: bool) -> Answer:
    return api.post("/jobs/batch", {"jobs": [body]}) if batch else api.post("/jobs", body)


@pytest.mark.parametrize("batch", [False, True])
def test_without_inspect_a_repetition_shows_what_was_sent(caller: Caller, batch: bool) -> None:
    every = caller(name="all")
    producer = caller("produce", name="producer", queues=["a-*"])
    body = request()
    first = again(producer, body, batch=batch)
    finish(every, "a-1")
    second = again(producer, body, batch=batch)
    assert second.status == (201 if batch else 200)
    assert b"RESULT" not in second.raw
    assert b"completed" not in second.raw
    if batch:
        assert second.body == first.body
    else:
        assert second.body.pop("deduplicated") is True
        assert {**second.body, "deduplicated": True} == {**first.body, "deduplicated": True}
    assert b"RESULT" in again(every, body, batch=batch).raw


@pytest.mark.parametrize("batch", [False, True])
def test_a_job_that_was_moved_away_is_not_shown(caller: Caller, batch: bool) -> None:
    every = caller(name="all")
    mine = caller(name="mine", queues=["a-*"])
    body = request()
    again(mine, body, batch=batch)
    operate.edit([UUID(body["id"])], {"queue": "b-secret"}, actor=Actor())
    finish(every, "b-secret")
    assert mine.get(f"/jobs/{body['id']}").status == 404
    second = again(mine, body, batch=batch)
    assert b"RESULT" not in second.raw
    assert b"b-secret" not in second.raw
