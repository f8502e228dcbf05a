"""The lease claim of a request: header ``OJS-Lease``, or fields of the body (decision L1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.lease_claim import LeaseClaim
from django_ojs.http.base import OJSViewSet, integer_field, text_field
from django_ojs.services import http_workers


def lease_claim_of(view: OJSViewSet, body: Mapping[str, Any]) -> LeaseClaim:
    """The lease claim of a report; counts as a sign of life of the worker that it names.

    Raises :class:`InvalidRequest` for a malformed part.
    """
    given = view.request.META.get("HTTP_OJS_LEASE") or lease_id_in(body)
    lease_claim = LeaseClaim(
        lease_id=None if given is None else parse_lease(given, "lease_id"),
        worker_id=text_field(body, "worker_id"),
        attempt=integer_field(body, "attempt", least=0),
        principal=view.caller.key,
    )
    if lease_claim.worker_id is not None:
        http_workers.heard(lease_claim.worker_id, view.caller.key, using=view.using)
    return lease_claim


def lease_id_in(body: Mapping[str, Any]) -> Any:
    """What a report has as ``lease_id``, or as ``lease: {id}``."""
    lease = body.get("lease")
    found = body.get("lease_id")
    return lease.get("id") if found is None and isinstance(lease, Mapping) else found


def parse_lease(value: object, field: str) -> UUID:
    """A lease id. Raises :class:`InvalidRequest`."""
    if isinstance(value, str) and len(value) <= 40:
        try:
            return UUID(value)
        except ValueError:
            pass
    raise InvalidRequest(field, "must be the id of the lease that the fetch gave")
