"""The features of the core: their routes and their entries in the manifest."""

from __future__ import annotations

from collections.abc import Mapping

from django_ojs.http.base import OJSViewSet
from django_ojs.http.routing import Feature, Route, register
from django_ojs.http.views.cron import CronViewSet
from django_ojs.http.views.dead_letter import BareDeadLetterViewSet, DeadLetterViewSet
from django_ojs.http.views.events import EventViewSet
from django_ojs.http.views.jobs import FlatJobViewSet, JobViewSet
from django_ojs.http.views.progress import CheckpointViewSet, ProgressViewSet
from django_ojs.http.views.queues import QueueViewSet
from django_ojs.http.views.rate_limits import RateLimitViewSet
from django_ojs.http.views.reports import ReportViewSet
from django_ojs.http.views.system import SystemViewSet
from django_ojs.http.views.work import WorkViewSet
from django_ojs.http.views.workers import WorkerViewSet
from django_ojs.http.views.workflows import WorkflowViewSet
from django_ojs.services import derived


def _managed(path: str, view: type[OJSViewSet], actions: Mapping[str, str]) -> Route:
    """A path, and the same below ``admin/``."""
    return Route(path, view, actions, (f"admin/{path}",))


def _verbs(path: str, view: type[OJSViewSet], *names: str) -> tuple[Route, ...]:
    """``POST {path}/{name}`` for each of the actions, and the same below ``admin/``."""
    return tuple(_managed(f"{path}/{name}", view, {"post": name}) for name in names)


JOBS = Feature(
    "jobs",
    (
        Route("jobs", JobViewSet, {"post": "create", "get": "list"}),
        Route("jobs/batch", JobViewSet, {"post": "batch"}),
        Route(
            "jobs/{job_id}",
            JobViewSet,
            {"get": "retrieve", "delete": "cancel", "patch": "partial_update"},
        ),
        *_verbs("jobs/{job_id}", JobViewSet, "cancel", "retry"),
        Route("jobs/{job_id}/activate", JobViewSet, {"post": "activate"}),
        Route("jobs/{job_id}/extend", JobViewSet, {"post": "extend"}),
        Route("jobs/{job_id}/result", JobViewSet, {"get": "result"}),
        Route("admin/jobs", JobViewSet, {"get": "list"}),
        Route("admin/jobs/{job_id}", FlatJobViewSet, {"get": "retrieve", "patch": "partial_update"}),
    ),
    (
        "enqueue",
        "batch_enqueue",
        "cancel",
        "retry",
        "delayed_jobs",
        "scheduled_jobs",
        "job_ttl",
        "priority_queues",
        "timeouts",
        "dynamic_timeouts",
        "pagination",
    ),
    "urn:ojs:ext:timeouts",
    endpoints={"jobs": "jobs", "batch": "jobs/batch"},
)
WORK = Feature(
    "work",
    (
        Route("workers/fetch", WorkViewSet, {"post": "fetch"}, ("jobs/fetch",)),
        Route("workers/ack", WorkViewSet, {"post": "ack"}),
        Route("jobs/{job_id}/ack", WorkViewSet, {"post": "ack"}),
        Route("workers/ack/batch", ReportViewSet, {"post": "ack"}),
        Route("workers/nack", WorkViewSet, {"post": "nack"}, ("workers/fail",)),
        Route("jobs/{job_id}/nack", WorkViewSet, {"post": "nack"}, ("jobs/{job_id}/fail",)),
        Route("workers/heartbeat", WorkViewSet, {"post": "beat"}, ("workers/beat",)),
        Route("workers/register", WorkViewSet, {"post": "register"}),
        Route("workers/deregister", WorkViewSet, {"post": "deregister"}),
    ),
    ("fetch", "ack", "batch_ack", "nack", "heartbeat", "visibility_timeout", "leases", "long_poll"),
    endpoints={
        "fetch": "workers/fetch",
        "ack": "workers/ack",
        "batch_ack": "workers/ack/batch",
        "nack": "workers/nack",
        "heartbeat": "workers/heartbeat",
    },
)
WORKERS = Feature(
    "workers",
    (
        _managed("workers", WorkerViewSet, {"get": "list"}),
        _managed("workers/{worker_id}", WorkerViewSet, {"get": "retrieve", "delete": "destroy"}),
        Route("workers/{worker_id}/health", WorkerViewSet, {"get": "health"}),
        *_verbs("workers/{worker_id}", WorkerViewSet, "quiet", "terminate", "resume"),
    ),
    ("worker_registry", "graceful_shutdown"),
    "urn:ojs:ext:graceful-shutdown",
    {"workers": "workers"},
)
PROGRESS = Feature(
    "progress",
    (
        Route("workers/progress", ProgressViewSet, {"post": "report"}),
        Route(
            "jobs/{job_id}/progress",
            ProgressViewSet,
            {"get": "retrieve", "put": "report", "post": "report"},
        ),
    ),
    ("progress",),
    "urn:ojs:ext:progress",
)
CHECKPOINTS = Feature(
    "checkpoints",
    (
        Route(
            "jobs/{job_id}/checkpoint",
            CheckpointViewSet,
            {"get": "retrieve", "put": "save", "post": "save", "delete": "destroy"},
            ("checkpoints/{job_id}",),
        ),
        Route("checkpoints/{job_id}/resume", CheckpointViewSet, {"get": "resume"}),
    ),
    ("checkpoints", "durable_execution"),
    "urn:ojs:ext:durable-execution",
)
QUEUES = Feature(
    "queues",
    (
        _managed("queues", QueueViewSet, {"get": "list", "post": "create"}),
        _managed("queues/{name}", QueueViewSet, {"get": "retrieve"}),
        Route("queues/{name}/stats", QueueViewSet, {"get": "stats"}),
        *_verbs("queues/{name}", QueueViewSet, "pause", "resume"),
    ),
    ("queue_stats", "pause_resume"),
    endpoints={"queues": "queues"},
)
DEAD_LETTER = Feature(
    "dead_letter",
    (
        _managed("dead-letter", DeadLetterViewSet, {"get": "list"}),
        _managed("dead-letter/stats", DeadLetterViewSet, {"get": "stats"}),
        Route("dead-letter/{job_id}", DeadLetterViewSet, {"get": "retrieve", "delete": "destroy"}),
        *_verbs("dead-letter/{job_id}", DeadLetterViewSet, "retry"),
        Route(
            "admin/dead-letter/{job_id}",
            BareDeadLetterViewSet,
            {"get": "retrieve", "delete": "destroy"},
        ),
    ),
    ("dead_letter",),
    endpoints={"dead_letter": "dead-letter"},
)
EVENTS = Feature(
    "events",
    (
        Route("events", EventViewSet, {"get": "list"}),
        Route("events/stream", EventViewSet, {"get": "stream"}),
        Route("jobs/{job_id}/events", EventViewSet, {"get": "of_job"}),
        Route("queues/{name}/events", EventViewSet, {"get": "of_queue"}),
    ),
    ("events", "event_stream"),
    endpoints={"events": "events", "event_stream": "events/stream"},
    holds={"event_stream": lambda: not derived.derived_kinds()},
)
WORKFLOWS = Feature(
    "workflows",
    (
        _managed("workflows", WorkflowViewSet, {"post": "create", "get": "list"}),
        _managed("workflows/{workflow_id}", WorkflowViewSet, {"get": "retrieve", "delete": "cancel"}),
        *_verbs("workflows/{workflow_id}", WorkflowViewSet, "cancel", "resume"),
        Route("workflows/{workflow_id}/progress", WorkflowViewSet, {"get": "progress"}),
        Route("workflows/{workflow_id}/results", WorkflowViewSet, {"get": "results"}),
    ),
    ("workflows",),
    endpoints={"workflows": "workflows"},
)
CRON = Feature(
    "cron",
    (
        Route(
            "cron",
            CronViewSet,
            {"post": "create", "get": "list"},
            ("crons", "admin/cron", "admin/crons"),
        ),
        Route(
            "cron/{name}",
            CronViewSet,
            {"get": "retrieve", "put": "update", "patch": "partial_update", "delete": "destroy"},
            ("crons/{name}", "admin/cron/{name}", "admin/crons/{name}"),
        ),
        Route("cron/{name}/runs", CronViewSet, {"get": "runs"}),
        *_verbs("cron/{name}", CronViewSet, "pause", "resume", "trigger"),
    ),
    ("cron_jobs",),
    endpoints={"cron": "cron"},
)
RATE_LIMITS = Feature(
    "rate_limits",
    (
        _managed("rate-limits", RateLimitViewSet, {"get": "list"}),
        _managed("rate-limits/{key}", RateLimitViewSet, {"get": "retrieve", "put": "update"}),
        _managed("rate-limits/{key}/override", RateLimitViewSet, {"delete": "destroy_override"}),
        _managed("queues/{name}/rate-limit", RateLimitViewSet, {"put": "update_queue"}),
    ),
    ("rate_limiting",),
    "urn:ojs:ext:rate-limiting",
    {"rate_limits": "rate-limits"},
)
UNIQUE = Feature("unique", (), ("unique_jobs",), "urn:ojs:ext:unique-jobs")
"""A field of requests: it has no routes."""
SYSTEM = Feature(
    "system",
    (
        Route("health", SystemViewSet, {"get": "health"}, ("/health", "/healthz")),
        Route("/ready", SystemViewSet, {"get": "ready"}, ("/readyz", "ready")),
        Route("/ojs/manifest", SystemViewSet, {"get": "manifest"}),
        Route("errors/{code}", SystemViewSet, {"get": "problem"}),
        Route("admin/stats", SystemViewSet, {"get": "stats"}),
        Route("metrics", SystemViewSet, {"get": "metrics"}, ("/metrics",)),
    ),
    ("health", "metrics"),
    endpoints={"health": "health", "manifest": "/ojs/manifest", "metrics": "metrics"},
)
CORE_FEATURES = (
    JOBS,
    WORK,
    WORKERS,
    PROGRESS,
    CHECKPOINTS,
    QUEUES,
    DEAD_LETTER,
    EVENTS,
    CRON,
    WORKFLOWS,
    RATE_LIMITS,
    UNIQUE,
    SYSTEM,
)


def register_all() -> None:
    """Register the features of the core."""
    for part in CORE_FEATURES:
        register(part)
