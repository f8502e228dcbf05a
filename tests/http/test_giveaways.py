"""What errors and answers give away: nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import DataError, IntegrityError, InterfaceError, OperationalError
from django.test import override_settings

from tests.http.guarding import MISSING, error
from tests.http.support import Answer, Api, enqueue, fetch
from tests.http.test_matrix import ALL

pytestmark = pytest.mark.usefixtures("one_window")


# What errors give away (S11, S29)

SECRET = "SELECT password FROM auth_user WHERE dsn='postgres://me:hunter2@db/x'"
GIVEAWAYS = (
    b"SELECT",
    b"hunter2",
    b"Traceback",
    b"django_ojs/",
    b".py",
    b"Error(",
    b"auth_user",
    b"<html",
)


def breaking(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(*args: Any, **kwargs: Any) -> Any:
        raise error

    monkeypatch.setattr("django_ojs.http.views.jobs.enqueue", fail)
    monkeypatch.setattr("django_ojs.http.views.work.claiming.claim", fail)
    monkeypatch.setattr("django_ojs.http.listing.jobs", fail)
    monkeypatch.setattr("django_ojs.services.inspect.find", fail)
    monkeypatch.setattr("django_ojs.services.stream.read", fail)
    monkeypatch.setattr("django_ojs.services.http_workers.seen", fail)
    monkeypatch.setattr("django_ojs.services.queues.create", fail)


def failing_requests(api: Api) -> Iterator[Answer]:
    yield api.post("/jobs", {"type": "test.job", "args": []})
    yield api.post("/jobs/batch", {"jobs": [{"type": "test.job", "args": []}]})
    yield api.post("/workers/fetch", {"queues": ["default"]})
    yield api.post("/workers/heartbeat", {"worker_id": "w1"})
    yield api.get("/jobs")
    yield api.get(f"/jobs/{MISSING}")
    yield api.get("/events")
    yield api.post("/queues", {"name": "q"})


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize(
    "cause",
    [
        RuntimeError(SECRET),
        KeyError(SECRET),
        RecursionError(SECRET),
        MemoryError(SECRET),
        DataError(SECRET),
        IntegrityError(SECRET),
        AssertionError(SECRET),
        UnicodeError(SECRET),
    ],
    ids=lambda cause: type(cause).__name__,
)
@pytest.mark.fault("S29")
def test_a_500_says_nothing_but_its_request_id(
    api: Api, monkeypatch: pytest.MonkeyPatch, cause: Exception, debug: bool
) -> None:
    breaking(monkeypatch, cause)
    with override_settings(DEBUG=debug):
        for answer in failing_requests(api):
            found = error(answer, 500, "internal_error")
            assert found["request_id"] == answer.headers["X-Request-Id"]
            assert (found["details"], found["retryable"]) == ({}, False)
            for text in GIVEAWAYS:
                assert text not in answer.raw, answer.raw
            assert answer.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("kind", [OperationalError, InterfaceError])
@pytest.mark.fault("S29")
def test_a_database_that_is_away_is_a_503(
    api: Api, monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    breaking(monkeypatch, kind(SECRET))
    for answer in failing_requests(api):
        found = error(answer, 503, "backend_error")
        assert found["retryable"] is True
        assert int(answer.headers["Retry-After"]) > 0
        for text in GIVEAWAYS:
            assert text not in answer.raw, answer.raw


def test_a_database_that_is_away_while_the_token_is_looked_up(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a 401: the client must come back, not throw its token away."""

    def fail(*args: Any, **kwargs: Any) -> Any:
        raise OperationalError(SECRET)

    monkeypatch.setattr("django_ojs.services.tokens.verify", fail)
    answer = api.get("/jobs")
    error(answer, 503, "backend_error")
    assert b"hunter2" not in answer.raw


@pytest.mark.slow
@pytest.mark.fault("S5")
def test_the_lease_of_a_job_is_in_no_answer_but_the_fetch(api: Api) -> None:
    enqueue(api)
    job = fetch(api)[0]
    lease = job["lease"]["id"].encode()
    for op in ALL:
        if op.action in ("stream", "of_job", "of_queue") or op.method != "GET":
            continue
        path = re.sub(rf"{MISSING}", job["id"], op.path)
        assert lease not in api.get(f"/{path}").raw, path
    other = {"job_id": job["id"], "lease_id": MISSING}
    assert lease not in api.post("/workers/ack", other).raw
