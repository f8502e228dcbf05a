"""Health, readiness, manifest, statistics, and what errors mean."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from django.db import DatabaseError, InterfaceError
from django.http import HttpResponse
from rest_framework.exceptions import NotFound as RouteNotFound
from rest_framework.request import Request
from rest_framework.response import Response

from django_ojs import clock
from django_ojs.domain import exposition
from django_ojs.domain.errors import PermissionDenied
from django_ojs.http import listing, responses, routing
from django_ojs.http.base import OPEN, OJSViewSet, missing
from django_ojs.http.problems import PROBLEMS
from django_ojs.http.replica import from_replica
from django_ojs.services import inspect, metrics, tokens
from django_ojs.store.sessions import statement_timeout

VERSION = version("django-ojs")
_started = clock.boottime()


STANDARD_CAPABILITIES = (
    *("batch_enqueue", "cron_jobs", "dead_letter", "delayed_jobs", "job_ttl", "pause_resume"),
    *("priority_queues", "rate_limiting", "schema_validation", "unique_jobs", "workflows"),
)
"""Those of OJS HTTP 21, which the manifest always has: false if nothing provides one."""


class SystemViewSet(OJSViewSet):
    """What probes and clients ask first."""

    scopes = {
        "health": (OPEN,),
        "ready": (OPEN,),
        "manifest": (OPEN,),
        "problem": (OPEN,),
        "stats": ("inspect",),
        "metrics": ("metrics", "inspect"),
        "nothing": tokens.SCOPES,
    }

    def health(self, request: Request) -> Response:
        """Whether the database answers and timeouts are enforced; more for those who may inspect."""
        began = clock.boottime()
        answer: dict[str, Any] = {
            "status": "ok",
            "version": VERSION,
            "uptime_seconds": int(began - _started),
        }
        backend: dict[str, Any] = {"type": inspect.backend(self.using), "status": "ok"}
        try:
            found = inspect.health(using=self.using)
        except (DatabaseError, InterfaceError):
            backend["status"] = "unhealthy"
            answer |= {"status": "degraded", "backend": {**backend, "latency_ms": 0}}
            return Response(answer, status=503)
        backend["latency_ms"] = round((clock.boottime() - began) * 1000)
        if found["troubles"]:
            answer["status"] = "degraded"
        answer["backend"] = backend
        answer["queues"], answer["workers"] = {}, {}
        caller = self.principal
        if caller is not None and caller.unrestricted and caller.may("inspect"):
            answer |= found
        return Response(answer)

    def ready(self, request: Request) -> Response:
        """Whether requests can be served."""
        try:
            inspect.health(using=self.using)
        except (DatabaseError, InterfaceError):
            return Response({"status": "not_ready"}, status=503)
        return Response({"status": "ready"})

    def manifest(self, request: Request) -> Response:
        """What this server can do: derived from what is registered."""
        parts = routing.features()
        return Response(
            {
                "specversion": "1.0",
                "ojs_version": "1.0",
                "implementation": {
                    "name": "django-ojs",
                    "version": VERSION,
                    "language": "python",
                    "homepage": "https://pypi.org/project/django-ojs/",
                },
                "conformance_level": routing.conformance_level(),
                "conformance_tier": "runtime",
                "unique_job_strength": "strong",
                "protocols": ["http"],
                "backend": inspect.backend(self.using),
                "capabilities": dict.fromkeys(STANDARD_CAPABILITIES, False)
                | {name: there for part in parts for name, there in part.declared().items()},
                "extensions": [part.extension for part in parts if part.extension],
                "endpoints": {
                    name: routing.url_of(path)
                    for part in parts
                    for name, path in part.endpoints.items()
                },
            }
        )

    def problem(self, request: Request, code: str) -> Response:
        """What an error code means and what to do about it."""
        found = PROBLEMS.get(code)
        if found is None:
            raise missing("error", code)
        return Response(
            {
                "code": code,
                "http_status": found.status,
                "retryable": found.retryable,
                "hint": found.hint,
            }
        )

    @from_replica
    def stats(self, request: Request) -> Response:
        """Queues, workers and jobs in figures: of those that the caller sees."""
        caller = self.caller
        with statement_timeout(listing.TIME_LIMIT_MS, using=self.using):
            figures = inspect.figures(list(caller.queues), caller.key, using=self.using)
        return Response(
            {
                **figures,
                "uptime_seconds": int(clock.boottime() - _started),
                "computed_at": responses.moment(clock.now(self.using)),
            }
        )

    @from_replica
    def metrics(self, request: Request) -> HttpResponse:
        """What monitoring scrapes: Prometheus text, or OpenMetrics for those who accept it."""
        if not self.caller.unrestricted:
            raise PermissionDenied("Metrics tell of all queues; this credential sees some of them.")
        accepted = request.META.get("HTTP_ACCEPT", "")
        openmetrics = "application/openmetrics-text" in accepted
        with statement_timeout(listing.TIME_LIMIT_MS, using=self.using):
            text = exposition.render(metrics.collect(using=self.using), openmetrics=openmetrics)
        kind = exposition.PLAIN
        if openmetrics:
            kind = exposition.OPENMETRICS
        elif "version=" in accepted:
            kind = exposition.VERSIONED
        return HttpResponse(text, content_type=kind)

    def nothing(self, request: Request, rest: str = "") -> Response:
        """Every other path below ``/ojs``: 404 for those who may come in at all."""
        raise RouteNotFound
