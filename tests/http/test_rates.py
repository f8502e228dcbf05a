"""Rates of requests and of guesses."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client, override_settings

from django_ojs.http import limits
from django_ojs.models import Job
from django_ojs.services import tokens
from tests.http.conftest import Caller
from tests.http.guarding import error, read
from tests.http.support import Api, enqueue

pytestmark = pytest.mark.usefixtures("one_window")


@pytest.mark.fault("S24")
def test_the_rate_of_enqueues(caller: Caller) -> None:
    mine, other = caller(name="mine"), caller(name="other")
    with override_settings(OJS={"HTTP": {"ENQUEUE_RATE": 2}}):
        for _ in range(2):
            enqueue(mine)
        answer = mine.post("/jobs", {"type": "test.job", "args": []})
        found = error(answer, 429, "rate_limited")
        assert found["retryable"] is True
        assert int(answer.headers["Retry-After"]) >= 1
        job = {"type": "test.job", "args": []}
        error(mine.post("/jobs/batch", {"jobs": [job, job]}), 429, "rate_limited")
        assert Job.objects.count() == 2
        enqueue(other)
        assert mine.get("/jobs").status == 200, "only enqueues are counted"


def test_a_rate_that_is_used_up_says_so_in_headers(api: Api) -> None:
    with override_settings(OJS={"HTTP": {"ENQUEUE_RATE": 1}}):
        answers = [api.post("/jobs", {"type": "a.b", "args": []}) for _ in range(5)]
    refused = [answer for answer in answers if answer.status == 429]
    assert refused
    assert refused[0].headers["Retry-After"] == "1"
    assert refused[0].headers["X-RateLimit-Limit"] == "1"
    assert refused[0].headers["X-RateLimit-Remaining"] == "0"
    assert refused[0].headers["X-RateLimit-Reset"].isdigit()


def test_the_rate_is_of_the_client_not_of_its_token(caller: Caller) -> None:
    mine = caller(name="mine")
    with override_settings(OJS={"HTTP": {"ENQUEUE_RATE": 2}}):
        enqueue(mine)
        renewed = Api(tokens.rotate("mine")[1])
        enqueue(renewed)
        error(renewed.post("/jobs", {"type": "test.job", "args": []}), 429, "rate_limited")


def test_requests_that_are_refused_cost_nothing(caller: Caller) -> None:
    mine = caller(name="mine")
    with override_settings(OJS={"HTTP": {"ENQUEUE_RATE": 2}}):
        for _ in range(5):
            assert mine.post("/jobs", {"type": "Bad", "args": []}).status == 400
        enqueue(mine)
        enqueue(mine)


@pytest.mark.fault("S25")
def test_guessing_a_secret(caller: Caller) -> None:
    good, other = caller(name="good"), caller(name="other")
    assert good.token is not None
    prefix = good.token.partition(".")[0]
    wrong = Api(f"{prefix}.{'a' * 43}")
    assert other.get("/jobs").status == 200
    for _ in range(30):
        error(wrong.get("/jobs"), 401, "unauthenticated")
    answer = wrong.get("/jobs")
    error(answer, 429, "rate_limited")
    assert int(answer.headers["Retry-After"]) > 0
    error(wrong.get("/jobs", X_Forwarded_For="10.9.8.7", X_Real_IP="10.9.8.7"), 429, "rate_limited")
    error(Api(f"{prefix}.{'b' * 43}").get("/jobs"), 429, "rate_limited")
    assert good.get("/jobs").status == 429, "the thirty-first guess finds out nothing"
    assert other.get("/jobs").status == 200
    elsewhere = Client(REMOTE_ADDR="10.0.0.9", raise_request_exception=False)
    assert read(elsewhere, Authorization=f"Bearer {good.token}").status == 200


def test_guessing_does_not_lock_out_whoever_is_known(caller: Caller) -> None:
    """Of one address, as behind a proxy."""
    good = caller(name="good")
    assert good.token is not None
    assert good.get("/jobs").status == 200
    wrong = Api(f"{good.token.partition('.')[0]}.{'a' * 43}")
    assert [wrong.get("/jobs").status for _ in range(31)][-1] == 429
    assert good.get("/jobs").status == 200
    tokens.revoke("good")
    assert good.get("/jobs").status in (401, 429)


@pytest.mark.fault("S25")
def test_guessing_prefixes(api: Api) -> None:
    """What is no token at all is counted together."""
    statuses = [Api(f"guess-{n}").get("/jobs").status for n in range(31)]
    assert statuses == [401] * 30 + [429]
    assert api.get("/jobs").status == 200


def test_limits_do_not_stop_work_when_the_cache_is_away(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Away:
        def __getattr__(self, name: str) -> Any:
            raise ConnectionError("no cache")

    monkeypatch.setattr(limits, "cache", Away())
    enqueue(api)
    assert Api("x").get("/jobs").status == 401
