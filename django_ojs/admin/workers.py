"""The worker screens: liveness, running jobs, and directives."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_ojs import clock
from django_ojs.admin import links
from django_ojs.admin.actions import ActionReport, Operation, Run
from django_ojs.admin.cells import attempt_of, since
from django_ojs.admin.details import DetailsAdmin
from django_ojs.admin.redaction import pretty, redacted
from django_ojs.admin.sorting import PARAMETER
from django_ojs.admin.worker_board import (
    DIRECTIVES,
    MOST_SHOWN,
    STALE_STATUS,
    STATUSES,
    WorkerBoard,
    badges,
    memory,
    slots,
)
from django_ojs.domain.errors import Conflict, OJSError
from django_ojs.domain.job import Actor
from django_ojs.domain.states import State
from django_ojs.models import Job, Worker
from django_ojs.services import deploys, reading, workers
from django_ojs.services.phrases import humanize_duration
from django_ojs.services.workers import STALE
from django_ojs.store import selectors

MOST_JOBS = 100
_PHASE = Worker.Phase


class StatusFilter(admin.SimpleListFilter):
    """By status; without a choice, the workers that have not stopped."""

    title = gettext_lazy("status")
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [*((name, word) for name, (word, _tone) in STATUSES.items()), ("all", _("all"))]

    def choices(self, changelist: Any) -> Any:
        """Django's "All" means "not stopped" here."""
        first, *others = super().choices(changelist)
        yield {**first, "display": _("not stopped")}
        yield from others

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        wanted = self.value()
        if wanted == "all":
            return queryset
        if wanted == _PHASE.STOPPED:
            return queryset.filter(phase=_PHASE.STOPPED)
        limit = clock.now(reading.database()) - STALE
        if wanted == STALE_STATUS:
            return queryset.filter(~Q(phase=_PHASE.STOPPED), heartbeat_at__lt=limit)
        if wanted in STATUSES:
            return queryset.filter(phase=wanted, heartbeat_at__gte=limit)
        return queryset.exclude(phase=_PHASE.STOPPED)


def _directing(order: str | None) -> Run:
    """An operation that gives workers a directive, and skips those that have it already."""

    def run(keys: Sequence[Any], cleaned: Mapping[str, Any], actor: Actor) -> ActionReport:
        report = ActionReport()
        for key in keys:
            found: Any = key
            try:
                found = workers.find(key)
                if found.phase == _PHASE.STOPPED:
                    report.skipped.append(_("The worker %s has stopped.") % found)
                elif found.directive != order:
                    workers.direct(key, order, actor=actor)
                    report.done += 1
                elif order is None:
                    report.skipped.append(_("The worker %s was told nothing.") % found)
                else:
                    report.skipped.append(_("The worker %s was told that already.") % found)
            except Conflict:
                # It stopped between the read and the directive.
                report.skipped.append(_("The worker %s has stopped.") % found)
            except OJSError as error:
                report.skipped.append(error.message)
        return report

    return run


def _operation(
    name: str, label: Any, order: str | None, consequence: Any, *, danger: bool = False
) -> Operation:
    def allowed(row: Any) -> bool:
        return bool(row.phase != _PHASE.STOPPED and row.directive != order)

    return Operation(
        name, label, "direct_worker", consequence, _directing(order), allowed=allowed, danger=danger
    )


WORKER_OPERATIONS = (
    _operation(
        "quiet",
        gettext_lazy("Quiet"),
        "quiet",
        gettext_lazy(
            "With its next heartbeat the worker is told to claim no more jobs. "
            "Those that it runs go on."
        ),
    ),
    _operation(
        "stop",
        gettext_lazy("Stop"),
        "terminate",
        gettext_lazy(
            "With its next heartbeat the worker is told to shut down: it claims no more jobs, gives "
            "those that it runs its shutdown timeout, and ends. A process that ended is not started "
            "again from here."
        ),
        danger=True,
    ),
    _operation(
        "resume",
        gettext_lazy("Resume"),
        None,
        gettext_lazy(
            "What the worker was told is taken back: it claims jobs again, "
            "unless it is stopping already."
        ),
    ),
)


@admin.register(Worker)
class WorkerAdmin(DetailsAdmin):
    """The workers as a board, the worst first; its pages by name."""

    operations = WORKER_OPERATIONS
    list_class = WorkerBoard
    writes_rows = True
    # Several clients may use one name.
    keys = (("name", False), ("pk", False))
    list_per_page = MOST_SHOWN
    list_display = ("name",)
    list_filter = (StatusFilter,)
    own_parameters = (PARAMETER,)
    search_fields = ("name__startswith", "hostname__startswith")
    search_help_text = gettext_lazy("The beginning of a name or of a host name.")

    def names(self, keys: Sequence[Any]) -> list[str]:
        """The names of the workers with these keys; unknown keys are left out."""
        numbers = [key for key in map(str, keys) if re.fullmatch("[0-9]{1,18}", key)]
        rows = Worker.objects.using(self.using).filter(pk__in=numbers)
        return list(rows.order_by("name", "pk").values_list("name", flat=True))

    # The page

    def details(self, row: Any) -> dict[str, Any]:
        """The facts about a worker, and its running jobs."""
        now = clock.now(self.using)
        jobs = running_jobs(row, self.using)
        return {
            "worker": row,
            "badges": badges(row, now),
            "facts": [
                (_("last heartbeat"), since(row.heartbeat_at, now)),
                (_("client"), row.principal or "—"),
                (_("sends heartbeats"), _("yes") if row.beats else _("no")),
                (_("slots busy"), slots(row)),
                (_("memory"), memory(row)),
                (_("host"), row.hostname or "—"),
                (_("process id"), row.pid if row.pid is not None else "—"),
                (_("version"), deploys.version_of(row.version, row.labels) or "—"),
                (_("queues"), ", ".join(map(str, row.queues)) or _("all")),
                (_("job types"), ", ".join(map(str, row.types)) or _("all")),
                (_("started"), since(row.started_at, now)),
                (_("last said"), row.get_phase_display()),
                (_("told"), DIRECTIVES.get(row.directive, row.directive) or "—"),
            ],
            "labels": pretty(redacted(row.labels)) if row.labels else "",
            "jobs": [
                {
                    "id": job.pk,
                    "url": links.page_of(self.admin_site, "job", job.pk),
                    "type": job.type,
                    "queue": job.queue,
                    "attempt": attempt_of(job),
                    "runs": since(job.started_at, now),
                    "left": None
                    if job.deadline_at is None
                    else humanize_duration(job.deadline_at - now),
                    "late": job.deadline_at is not None and job.deadline_at < now,
                    "heard": since(job.heartbeat_at, now),
                }
                for job in jobs[:MOST_JOBS]
            ],
            "more": len(jobs) > MOST_JOBS,
        }


def running_jobs(worker: Worker, using: str) -> list[Any]:
    """The jobs that a worker runs, read by the index of active jobs; one more than is shown."""
    whose = Job.objects.using(using).filter(
        worker_id=worker.name, lease_principal=worker.principal or None
    )
    rows = selectors.in_state(whose, State.ACTIVE)
    columns = (
        "type",
        "queue",
        "attempt",
        "max_attempts",
        "started_at",
        "deadline_at",
        "heartbeat_at",
    )
    return list(rows.only("id", *columns).order_by("started_at")[: MOST_JOBS + 1])
