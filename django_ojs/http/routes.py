"""The features of the core: their routes and their entries in the manifest."""

from __future__ import annotations

from django_ojs.http.routing import BASE, Feature, Route, register
from django_ojs.http.views.dead_letter import BareDeadLetterViewSet, DeadLetterViewSet
from django_ojs.http.views.events import EventViewSet
from django_ojs.http.views.jobs import FlatJobViewSet, JobViewSet
from django_ojs.http.views.progress import CheckpointViewSet, ProgressViewSet
from django_ojs.http.views.queues import QueueViewSet
from django_ojs.http.views.reports import ReportViewSet
from django_ojs.http.views.system import SystemViewSet
from django_ojs.http.views.work import WorkViewSet
from django_ojs.http.views.workers import WorkerViewSet
from django_ojs.services import derived

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
        Route("jobs/{job_id}/cancel", JobViewSet, {"post": "cancel"}, ("admin/jobs/{job_id}/cancel",)),
        Route("jobs/{job_id}/activate", JobViewSet, {"post": "activate"}),
        Route("jobs/{job_id}/retry", JobViewSet, {"post": "retry"}, ("admin/jobs/{job_id}/retry",)),
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
    endpoints={"jobs": f"/{BASE}jobs", "batch": f"/{BASE}jobs/batch"},
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
        "fetch": f"/{BASE}workers/fetch",
        "ack": f"/{BASE}workers/ack",
        "batch_ack": f"/{BASE}workers/ack/batch",
        "nack": f"/{BASE}workers/nack",
        "heartbeat": f"/{BASE}workers/heartbeat",
    },
)
WORKERS = Feature(
    "workers",
    (
        Route("workers", WorkerViewSet, {"get": "list"}, ("admin/workers",)),
        Route(
            "workers/{worker_id}",
            WorkerViewSet,
            {"get": "retrieve", "delete": "destroy"},
            ("admin/workers/{worker_id}",),
        ),
        Route("workers/{worker_id}/health", WorkerViewSet, {"get": "health"}),
        Route(
            "workers/{worker_id}/quiet",
            WorkerViewSet,
            {"post": "quiet"},
            ("admin/workers/{worker_id}/quiet",),
        ),
        Route(
            "workers/{worker_id}/terminate",
            WorkerViewSet,
            {"post": "terminate"},
            ("admin/workers/{worker_id}/terminate",),
        ),
        Route(
            "workers/{worker_id}/resume",
            WorkerViewSet,
            {"post": "resume"},
            ("admin/workers/{worker_id}/resume",),
        ),
    ),
    ("worker_registry", "graceful_shutdown"),
    "urn:ojs:ext:graceful-shutdown",
    {"workers": f"/{BASE}workers"},
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
        Route("queues", QueueViewSet, {"get": "list", "post": "create"}, ("admin/queues",)),
        Route("queues/{name}", QueueViewSet, {"get": "retrieve"}, ("admin/queues/{name}",)),
        Route("queues/{name}/stats", QueueViewSet, {"get": "stats"}),
        Route("queues/{name}/pause", QueueViewSet, {"post": "pause"}, ("admin/queues/{name}/pause",)),
        Route(
            "queues/{name}/resume", QueueViewSet, {"post": "resume"}, ("admin/queues/{name}/resume",)
        ),
    ),
    ("queue_stats", "pause_resume"),
    endpoints={"queues": f"/{BASE}queues"},
)
_DEAD = "dead-letter"
DEAD_LETTER = Feature(
    "dead_letter",
    (
        Route(_DEAD, DeadLetterViewSet, {"get": "list"}, (f"admin/{_DEAD}",)),
        Route(f"{_DEAD}/stats", DeadLetterViewSet, {"get": "stats"}, (f"admin/{_DEAD}/stats",)),
        Route(f"{_DEAD}/{{job_id}}", DeadLetterViewSet, {"get": "retrieve", "delete": "destroy"}),
        Route(
            f"{_DEAD}/{{job_id}}/retry",
            DeadLetterViewSet,
            {"post": "retry"},
            (f"admin/{_DEAD}/{{job_id}}/retry",),
        ),
        Route(
            f"admin/{_DEAD}/{{job_id}}",
            BareDeadLetterViewSet,
            {"get": "retrieve", "delete": "destroy"},
        ),
    ),
    ("dead_letter",),
    endpoints={"dead_letter": f"/{BASE}{_DEAD}"},
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
    endpoints={"events": f"/{BASE}events", "event_stream": f"/{BASE}events/stream"},
    holds={"event_stream": lambda: not derived.derived_kinds()},
)
SYSTEM = Feature(
    "system",
    (
        Route("health", SystemViewSet, {"get": "health"}, ("/health", "/healthz")),
        Route("/ready", SystemViewSet, {"get": "ready"}, ("/readyz", "ready")),
        Route("/ojs/manifest", SystemViewSet, {"get": "manifest"}),
        Route("errors/{code}", SystemViewSet, {"get": "problem"}),
        Route("admin/stats", SystemViewSet, {"get": "stats"}),
    ),
    ("health",),
    endpoints={"health": f"/{BASE}health", "manifest": "/ojs/manifest"},
)
CORE_FEATURES = (JOBS, WORK, WORKERS, PROGRESS, CHECKPOINTS, QUEUES, DEAD_LETTER, EVENTS, SYSTEM)


def register_all() -> None:
    """Register the features of the core."""
    for part in CORE_FEATURES:
        register(part)
