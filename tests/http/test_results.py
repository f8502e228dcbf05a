"""The result of a job, waited for."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connections

from django_ojs.services import tokens
from tests.http.support import Answer, Api, enqueue, fetch, refused_field

pytestmark = pytest.mark.every_database


def waiting_for(api: Api, path: str) -> Answer:
    try:
        return api.get(path)
    finally:
        connections.close_all()


def test_a_result_is_waited_for(api: Api) -> None:
    job = enqueue(api)
    path = f"/jobs/{job['id']}/result"
    assert api.get(path).body == {"job_id": job["id"], "state": "available", "result": None}
    with ThreadPoolExecutor(1) as aside:
        waits = aside.submit(waiting_for, api, f"{path}?wait=true")
        taken = fetch(api)[0]
        said = {"job_id": taken["id"], "lease_id": taken["lease"]["id"], "result": {"n": 1}}
        assert api.post("/workers/ack", said).status == 200
        answer = waits.result(30)
    assert (answer.status, answer.body["state"], answer.body["result"]) == (200, "completed", {"n": 1})
    assert api.get(f"{path}?wait=true").body == answer.body


@pytest.mark.slow
def test_a_job_that_does_not_end_is_still_running(api: Api) -> None:
    job = enqueue(api)
    answer = api.get(f"/jobs/{job['id']}/result?wait=true&timeout=1")
    assert (answer.status, answer.code) == (408, "wait_timeout")


def test_waiting_ends_with_the_token(api: Api) -> None:
    job = enqueue(api)
    short = Api(tokens.create("shorter", scopes=["inspect"])[1])
    with ThreadPoolExecutor(1) as aside:
        waits = aside.submit(waiting_for, short, f"/jobs/{job['id']}/result?wait=true")
        tokens.revoke("shorter")
        assert waits.result(30).status == 401


@pytest.mark.parametrize(
    ("query", "field"),
    [("wait=yes", "wait"), ("wait=true&timeout=0", "timeout"), ("timeout=x", "timeout"), ("a=1", "a")],
)
def test_bad_parameters(api: Api, query: str, field: str) -> None:
    job = enqueue(api)
    refused_field(api.get(f"/jobs/{job['id']}/result?{query}"), field)
