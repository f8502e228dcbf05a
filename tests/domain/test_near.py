"""Near misses of the fields of a request."""

from __future__ import annotations

from typing import Any

import pytest

from django_ojs.domain.near import NearMisses, nearest


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("timout", "timeout"),
        ("tiemout", "timeout"),
        ("timeouts", "timeout"),
        ("timeout_msec", "timeout_ms"),
        ("execution_timeout", "timeout"),
        ("executionTimeout", "timeout"),
        ("scheduledAt", "scheduled_at"),
        ("Queue", "queue"),
        ("queu", "queue"),
        ("priorty", "priority"),
        ("tag", "tags"),
        ("tpye", "type"),
        ("max_attempts", "retry.max_attempts"),
        ("max_retries", "retry.max_attempts"),
        ("run_at", "scheduled_at"),
        ("delay", "scheduled_at"),
        ("ttl", "enqueue_ttl"),
        ("uniqe", "unique"),
        ("rate_limits", "rate_limit"),
    ],
)
def test_near(name: str, near: str) -> None:
    assert nearest(name) == near


@pytest.mark.parametrize(
    "name",
    [
        "timeout",
        "x_timout",
        "ext_timout",
        "x_",
        "custom",
        "tenant",
        "trace_id",
        "encryption",
        "kid",
        "pid",
        "",
        "t",
        "x" * 5000,
        "workflow",
        "attempt",
        "state",
    ],
)
def test_not_near(name: str) -> None:
    assert nearest(name) is None


def found(body: dict[str, Any]) -> list[tuple[str, str]]:
    return NearMisses().of({"type": "a", "args": [], **body})


def test_what_a_request_misspells() -> None:
    assert found({"timout": 5, "custom": 1}) == [("timout", "timeout")]
    assert found({"options": {"timout": 5, "queue": "q"}}) == [("options.timout", "options.timeout")]
    assert found({"options": {"max_attempts": 5}}) == [
        ("options.max_attempts", "options.retry.max_attempts")
    ]
    assert found({"max_attempts": 5}) == [("max_attempts", "retry.max_attempts")]
    assert found({"x_timout": 1, "ext_timout": 2, "timeout": 3}) == []


def test_a_job_as_it_was_answered_misspells_nothing() -> None:
    assert found({"max_attempts": 5, "retry": {"max_attempts": 5}, "attempt": 1, "state": "x"}) == []
    assert found({"max_attempts": 5, "retry": {"max_attempts": 3}}) != []


def test_of_a_request_with_any_number_of_fields_a_few_are_looked_at() -> None:
    """So many would take a process half a minute."""
    body = {f"field{number:05}": 1 for number in range(60_000)}
    misses = NearMisses()
    assert misses.of({"timout": 5, **body, "priorty": 1}) == [("timout", "timeout")]
    assert misses.of({"timout": 5}) == [], "of a batch all together"
    known = {"timeout": 5, "ext_a": 1, **{f"x_{number}": 1 for number in range(300)}}
    assert NearMisses().of({**known, "priorty": 1}) == [("priorty", "priority")]
