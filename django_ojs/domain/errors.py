"""What can go wrong, named after what happened rather than where.

Every class carries the ``code`` of the OJS error object, so that an adapter needs one table from
code to its own form (HTTP status, exit code, message).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class OJSError(Exception):
    """Base of everything that django_ojs raises on purpose."""

    code = "internal_error"
    retryable = False

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details: Mapping[str, Any] = details


class InvalidRequest(OJSError):
    """Bad input. ``field`` names the field as the caller wrote it, ``rule`` what it must be.

    Raised by everything that takes input from outside; nothing was written.
    """

    code = "invalid_request"

    def __init__(self, field: str, rule: str, **details: Any) -> None:
        super().__init__(f"{field}: {rule}", field=field, rule=rule, **details)
        self.field = field
        self.rule = rule


class InvalidRetryPolicy(InvalidRequest):
    """A retry policy breaks a rule (OJS retry 2)."""

    code = "validation_error"


class UnknownRetryKey(InvalidRetryPolicy, TypeError):
    """An unknown key in a retry policy: a ``TypeError`` too, as for an argument."""


class TooLarge(InvalidRequest):
    """A value is over its size limit; ``limit`` is in bytes."""

    code = "payload_too_large"


class Unsupported(OJSError):
    """A version or feature that this server does not have."""

    code = "unsupported"


class NotFound(OJSError):
    """No such job, queue or worker (or none that the caller may see)."""

    code = "not_found"


def no_job(job_id: object) -> NotFound:
    """The error for an id that no job has."""
    return NotFound(f"no job {job_id}", resource_type="job", resource_id=str(job_id))


class PermissionDenied(OJSError):
    """The caller is known, and may not do this."""

    code = "permission_denied"


class Duplicate(OJSError):
    """The id is taken by a job with other content, or an equal job exists that its policy minds.

    ``details`` has ``existing_job_id`` and ``existing_job_state``; of an equal job ``existing`` is the
    record and ``details["unique_key"]`` the key.
    """

    code = "duplicate"
    existing: Any = None


class Conflict(OJSError):
    """The state of the job does not allow this; nothing was changed."""

    code = "conflict"


class InvalidTransition(Conflict):
    """An arrow that is not in the table of :mod:`django_ojs.domain.states`."""


class LeaseLost(Conflict):
    """The lease is not, or no longer, the current one of the job; the report changed nothing."""


class RateLimited(OJSError):
    """Too much at once; ``retry_after`` is in seconds."""

    code = "rate_limited"

    def __init__(self, message: str, *, retry_after: int, **details: Any) -> None:
        super().__init__(message, retry_after_seconds=retry_after, **details)
        self.retry_after = retry_after


class HandlerNotFound(OJSError):
    """No handler is registered for the job's type in this process."""

    code = "handler_not_found"
