"""Read-only registration of the models in Django's admin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db.models import Model, QuerySet
from django.http import HttpRequest

from django_ojs import conf
from django_ojs.models import Attempt, ChoreRun, Event, Job, Queue, Worker

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[Any]
else:
    _ModelAdmin = admin.ModelAdmin


class ReadOnlyAdmin(_ModelAdmin):
    """Shows rows in the order of the primary key and changes nothing."""

    show_full_result_count = False
    list_per_page = 50
    ordering = ("-pk",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """From the database that holds the jobs, with or without a router."""
        return super().get_queryset(request).using(conf.current().database)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Jobs are enqueued, not typed in."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """State is written by transitions only."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Rows are deleted by retention."""
        return False


@admin.register(Job)
class JobAdmin(ReadOnlyAdmin):
    """The jobs, newest first."""

    list_display = ("id", "type", "queue", "state", "attempt", "max_attempts", "created_at")
    list_filter = ("state",)
    # The lease is its holder's secret.
    exclude = ("lease_id", "digest")


@admin.register(Attempt)
class AttemptAdmin(ReadOnlyAdmin):
    """The ended attempts."""

    list_display = ("job_id", "attempt", "outcome", "worker_id", "started_at", "ended_at")
    exclude = ("job", "lease_id")


@admin.register(Queue)
class QueueAdmin(ReadOnlyAdmin):
    """The queues."""

    list_display = ("name", "paused", "paused_at", "paused_by")


@admin.register(Worker)
class WorkerAdmin(ReadOnlyAdmin):
    """The workers."""

    list_display = ("id", "phase", "running", "concurrency", "heartbeat_at")
    exclude = ("incarnation",)


@admin.register(Event)
class EventAdmin(ReadOnlyAdmin):
    """The outbox."""

    list_display = ("created_at", "kind", "job_id", "queue")


@admin.register(ChoreRun)
class ChoreRunAdmin(ReadOnlyAdmin):
    """When periodic work was last done."""

    list_display = ("name", "last_run_at", "ran_by")
