"""The schema registry over HTTP, the form by type and version."""

from __future__ import annotations

from collections.abc import Sequence

from rest_framework.request import Request
from rest_framework.response import Response

from django_ojs.domain.durations import format_instant
from django_ojs.domain.errors import InvalidRequest, PermissionDenied
from django_ojs.extensions.schemas import services
from django_ojs.http import listing
from django_ojs.http.base import OJSViewSet, missing
from django_ojs.http.routing import Feature, Route
from django_ojs.models import JobSchema


class SchemaViewSet(OJSViewSet):
    """Schemas by job type and version."""

    scopes = {
        "list": ("inspect",),
        "retrieve": ("inspect",),
        "latest": ("inspect",),
        "versions": ("inspect",),
        "update": ("administer",),
        "destroy": ("administer",),
    }

    def list(self, request: Request) -> Response:
        """All schemas."""
        listing.allow(request)
        rows = JobSchema.objects.using(self.using).all()
        keys = ("type", "version")
        page = listing.listed(request, rows, _shapes, "schemas", keys=keys, large="schema")
        return Response(page)

    def update(self, request: Request, type: str, version: str) -> Response:
        """Register a version: 201, or 200 when it is there with the same content.

        Schemas are for all queues, so that a credential for some of them may not.
        """
        self._may_write()
        schema = self.body().get("schema")
        actor = self.actor()
        row, fresh = services.put(type, _number(version), schema, actor=actor, using=self.using)
        self.warn("schema", "stored, not enforced")
        return Response(_shape(row), status=201 if fresh else 200)

    def retrieve(self, request: Request, type: str, version: str) -> Response:
        """One version."""
        number = _existing(type, version)
        return Response(_shape(services.get(type, number, using=self.using)))

    def latest(self, request: Request, type: str) -> Response:
        """The latest version that is left."""
        return Response(_shape(services.get(type, using=self.using)))

    def versions(self, request: Request, type: str) -> Response:
        """The versions of a type; none is no error."""
        rows = services.versions(type, using=self.using)
        found = [
            {
                "version": row.version,
                "created_at": format_instant(row.created_at),
                "is_latest": row is rows[-1],
            }
            for row in rows
        ]
        return Response({"type": type, "versions": found})

    def destroy(self, request: Request, type: str, version: str) -> Response:
        """Forget a version.

        Schemas are for all queues, so that a credential for some of them may not.
        """
        self._may_write()
        number = _existing(type, version)
        services.delete(type, number, actor=self.actor(), using=self.using)
        return Response({"deleted": True, "type": type, "version": number})

    def _may_write(self) -> None:
        if not self.caller.unrestricted:
            raise PermissionDenied("Schemas are for all queues; this credential is for some of them.")


def _shapes(rows: Sequence[JobSchema]) -> list[dict[str, object]]:
    return [_shape(row) for row in rows]


def _shape(row: JobSchema) -> dict[str, object]:
    return {
        "type": row.type,
        "version": row.version,
        "schema": row.schema,
        "created_at": format_instant(row.created_at),
    }


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or not 0 < int(text[:11]) < 2**31:
        raise InvalidRequest("version", "must be an integer from 1 to 2147483647")
    return int(text)


def _existing(job_type: str, version: str) -> int:
    """The number in the path. Raises :class:`NotFound` for text that is no version's number."""
    try:
        return _number(version)
    except InvalidRequest:
        raise missing("schema", f"{job_type}/{version}") from None


FEATURE = Feature(
    "schemas",
    (
        Route("admin/schemas", SchemaViewSet, {"get": "list"}),
        Route("admin/schemas/{type}", SchemaViewSet, {"get": "latest"}),
        Route("admin/schemas/{type}/versions", SchemaViewSet, {"get": "versions"}),
        Route(
            "admin/schemas/{type}/{version}",
            SchemaViewSet,
            {"get": "retrieve", "put": "update", "delete": "destroy"},
        ),
    ),
)
