"""Read-only tables: attempts, events, maintenance runs, schemas."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_ojs.admin import links
from django_ojs.admin.base import OJSModelAdmin
from django_ojs.admin.cells import since
from django_ojs.admin.redaction import pretty, redacted
from django_ojs.models import Attempt, Event, JobSchema, MaintenanceRun
from django_ojs.services.phrases import humanize_duration


class OfJobsAdmin(OJSModelAdmin):
    """Rows of a job, searched by the id of the job, which has an index."""

    search_fields = ("job_id",)
    search_help_text = gettext_lazy("The id of a job.")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        term = search_term.strip().removeprefix("job:")
        if not term:
            return queryset, False
        try:
            return queryset.filter(job_id=UUID(term)), False
        except ValueError:
            self.message_user(request, _("Not the id of a job: %s") % term[:100], messages.WARNING)
            return queryset.none(), False

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return tuple(map(str, self.get_fields(request, obj)))

    @admin.display(description=gettext_lazy("job"))
    def of_job(self, row: Any) -> str:
        """The id of the job, linked to its page."""
        if row.job_id is None:
            return ""
        return links.link(links.page_of(self.admin_site, "job", row.job_id), row.job_id)


@admin.register(Attempt)
class AttemptAdmin(OfJobsAdmin):
    """The ended attempts, newest first."""

    list_display = ("ended_at", "of_job", "attempt", "outcome", "worker_id", "lasted")
    heavy = ("error", "late_report")

    def get_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """Every field but the lease; late reports only with permission to see results."""
        shown = ("of_job", "attempt", "outcome", "worker_id", "started_at", "ended_at", "lasted")
        late = ("late",) if request.user.has_perm("django_ojs.view_args") else ()
        return (*shown, "deadline_at", "shown_error", *late)

    @admin.display(description=gettext_lazy("lasted"))
    def lasted(self, row: Any) -> str:
        return humanize_duration(row.ended_at - row.started_at)

    @admin.display(description=gettext_lazy("error"))
    def shown_error(self, row: Any) -> str:
        return pretty(redacted(row.error)) if row.error else "—"

    @admin.display(description=gettext_lazy("late report"))
    def late(self, row: Any) -> str:
        """The report that came after the lease was lost, as indented JSON."""
        return pretty(redacted(row.late_report)) if row.late_report else "—"


@admin.register(Event)
class EventAdmin(OfJobsAdmin):
    """The outbox, newest first."""

    list_display = ("created_at", "kind", "of_job", "job_type", "queue")
    heavy = ("data",)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """The data, which can contain results, only with permission to see these."""
        shown = ("kind", "created_at", "of_job", "job_type", "queue")
        return (*shown, "shown_data") if request.user.has_perm("django_ojs.view_args") else shown

    @admin.display(description=gettext_lazy("data"))
    def shown_data(self, row: Any) -> str:
        return pretty(redacted(row.data)) if row.data else "—"


@admin.register(MaintenanceRun)
class MaintenanceRunAdmin(OJSModelAdmin):
    """The last run of each maintenance task, by name."""

    keys = (("pk", False),)
    list_display = ("name", "last_run_at", "ago", "cadence", "ran_by")

    @admin.display(description=gettext_lazy("ago"))
    def ago(self, row: Any) -> str:
        return since(row.last_run_at, row.ojs_now)

    @admin.display(description=gettext_lazy("every"))
    def cadence(self, row: Any) -> str:
        return "—" if row.cadence_ms is None else _("%s s") % f"{row.cadence_ms / 1000:g}"


@admin.register(JobSchema)
class JobSchemaAdmin(OJSModelAdmin):
    """The schemas of arguments."""

    list_display = ("type", "version", "created_at")
