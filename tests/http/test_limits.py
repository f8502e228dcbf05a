"""Limits as a caller writes them: forms, bounds, contradictions, changes while a job waits."""

from __future__ import annotations

from typing import Any

import pytest

from django_ojs.clock import FrozenClock
from tests.http.support import Api, enqueue, fetch, look, refused_field
from tests.http.timed import Timeline, assert_timeout_error, refused


@pytest.mark.parametrize(
    "field", ["timeout", "total_timeout", "enqueue_ttl", "heartbeat_timeout", "grace_period"]
)
def test_limits_are_checked(api: Api, field: str) -> None:
    """400 with the name of the field for whatever is no limit."""
    bad: list[Any] = [-1, 1.5, 1.0, True, False, "", " 5", "5 ", "+5", "-5", "1_0", "٣", "x", [], {}]
    bad += [10 * 366 * 86400 + 1, "P", "PT", "P1Y", "P1M"]
    if field == "grace_period":
        assert enqueue(api, grace_period=0)["grace_period"] == 0
    else:
        bad += [0, "0"]
    for value in bad:
        refused(api, 400, field, **{field: value})
    refused(api, 400, f"options.{field}", options={field: -1})
    refused(api, 400, f"{field}_ms", **{f"{field}_ms": -1})
    refused(api, 400, f"{field}_ms", **{f"{field}_ms": 1.5})
    unset = enqueue(api, **{f"{field}_ms": 0})
    assert (unset["timeout"], unset["grace_period"], unset["heartbeat_timeout"]) == (1800, 30, 60)


def test_total_is_not_below_an_explicit_timeout(api: Api) -> None:
    """``total_timeout`` is at least the ``timeout`` that was said, not the default."""
    refused(api, 400, "total_timeout", timeout=10, total_timeout=9)
    assert enqueue(api, timeout=10, total_timeout=10)["total_timeout"] == 10
    assert enqueue(api, total_timeout=900)["total_timeout"] == 900


def test_limits_change_while_a_job_waits(api: Api, frozen: FrozenClock) -> None:
    """Dynamic timeouts; the new limits hold from the next attempt on."""
    timeline = Timeline(api, frozen)
    job = enqueue(api, timeout=600)
    path = f"/jobs/{job['id']}"
    changed = api("PATCH", path, {"timeout": 1, "grace_period": 0})
    assert (changed.status, changed.body["job"]["timeout"]) == (200, 1)
    refusal = api("PATCH", path, {"timeout": -1})
    assert (refusal.status, refusal.body["error"]["details"]["field"]) == (400, "timeout")
    assert fetch(api, worker=None)[0]["timeout_ms"] == 1000
    assert api("PATCH", path, {"timeout": 600}).status == 409, "a running job is extended instead"
    short = enqueue(api, queue="short")
    assert api("PATCH", f"/jobs/{short['id']}", {"enqueue_ttl": 1}).status == 200
    timeline.advance(1)
    after = look(api, job)
    assert after["state"] == "retryable"
    assert_timeout_error(after, "execution", "timeout", 1, attempt=1, elapsed=1)
    after = look(api, short)
    assert (after["state"], after["error"]["type"]) == ("discarded", "enqueue_ttl_expired")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10s", 10),
        ("4m", 240),
        ("1h", 3600),
        ("15", 15),
        ("1h30m", 5400),
        ("PT2M", 120),
        ("P1D", 86400),
    ],
)
def test_durations_are_read_in_every_form(api: Api, text: str, seconds: int) -> None:
    terms = {"timeout": text, "grace_period": text, "heartbeat_timeout": text}
    job = enqueue(api, enqueue_ttl=text, total_timeout=text, **terms)
    for field in (*terms, "enqueue_ttl", "total_timeout"):
        assert job[field] == seconds, field


def test_a_part_of_a_second(api: Api) -> None:
    assert enqueue(api, timeout="500ms")["timeout_ms"] == 500


def test_the_wire_knows_no_days(api: Api) -> None:
    refused_field(api.post("/jobs", {"type": "a.b", "args": [], "timeout": "90d"}), "timeout")
