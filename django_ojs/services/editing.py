"""Change what a waiting job was enqueued with: its limits, its retry policy, its place."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django_ojs.domain.admission import admit
from django_ojs.domain.envelope import from_call
from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.job import JobRow
from django_ojs.domain.options import EditOptions, names
from django_ojs.domain.retry import from_stored, parse_policy, to_stored
from django_ojs.services.job_defaults import resolve_defaults, without_type_policy

EDITABLE = names(EditOptions)
"""What can be changed."""
_COLUMNS: Mapping[str, tuple[str, ...]] = {
    **{name: (f"{name}_ms",) for name in EDITABLE},
    "timeout": ("timeout_ms", "timeout_explicit"),
    "heartbeat_timeout": ("heartbeat_timeout_ms", "heartbeat_explicit"),
    "queue": ("queue",),
    "priority": ("priority",),
    "retry": ("retry", "max_attempts"),
}
"""The columns that hold an option."""


def changes_of(job: JobRow, options: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """The columns after the change: those of a job that is enqueued with the options.

    What is ``None`` is as if it had not been asked for: the default of type, queue and settings holds.
    A partial retry policy is merged over that of the job. Raises :class:`InvalidRequest` naming the
    option, also where limits contradict each other and where ``max_attempts`` leaves no attempt.
    """
    envelope = from_call(job.type, (), now=now, **options)
    if "queue" not in options:
        envelope = envelope._replace(queue=job.queue)
    # The job keeps its key, which cannot be computed here: its arguments are not part of the options.
    envelope = without_type_policy(envelope)
    asked = admit(envelope, resolve_defaults(envelope), job_id=job.id, now=now)
    columns = [column for name in options for column in _COLUMNS[name]]
    changes = {column: getattr(asked, column) for column in columns}
    if options.get("retry") is not None:
        policy = parse_policy(options["retry"], base=from_stored(job.retry)).capped()
        changes.update(retry=to_stored(policy), max_attempts=policy.max_attempts)
    if "retry" in options and changes["max_attempts"] <= job.attempt:
        rule = f"must be more than the attempts that were made, {job.attempt}"
        raise InvalidRequest("retry.max_attempts", rule)
    return changes
