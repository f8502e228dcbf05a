"""Retries over HTTP: policies, their defaults, directives of handlers, errors that end a job."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from django_ojs.clock import FrozenClock
from tests.http.conftest import Caller
from tests.http.support import Api, enqueue, fetch, look, refused_field
from tests.http.timed import INSTANT, SLOW_RETRY, Timeline, nack, refused, started

DEFAULT_RETRY = {
    "max_attempts": 3,
    "initial_interval": "PT1S",
    "backoff_coefficient": 2.0,
    "max_interval": "PT5M",
    "jitter": True,
    "non_retryable_errors": [],
    "on_exhaustion": "discard",
    "backoff_strategy": "exponential",
}


@pytest.mark.slow
def test_the_backoff(api: Api, frozen: FrozenClock) -> None:
    """Polynomial, the cap after the jitter, partial policies, ``max_attempts: 0``."""
    retry = {
        "backoff_strategy": "polynomial",
        "initial_interval_ms": 200,
        "backoff_coefficient": 2,
        "jitter": False,
    }
    timeline = Timeline(api, frozen)
    job = enqueue(api, queue="power", retry=retry)
    for number in (1, 2):
        mine = fetch(api, "power", worker=None)[0]
        assert mine["attempt"] == number
        failed = nack(api, mine)
        assert failed["retry_delay_ms"] == 200 * number**2
        waits = datetime.fromisoformat(failed["next_attempt_at"])
        noted = datetime.fromisoformat(failed["error"]["occurred_at"])
        assert waits - noted == timedelta(milliseconds=200 * number**2)
        timeline.advance(0.2 * number**2 - INSTANT)
        assert fetch(api, "power", worker=None) == []
        timeline.advance(INSTANT)
    third = fetch(api, "power", worker=None)[0]
    assert (third["id"], nack(api, third)["state"]) == (job["id"], "discarded")

    capped = {"initial_interval": "PT5S", "max_interval": "PT5S"}
    items = [{"type": "test.job", "args": [], "queue": "capped", "retry": capped}] * 40
    assert api.post("/jobs/batch", {"jobs": items}).status == 201
    delays = [nack(api, mine)["retry_delay_ms"] for mine in fetch(api, "capped", count=40)]
    assert len(delays) == 40
    assert all(2500 <= delay <= 5000 for delay in delays), "jittered, and capped again"
    assert min(delays) < 5000 == max(delays)

    merged = enqueue(api, retry={"max_attempts": 7, "strategy": "linear"})["retry"]
    assert merged == {**DEFAULT_RETRY, "max_attempts": 7, "backoff_strategy": "linear"}
    for most in (0, 1):
        once = started(api, queue=f"once-{most}", retry={"max_attempts": most})
        after = nack(api, once)
        assert (after["state"], after["attempt"]) == ("discarded", 1)
    for name, value in (
        ("max_attempts", -1),
        ("backoff_coefficient", 0.5),
        ("jitter", "yes"),
        ("on_exhaustion", "nothing"),
        ("backoff_strategy", "random"),
    ):
        refused(api, 422, f"retry.{name}", retry={name: value})


def test_directives_of_a_handler(api: Api) -> None:
    """RETRY, DISCARD, DEAD_LETTER and FAIL win over the policy and over ``retryable``."""
    never = {"non_retryable_errors": ["boom"], "on_exhaustion": "dead_letter", **SLOW_RETRY}
    discard = {**never, "on_exhaustion": "discard"}
    error = {"type": "boom", "message": "said by the test", "retryable": False}
    cases = (
        ("RETRY", never, ("retryable", None)),
        ("DISCARD", never, ("discarded", False)),
        ("FAIL", never, ("discarded", False)),
        ("DEAD_LETTER", discard, ("discarded", True)),
    )
    for number, (word, retry, expected) in enumerate(cases):
        forms: tuple[dict[str, Any], ...] = (
            {"error": error, "directive": word},
            {"error": error, "response_code": word},
            {"error": {**error, "directive": word}},
            {"error": {**error, "code": word}},
        )
        for form, body in enumerate(forms):
            after = nack(api, started(api, queue=f"q{number}-{form}", retry=retry), **body)
            assert (after["state"], after.get("dead_letter")) == expected, (word, body)
            assert (after["error"]["type"], after["error"]["directive"]) == ("boom", word)
    last = started(api, queue="last", retry={"max_attempts": 1})
    assert nack(api, last, directive="RETRY")["state"] == "discarded", "no attempt is left"
    total = started(api, queue="total", total_timeout=3, retry=SLOW_RETRY)
    ended = nack(api, total, error=error, directive="RETRY")
    assert (ended["state"], ended["error"]["type"]) == ("discarded", "total_timeout")


@pytest.mark.slow
def test_prefixes_of_errors(api: Api) -> None:
    """``Auth.*`` decides by itself, with ``retryable: true`` in the report."""
    policy = {"non_retryable_errors": ["Auth.*", "a+b", "Exact"], **SLOW_RETRY}
    cases = (
        ("Auth.TokenExpired", "discarded"),
        ("Auth.", "discarded"),
        ("Auth", "retryable"),
        ("Authx", "retryable"),
        ("auth.TokenExpired", "retryable"),
        ("My.Auth.TokenExpired", "retryable"),
        ("aab", "retryable"),
        ("a+b", "discarded"),
        ("Exact", "discarded"),
        ("Exactly", "retryable"),
    )
    for number, (name, state) in enumerate(cases):
        for where in ("type", "code", "details") if number < 3 else ("type",):
            error: dict[str, Any] = {"retryable": True, where: name}
            if where == "details":
                error = {"code": "handler_error", "details": {"error_class": name}}
            job = started(api, queue=f"q{number}.{where}", retry=policy)
            assert nack(api, job, error=error)["state"] == state, (name, where)


def test_the_default_retry_policy(api: Api) -> None:
    """All eight fields are returned when none was given."""
    job = enqueue(api)
    assert job["retry"] == DEFAULT_RETRY
    assert job["max_attempts"] == 3
    for given in (None, {}, {"initial_interval": None}):
        assert enqueue(api, retry=given)["retry"] == DEFAULT_RETRY
    unlimited = enqueue(api, retry={"max_attempts": None})
    assert unlimited["retry"] == {**DEFAULT_RETRY, "max_attempts": 2147483647}
    api.post(f"/jobs/{unlimited['id']}/cancel")
    assert look(api, job)["retry"] == DEFAULT_RETRY
    assert fetch(api)[0]["retry"] == DEFAULT_RETRY


@pytest.mark.parametrize("path", ["/jobs/{}/retry", "/admin/jobs/{}/retry", "/dead-letter/{}/retry"])
def test_a_retry_may_place_the_job_elsewhere(api: Api, caller: Caller, path: str) -> None:
    enqueue(api, retry={"max_attempts": 1, "on_exhaustion": "dead_letter"})
    job = fetch(api)[0]
    api.post("/workers/nack", {"job_id": job["id"], "lease_id": job["lease"]["id"]})
    refused_field(api.post(path.format(job["id"]), {"retry": {"max_attempts": 9}}), "retry")
    refused_field(api.post(path.format(job["id"]), {"priority": 101}), "priority")
    refused_field(api.post(path.format(job["id"]), {"queue": "Not"}), "queue")
    some = caller("administer", "inspect", queues=["default"])
    assert some.post(path.format(job["id"]), {"queue": "foreign"}).status == 403
    assert look(api, job)["state"] == "discarded"
    again = {"reason": "again", "queue": "other", "priority": 7}
    assert api.post(path.format(job["id"]), again).status == 200
    found = fetch(api, "other")[0]
    assert (found["id"], found["priority"], found["attempt"]) == (job["id"], 7, 1)


def test_an_event_tells_the_time_of_a_retry_as_the_job_does(api: Api, frozen: FrozenClock) -> None:
    job = started(api, retry=SLOW_RETRY)
    nack(api, job)
    (event,) = api.get(f"/events?job_id={job['id']}&types=job.retrying").body["events"]
    assert event["data"]["next_retry_at"] == look(api, job)["next_retry_at"]
    assert event["data"]["next_retry_at"] == "2026-01-01T00:00:20.000Z"
