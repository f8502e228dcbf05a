"""Errors as they leave: one table from code to status, one envelope (OJS HTTP binding 16)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

from django.core.exceptions import PermissionDenied as DjangoPermissionDenied
from django.core.exceptions import SuspiciousOperation
from django.core.signals import got_request_exception
from django.db import DatabaseError, InterfaceError, OperationalError, connections
from django.http import Http404
from rest_framework import exceptions
from rest_framework.response import Response

from django_ojs import clock
from django_ojs.domain.errors import OJSError, RateLimited

logger = logging.getLogger("django_ojs.http")


class Problem(NamedTuple):
    """A kind of error: its status, whether the same request may work later, and what to do."""

    status: int
    retryable: bool
    hint: str


PROBLEMS: Mapping[str, Problem] = {
    "invalid_payload": Problem(400, False, "Send one JSON object, encoded as UTF-8."),
    "invalid_request": Problem(400, False, "Correct the field that details.field names."),
    "validation_error": Problem(422, False, "Correct the part that details.field names."),
    "payload_too_large": Problem(413, False, "Store large data elsewhere and pass a reference."),
    "metadata_too_large": Problem(413, False, "Keep meta small; put data into args."),
    "unsupported": Problem(422, False, "Speak version 1 of Open Job Spec."),
    "EXTENSION_NOT_SUPPORTED": Problem(422, False, "Read the manifest; do without the extension."),
    "unauthenticated": Problem(401, False, "Send 'Authorization: Bearer <token>'."),
    "permission_denied": Problem(403, False, "Use a credential with the scope and queue for this."),
    "not_found": Problem(404, False, "Check the id; a finished job may have been pruned."),
    "wait_timeout": Problem(408, True, "The job has not ended yet; ask again."),
    "duplicate": Problem(409, False, "Use another id, or read what has this one."),
    "conflict": Problem(409, False, "Read it again: its state or lease has changed."),
    "rate_limited": Problem(429, True, "Wait for Retry-After seconds."),
    "backend_error": Problem(503, True, "The database is not available; try again later."),
    "internal_error": Problem(500, False, "Report the request id to the operators."),
}


class InvalidPayload(OJSError):
    """The body is not one JSON object."""

    code = "invalid_payload"


class ExtensionNotSupported(OJSError):
    """The request depends on an extension that the manifest does not list."""

    code = "EXTENSION_NOT_SUPPORTED"


class WaitTimeout(OJSError):
    """A long poll for the end of a job ran out of time."""

    code = "wait_timeout"


def envelope(
    code: str, message: str, *, request_id: str, details: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The error envelope, with every key that any client reads."""
    problem = PROBLEMS[code]
    url = f"/ojs/v1/errors/{code}"
    return {
        "error": {
            "code": code,
            "type": code,
            "message": message,
            "retryable": problem.retryable,
            "details": dict(details or {}),
            "request_id": request_id,
            "hint": problem.hint,
            "docs_url": url,
            "doc_url": url,
        }
    }


def of(error: OJSError, *, request_id: str) -> dict[str, Any]:
    """The envelope of an error of the domain."""
    return envelope(_code(error), error.message, request_id=request_id, details=error.details)


def handle(error: Exception, context: Mapping[str, Any]) -> Response:
    """The exception handler of every view: there is no error without an envelope."""
    view = context["view"]
    code, message, details, headers = _explain(error, view)
    status = PROBLEMS[code].status
    if isinstance(error, exceptions.MethodNotAllowed):
        status = 405
    if status >= 500:
        request = context["request"]
        # Escaped: a line break in a path must not begin a line of the log.
        logger.error("%s %s failed", request.method, ascii(request.path)[1:-1], exc_info=error)
        got_request_exception.send(sender=type(view), request=request._request)
    body = envelope(code, message, request_id=view.request_id, details=details)
    if code == "backend_error" and not connections[view.using].in_atomic_block:
        # After a failover the old server may still answer, but read-only: reconnect.
        connections[view.using].close()
    return Response(body, status=status, headers=headers)


def _code(error: OJSError) -> str:
    return error.code if error.code in PROBLEMS else "internal_error"


def _explain(error: Exception, view: Any) -> tuple[str, str, Mapping[str, Any], dict[str, str]]:
    match error:
        case RateLimited():
            headers = {"Retry-After": str(error.retry_after)}
            if "limit" in error.details:
                again = clock.host_time().timestamp() + error.retry_after
                headers |= {
                    "X-RateLimit-Limit": str(error.details["limit"]),
                    "X-RateLimit-Remaining": "0",
                    "X-RateLimit-Reset": str(int(again)),
                }
            return "rate_limited", error.message, error.details, headers
        case OJSError():
            return _code(error), error.message, error.details, {}
        case exceptions.NotAuthenticated() | exceptions.AuthenticationFailed():
            header = getattr(error, "auth_header", None) or "Bearer"
            # The same response for every cause, so that it reveals nothing about tokens.
            return "unauthenticated", "A valid credential is needed.", {}, {"WWW-Authenticate": header}
        case exceptions.PermissionDenied() | DjangoPermissionDenied():
            needed = " or ".join(view.needed_scopes())
            text = str(getattr(error, "detail", "")) if "CSRF" in str(error) else ""
            return "permission_denied", text or f"This needs the scope {needed}.", {}, {}
        case exceptions.NotFound() | Http404():
            details = {"resource_type": "route", "resource_id": view.request.path}
            return "not_found", f"There is no {view.request.path} here.", details, {}
        case exceptions.MethodNotAllowed():
            allowed = ", ".join(sorted(view.allowed_methods))
            message = f"{view.request.method} is not allowed here; allowed: {allowed}"
            return "invalid_request", message, {}, {"Allow": allowed}
        case exceptions.APIException() | SuspiciousOperation() if (
            getattr(error, "status_code", 400) < 500
        ):
            return "invalid_request", str(getattr(error, "detail", "The request is not valid.")), {}, {}
        case DatabaseError() | InterfaceError() if _is_away(error):
            return "backend_error", "The database is not available.", {}, {"Retry-After": "2"}
        case DatabaseError():
            return "internal_error", "The database refused.", {}, {}
        case _:
            return "internal_error", "Something went wrong.", {}, {}


def _is_away(error: DatabaseError | InterfaceError) -> bool:
    """Whether the database does not answer, or not as one to write to: 25006 is read-only."""
    away = isinstance(error, OperationalError | InterfaceError)
    return away or getattr(error.__cause__, "sqlstate", None) == "25006"
