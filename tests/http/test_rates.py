"""Rates of requests and of guesses."""

from __future__ import annotations

import gzip
import json

import pytest
from django.test import Client, override_settings

from django_ojs.domain.errors import InvalidRequest
from django_ojs.http import limits
from django_ojs.http.limits import RateWindow
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
        # The names of OJS HTTP 18.2.
        wanted = {"limit": 2, "window_seconds": 1, "retry_after_seconds": 1}
        assert wanted.items() <= found["details"].items()
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


def test_what_is_left_of_a_rate_is_said_with_each_job(caller: Caller) -> None:
    mine = caller(name="mine")
    with override_settings(OJS={"HTTP": {"ENQUEUE_RATE": 5}}):
        answers = [mine.post("/jobs", {"type": "test.job", "args": []}) for _ in range(2)]
        job = {"type": "test.job", "args": []}
        answers.append(mine.post("/jobs/batch", {"jobs": [job, job]}))
        steps = {"type": "chain", "steps": [job]}
        answers.append(mine.post("/workflows", steps))
        looked = mine.get("/jobs")
    assert [answer.status for answer in answers] == [201] * 4
    assert {answer.headers["X-RateLimit-Limit"] for answer in answers} == {"5"}
    left = [answer.headers["X-RateLimit-Remaining"] for answer in answers]
    assert left == ["4", "3", "1", "0"]
    assert all(answer.headers["X-RateLimit-Reset"].isdigit() for answer in answers)
    assert "X-RateLimit-Limit" not in looked.headers, "only enqueues are counted"


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


def test_the_rate_of_bytes(caller: Caller) -> None:
    """Jobs may be large: their number alone would let one client fill the disk."""
    mine, other = caller(name="mine"), caller(name="other")
    with override_settings(OJS={"HTTP": {"ENQUEUE_BYTES": 10_000}}):
        enqueue(mine, args=["x" * 20_000])
        answer = mine.post("/jobs", {"type": "test.job", "args": []})
        assert error(answer, 429, "rate_limited")["details"]["limit"] == 10_000
        assert answer.headers["Retry-After"] == "1"
        for _ in range(3):
            enqueue(other, args=["x" * 3000])
        packed = gzip.compress(json.dumps({"type": "test.job", "args": ["x" * 3000]}).encode())
        error(other("POST", "/jobs", packed, Content_Encoding="gzip"), 429, "rate_limited")
    assert Job.objects.count() == 4


@pytest.mark.fault("S25")
def test_guessing_a_secret(caller: Caller) -> None:
    """Wrong credentials are soon told to slow down; the right one, never seen before, comes in."""
    good = caller(name="good")
    assert good.token is not None
    prefix = good.token.partition(".")[0]
    wrong = Api(f"{prefix}.{'a' * 43}")
    for _ in range(30):
        error(wrong.get("/jobs"), 401, "unauthenticated")
    answer = wrong.get("/jobs")
    error(answer, 429, "rate_limited")
    assert int(answer.headers["Retry-After"]) > 0
    error(wrong.get("/jobs", X_Forwarded_For="10.9.8.7", X_Real_IP="10.9.8.7"), 429, "rate_limited")
    error(Api(f"{prefix}.{'b' * 43}").get("/jobs"), 429, "rate_limited")
    elsewhere = Client(REMOTE_ADDR="10.0.0.9", raise_request_exception=False)
    assert read(elsewhere, Authorization=f"Bearer {wrong.token}").status == 401
    assert good.get("/jobs").status == 200
    tokens.revoke("good")
    assert good.get("/jobs").status == 429


@pytest.mark.fault("S25")
@pytest.mark.parametrize("guess", ["guess-{}", "ojs_{:012}." + "a" * 43], ids=["no token", "prefix"])
def test_guessing_prefixes(api: Api, guess: str) -> None:
    """One address is counted, whatever it guesses."""
    statuses = [Api(guess.format(n)).get("/jobs").status for n in range(31)]
    assert statuses == [401] * 30 + [429]
    assert api.get("/jobs").status == 200


@pytest.mark.fault("S25")
def test_a_guess_costs_no_hash(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does it take longer for a prefix that there is: only the right secret is hashed."""
    good = caller(name="good")
    assert good.token is not None
    hashed: list[str] = []
    real = tokens._hash

    def noted(secret: str, salt: bytes) -> str:
        hashed.append(secret)
        return real(secret, salt)

    monkeypatch.setattr(tokens, "_hash", noted)
    prefix, _, secret = good.token.partition(".")
    for text in (f"{prefix}.{'a' * 43}", f"ojs_{'0' * 12}.{secret}", f"{prefix}.{secret[:-1]}"):
        assert Api(text).get("/jobs").status == 401
    assert hashed == []
    assert [good.get("/jobs").status for _ in range(2)] == [200, 200]
    assert hashed == [secret], "once for a process"


def test_who_comes_from_many_addresses_fills_no_memory() -> None:
    window = RateWindow(60, most=100)
    for n in range(1000):
        window.count(f"10.0.{n}")
    assert window.count("10.0.999") == 2
    assert len(window._counts) == 100


def test_a_window_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0]
    monkeypatch.setattr(limits, "window_of", lambda seconds: now[0])
    window = RateWindow(1)
    assert [window.count("a", 2), window.count("a"), window.count("b")] == [2, 3, 1]
    now[0] = 1
    assert window.count("a") == 1


@pytest.mark.parametrize("name", ["ojs_aaaaaaaaaaaa", "ojs_x"])
def test_a_client_is_not_named_like_a_prefix(ojs_db: None, name: str) -> None:
    """What revokes a client by its name also takes the prefix of one token."""
    with pytest.raises(InvalidRequest, match="ojs_"):
        tokens.create(name, scopes=["work"])
