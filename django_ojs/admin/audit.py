"""The audit screens: who did what, from where and why. Rows are read-only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from django.contrib import admin, messages
from django.db.models import Min, Q, QuerySet, Value
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_ojs.admin import links
from django_ojs.admin.cells import badge, shortened
from django_ojs.admin.details import DetailsAdmin
from django_ojs.admin.limits import window_size
from django_ojs.admin.qualifiers import not_understood, terms
from django_ojs.admin.redaction import pretty, redacted
from django_ojs.models import AuditEntry
from django_ojs.services import reading

ACTIONS: Mapping[str, tuple[Any, Sequence[str]]] = {
    "retry": (gettext_lazy("retry"), ("job.retried", "job.retry")),
    "run_now": (gettext_lazy("reschedule"), ("job.rescheduled", "job.reschedule", "job.run_now")),
    "requeue": (gettext_lazy("edit and requeue"), ("job.requeued", "job.requeue")),
    "edit": (gettext_lazy("edit"), ("job.edited", "job.edit")),
    "extend": (gettext_lazy("extend timeout"), ("job.timeout_extended", "job.extend")),
    "cancel": (gettext_lazy("cancel"), ("job.cancelled", "job.cancel")),
    "discard": (gettext_lazy("discard"), ("job.discarded", "job.discard")),
    "purge": (gettext_lazy("purge"), ("job.purged", "job.purge")),
    "queue": (
        gettext_lazy("pause, resume queue"),
        ("queue.paused", "queue.resumed", "queue.pause", "queue.resume", "queue.created"),
    ),
    "worker": (
        gettext_lazy("quiet, stop, resume worker"),
        ("worker.quiet", "worker.resumed", "worker.stopped", "worker.stop", "worker.resume"),
    ),
    "workflow": (
        gettext_lazy("cancel, resume workflow"),
        ("workflow.cancelled", "workflow.resumed", "workflow.cancel", "workflow.resume"),
    ),
    "rate_limit": (
        gettext_lazy("rate limits"),
        ("rate_limit.overridden", "rate_limit.restored", "ratelimit.override", "ratelimit.restore"),
    ),
    "schedule": (
        gettext_lazy("schedules"),
        (
            *("schedule.made", "schedule.changed", "schedule.deleted", "schedule.paused"),
            *("schedule.resumed", "schedule.triggered", "schedule.edit", "schedule.copy"),
            "schedule.add",
            *("schedule.remove", "schedule.pause", "schedule.resume", "schedule.run"),
            "schedule.backfilled",
        ),
    ),
    "activate": (gettext_lazy("activate"), ("job.activated",)),
    "bulk": (gettext_lazy("bulk work"), ("bulk.started",)),
    "token": (
        gettext_lazy("API tokens"),
        ("token.created", "token.changed", "token.rotated", "token.revoked"),
    ),
    "schema": (gettext_lazy("schemas"), ("schema.created", "schema.deleted")),
    "refused": (gettext_lazy("refused over HTTP"), ("http.refused",)),
}
"""The choices of the action filter, with the audit actions that each one covers."""
SOURCES = ("admin", "http", "api", "command")
RESULTS = {"done": gettext_lazy("done"), "denied": gettext_lazy("denied")}
_LINKED = frozenset({"job", "queue", "worker", "workflow", "schedule", "ratelimit"})
_TARGETS = _LINKED | {"token", "schema"}
_DETAIL = (
    "directive",
    "client",
    "changed",
    "old",
    "new",
    "new_job_id",
    "prefix",
    "prefixes",
    "operation",
    "count",
    "method",
    "route",
    "rule",
    "limits",
    "until",
    "bulk_job_id",
)
_WINDOW = "_ojs_audit_window"


def window(request: HttpRequest, using: str) -> Q:
    """The newest entries, to which filters without an index are limited; read once per request."""
    found: Q | None = getattr(request, _WINDOW, None)
    if found is None:
        newest = AuditEntry.objects.using(using).order_by("-pk").values("pk")[: window_size(using)]
        # Some databases leave gaps between the ids.
        found = Q(pk__gte=newest.aggregate(edge=Min("pk"))["edge"] or 0)
        setattr(request, _WINDOW, found)
    return found


class _Filter(admin.SimpleListFilter):
    """A filter with constant choices, each a label and a condition, among the newest entries."""

    conditions: ClassVar[Mapping[str, tuple[Any, Q]]]

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """The choices with their labels."""
        return [(name, label) for name, (label, _condition) in self.conditions.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """The newest entries that match the choice; all entries for an unknown one."""
        chosen = self.conditions.get(self.value() or "")
        if chosen is None:
            return queryset
        return queryset.filter(window(request, reading.database()), chosen[1])


class ActionFilter(_Filter):
    title = gettext_lazy("action")
    parameter_name = "did"
    conditions = {name: (label, Q(action__in=kinds)) for name, (label, kinds) in ACTIONS.items()}


class SourceFilter(_Filter):
    """By the interface that was used."""

    title = gettext_lazy("source")
    parameter_name = "from"
    conditions = {name: (name, Q(source=name)) for name in SOURCES}


class ResultFilter(_Filter):
    title = gettext_lazy("result")
    parameter_name = "ended"
    conditions = {name: (label, Q(result=name)) for name, label in RESULTS.items()}


@dataclass(slots=True)
class AuditSearch:
    """The conditions of a search; those on targets are served by an index."""

    targets: Q = field(default_factory=Q)
    others: Q = field(default_factory=Q)
    unknown: list[str] = field(default_factory=list)


def parse(text: str) -> AuditSearch:
    """``actor:ada job:01975ab3-...``; ``target:`` or a bare word is a target of any kind."""
    found = AuditSearch()
    for name, value, typed, _quoted in terms(text, r"\w+"):
        if name in (None, "target"):
            found.targets &= Q(target_id=value)
        elif name in _TARGETS:
            found.targets &= Q(target_type=name, target_id=value)
        elif name == "actor":
            found.others &= Q(actor=value)
        else:
            found.unknown.append(typed)
    return found


@admin.register(AuditEntry)
class AuditEntryAdmin(DetailsAdmin):
    """The audit, newest first."""

    list_display = (
        "created_at",
        "action",
        "badge",
        "target",
        "actor",
        "source",
        "address",
        "because",
        "detail",
    )
    list_filter = (ActionFilter, SourceFilter, ResultFilter)
    search_fields = ("target_id",)
    search_help_text = gettext_lazy(
        "actor:ada queue:mail job:ID worker:w1; a bare word is a target of any kind. Actors "
        "and filters are looked for among the newest entries only."
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Each entry has whether the user may see what bulk work was searched for."""
        shows_args = bool(request.user.has_perm("django_ojs.view_args"))
        found: QuerySet[Any] = super().get_queryset(request).annotate(ojs_shows_args=Value(shows_args))
        return found

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """The entries that match the qualifiers; there is no full-text search."""
        if not search_term.strip():
            return queryset, False
        parsed = parse(search_term)
        if parsed.unknown:
            return not_understood(request, parsed.unknown, queryset)
        if parsed.targets:
            return queryset.filter(parsed.targets, parsed.others), False
        size = window_size(self.using)
        self.message_user(request, _("Looked among the newest %d entries.") % size, messages.INFO)
        return queryset.filter(window(request, self.using), parsed.others), False

    # Columns

    @admin.display(description=gettext_lazy("result"))
    def badge(self, row: Any) -> SafeString:
        tone = {"done": "good", "denied": "bad"}.get(row.result, "quiet")
        return badge(tone, RESULTS.get(row.result, row.result))

    @admin.display(description=gettext_lazy("target"))
    def target(self, row: Any) -> str:
        """The target, linked if the admin has a page for it."""
        if not row.target_id:
            return ""
        return format_html("{} {}", row.target_type, links.link(self._target_url(row), row.target_id))

    def _target_url(self, row: Any) -> str:
        if row.target_type not in _LINKED:
            return ""
        if row.target_type == "worker":
            # Several clients may use the name, and the worker may be deleted: link to a search.
            return links.list_of(self.admin_site, "worker", status="all", q=row.target_id)
        return links.page_of(self.admin_site, row.target_type, row.target_id)

    @admin.display(description=gettext_lazy("reason"))
    def because(self, row: Any) -> str:
        return shortened(row.reason)

    @admin.display(description=gettext_lazy("detail"))
    def detail(self, row: Any) -> str:
        """The most informative parts of the data."""
        data = _shown(row)
        found = [f"{name}: {data[name]}" for name in _DETAIL if data.get(name)]
        narrowing = data.get("filter")
        if isinstance(narrowing, dict):
            # Not every database keeps the order of JSON keys.
            narrowed = [f"{name}: {narrowing[name]}" for name in sorted(narrowing)]
            found += narrowed or [_("every job")]
        return ", ".join(found)[:200]

    # The page

    def details(self, row: Any) -> dict[str, Any]:
        """All columns of an entry."""
        return {
            "entry": row,
            "badge": self.badge(row),
            "facts": [
                (_("target"), self.target(row) or "—"),
                (_("actor"), row.actor or "—"),
                (_("source"), row.source),
                (_("address"), row.address or "—"),
                (_("reason"), row.reason or "—"),
            ],
            "data": pretty(redacted(_shown(row))) if row.data else "",
        }


def _shown(row: Any) -> dict[str, Any]:
    """The data of an entry as its reader may see them: a search may be for arguments."""
    data = row.data if isinstance(row.data, dict) else {}
    narrowing = data.get("filter")
    if row.ojs_shows_args or not isinstance(narrowing, dict) or "search" not in narrowing:
        return data
    return {**data, "filter": {**narrowing, "search": "…"}}
