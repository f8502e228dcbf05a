"""Changing what a waiting job was enqueued with: each option, clearing, and what is refused."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import override_settings

from django_ojs import hooks
from django_ojs.api import Duplicate, InvalidRequest, InvalidTransition, cancel, edit, enqueue, get
from django_ojs.clock import FrozenClock
from django_ojs.conf import job_defaults
from django_ojs.models import Event
from tests.services.support import fail, make, now_stored, take

pytestmark = [pytest.mark.usefixtures("ojs_db"), pytest.mark.every_database]


@pytest.mark.parametrize(
    ("option", "value", "column", "stored"),
    [
        ("timeout", "5m", "timeout_ms", 300_000),
        ("grace_period", 0, "grace_period_ms", 0),
        ("heartbeat_timeout", timedelta(seconds=9), "heartbeat_timeout_ms", 9000),
        ("total_timeout", "PT2H", "total_timeout_ms", 7_200_000),
        ("enqueue_ttl", 60, "enqueue_ttl_ms", 60_000),
        ("attempt_ttl", 60, "attempt_ttl_ms", 60_000),
        ("queue", "slow", "queue", "slow"),
        ("priority", -7, "priority", -7),
    ],
)
def test_each_option_is_set_and_cleared(option: str, value: Any, column: str, stored: Any) -> None:
    (job,) = make()
    before = now_stored(job)
    edited = edit(job, **dict[str, Any]({option: value}))
    assert getattr(edited, column) == stored != getattr(before, column)
    assert edited == get(job)
    cleared = edit(job, **dict[str, Any]({option: None}))
    assert now_stored(cleared) == before


def test_deadlines_follow_and_the_limit_binds(frozen: FrozenClock) -> None:
    (job,) = make()
    edited = edit(job, total_timeout=100, timeout=60)
    assert edited.deadline_at == edited.created_at + timedelta(seconds=100)
    assert now_stored(edited).timeout_explicit
    assert edit(job, total_timeout=None).deadline_at is None


def test_a_partial_policy_is_merged_over_that_of_the_job() -> None:
    (job,) = make(retry={"max_attempts": 2, "initial_interval": "7s"})
    edited = edit(job, retry={"max_attempts": 9, "non_retryable_errors": [LookupError]})
    assert (edited.max_attempts, edited.retry["max_attempts"]) == (9, 9)
    assert edited.retry["initial_interval"] == "PT7S"
    assert edited.retry["non_retryable_errors"] == ["builtins.LookupError"]
    cleared = edit(job, retry=None)
    assert (cleared.max_attempts, cleared.retry["initial_interval"]) == (3, "PT1S")


@override_settings(OJS={"QUEUES": {"slow": {"priority": -5, "total_timeout": "1h"}}})
def test_what_is_cleared_has_the_defaults_of_its_queue() -> None:
    job = enqueue("test.job", queue="slow", priority=9)
    assert edit(job, priority=None, total_timeout="2h").priority == -5
    assert edit(job, total_timeout=None).total_timeout_ms == get(job).total_timeout_ms


def test_what_is_wrong_names_the_option_and_changes_nothing(frozen: FrozenClock) -> None:
    (job,) = make(timeout="1h", retry={"initial_interval": "1s", "jitter": False})
    take()
    fail(now_stored(job))
    before = now_stored(job)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"total_timeout": 10}, "total_timeout"),
        ({"timeout": 100, "total_timeout": 10}, "total_timeout"),
        ({"timeout": -1}, "timeout"),
        ({"queue": "No Good", "priority": 3}, "queue"),
        ({"priority": 101}, "priority"),
        ({"retry": {"max_attempts": 1}}, "retry.max_attempts"),
        ({"retry": {"max_attempt": 5}}, "retry.max_attempt"),
    ]
    for options, field in wrong:
        with pytest.raises(InvalidRequest) as refused:
            edit(job, **options)
        assert refused.value.field == field
    with pytest.raises(TypeError, match="did you mean 'timeout'"):
        edit(job, timeuot=5)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="needs something to change"):
        edit(job)
    assert now_stored(job) == before


def test_only_waiting_jobs_change() -> None:
    make()
    (running,) = take()
    with pytest.raises(InvalidTransition):
        edit(running, priority=1)
    cancel(running)
    with pytest.raises(InvalidTransition):
        edit(running, priority=1)


def test_who_has_changed_what_is_recorded() -> None:
    (job,) = make()
    edit(job, priority=3, timeout=5, by="ada", reason="urgent")
    (event,) = Event.objects.filter(kind="job.edited")
    assert (event.data["actor"], event.data["reason"]) == ("ada", "urgent")
    assert set(event.data["changed"]) == {"priority", "timeout_explicit", "timeout_ms"}


@pytest.mark.parametrize(
    "policy",
    [
        {"unique": {"args_keys": ["order"]}},
        {"unique": {"meta_keys": ["tenant"]}},
        {"debounce": "60s", "unique": {"args_keys": ["order"]}},
    ],
)
def test_a_job_whose_type_is_unique_stays_so(
    monkeypatch: pytest.MonkeyPatch, policy: dict[str, Any]
) -> None:
    """What is compared is of the job, which the change does not touch."""
    monkeypatch.setitem(hooks._job_types, "test.order", job_defaults(policy, "test.order"))
    given: dict[str, Any] = {"kwargs": {"order": 1}, "meta": {"tenant": "a"}}
    job = enqueue("test.order", **given)
    before = now_stored(job)
    assert before.unique_key is not None
    edited = edit(job, priority=5, timeout="5m", retry={"max_attempts": 7})
    assert (edited.priority, edited.max_attempts) == (5, 7)
    stored = now_stored(job)
    assert (stored.unique_key, stored.extra) == (before.unique_key, before.extra)
    assert (stored.state, stored.scheduled_at) == (before.state, before.scheduled_at)
    if "debounce" not in policy:
        with pytest.raises(Duplicate) as refused:
            enqueue("test.order", **given)
        assert refused.value.details["existing_job_id"] == str(job.id)
