"""The options of the Python API: one list of their names and types, for type checkers and for calls.

``None`` counts as not given. Durations are seconds, ``timedelta``, ``"10s"`` or ISO 8601.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict
from uuid import UUID

from django_ojs.domain.suggestions import did_you_mean

Duration = int | str | timedelta
Moment = datetime | timedelta | int | str
"""A time, or a duration from now."""
HeartbeatMode = Literal["auto", "manual"]
OnPartition = Literal["continue", "stop"]
SoftStopMode = Literal["raise", "flag"]


class LimitOptions(TypedDict, total=False):
    """The limits that settings, job types and jobs have."""

    timeout: Duration | None
    grace_period: Duration | None
    heartbeat_timeout: Duration | None
    total_timeout: Duration | None
    enqueue_ttl: Duration | None
    attempt_ttl: Duration | None


class UniqueOptions(TypedDict, total=False):
    """What makes a job unique."""

    unique: Mapping[str, Any] | bool | None
    throttle: Duration | None
    debounce: Duration | Mapping[str, Duration] | None


class EditOptions(LimitOptions, total=False):
    """What ``edit()`` changes."""

    queue: str | None
    priority: int | None
    retry: Mapping[str, Any] | None


class TypeOptions(LimitOptions, UniqueOptions, total=False):
    """The options of ``@job``."""

    queue: str | None
    priority: int | None
    retry: Mapping[str, Any] | None
    rate_limit: Mapping[str, Any] | None
    on_partition: OnPartition | None
    heartbeat: HeartbeatMode
    soft: SoftStopMode
    isolate: bool


class _LimitsInMs(TypedDict, total=False):
    timeout_ms: int | None
    grace_period_ms: int | None
    heartbeat_timeout_ms: int | None
    total_timeout_ms: int | None
    enqueue_ttl_ms: int | None
    attempt_ttl_ms: int | None
    visibility_timeout_ms: int | None


class MemberOptions(LimitOptions, _LimitsInMs, UniqueOptions, total=False):
    """The options that jobs and steps of workflows have."""

    visibility_timeout: Duration | None
    queue: str | None
    priority: int | None
    delay: Duration | None
    scheduled_at: Moment | None
    expires_at: Moment | None
    retry: Mapping[str, Any] | None
    rate_limit: Mapping[str, Any] | None
    meta: Mapping[str, Any] | None
    tags: Sequence[str] | None


class StepOptions(MemberOptions, total=False):
    """The options of a step of a workflow."""

    when: Literal["completed", "ended"]


class EnqueueOptions(MemberOptions, total=False):
    """The options of ``enqueue()``."""

    pending: bool | None
    id: UUID | str | None


class UsingOptions(EnqueueOptions, StepOptions, total=False):
    """The options of ``handler.using()``, for ``enqueue()`` and ``step()``."""


class PeriodicOptions(TypedDict, total=False):
    """The options of ``@periodic``."""

    every: Duration | None
    timezone: str | None
    overlap: Literal["skip", "allow", "cancel_previous", "enqueue"] | None
    catch_up: Literal["none", "one"] | None
    catch_up_within: Duration | None
    jitter: Duration | None
    enabled: bool | None
    starts_at: datetime | str | None
    ends_at: datetime | str | None
    description: str | None


class WorkflowOptions(TypedDict, total=False):
    """The options with which a workflow is enqueued."""

    workflow_timeout: Duration | None
    id: UUID | str | None
    name: str | None
    meta: Mapping[str, Any] | None


class _TaskPolicy(LimitOptions, UniqueOptions, total=False):
    retry: Mapping[str, Any] | None
    rate_limit: Mapping[str, Any] | None
    max_attempts: int | None
    backoff: Duration | None


class TaskLimits(_TaskPolicy, total=False):
    """What a task of ``django.tasks`` declares for its job type."""

    on_partition: OnPartition | None


class TaskModes(TypedDict, total=False):
    """How the handler of a task gives signs of life, and is told to stop."""

    heartbeat: HeartbeatMode | None
    soft: SoftStopMode | None
    isolate: bool | None


class LimitsOptions(TaskLimits, TaskModes, total=False):
    """The options of ``@limits``."""


class _CallOptions(_TaskPolicy, total=False):
    priority: int | None
    queue_name: str | None
    backend: str | None
    meta: Mapping[str, Any] | None
    tags: Sequence[str] | None


class TaskOptions(TaskLimits, TaskModes, _CallOptions, total=False):
    """The options of ``@task``."""

    takes_context: bool
    type: str | None


class TaskUsingOptions(_CallOptions, total=False):
    """The options of ``task.using()``."""

    run_after: datetime | timedelta | None
    delay: Duration | None
    id: UUID | str | None


def names(options: Any) -> tuple[str, ...]:
    """The names of a set of options, in their order."""
    return tuple(options.__annotations__)


def check_names(caller: str, given: Collection[str], known: Collection[str]) -> None:
    """Raise ``TypeError`` for a name that is not known; it says which one is near."""
    unknown = [name for name in given if name not in known]
    if unknown:
        listed = [name for name in known if not name.endswith("_ms")]
        hint = did_you_mean(unknown[0], listed, "options", known)
        raise TypeError(f"{caller} has no option {unknown[0]!r}: {hint}")
