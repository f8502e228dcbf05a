"""The workflow screens: a list with progress, and a page with the graph of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, pgettext_lazy

from django_ojs import clock, conf
from django_ojs.admin import charts, links
from django_ojs.admin.actions import ActionReport, Operation, Run
from django_ojs.admin.cells import badge, column, shortened, since, span_of
from django_ojs.admin.changelists import KeysetChangeList
from django_ojs.admin.details import DetailsAdmin
from django_ojs.admin.graph import LABELS, TONES, graph, url_of
from django_ojs.admin.qualifiers import not_understood, terms
from django_ojs.admin.redaction import pretty, redacted
from django_ojs.domain.errors import OJSError
from django_ojs.domain.job import Actor, ran_for
from django_ojs.domain.workflow import WorkflowKind, WorkflowState
from django_ojs.models import Workflow
from django_ojs.services.phrases import humanize_duration
from django_ojs.services.workflows import operate, read
from django_ojs.services.workflows.read import Member
from django_ojs.services.workflows.story import story

MOST_MEMBERS = 200
WINDOW = 5_000
"""The newest workflows among which a search by kind or by the beginning of a name looks."""
CANCEL_SECONDS = 2.0
"""How long a request cancels workflows; the maintenance of the workers cancels the other members."""


def _each(change: Callable[[UUID, Actor], object]) -> Run:
    """An operation on each workflow by itself; those that cannot be changed are skipped."""

    def run(keys: Sequence[Any], cleaned: Mapping[str, Any], actor: Actor) -> ActionReport:
        report = ActionReport()
        for key in keys:
            try:
                change(key, actor)
                report.done += 1
            except OJSError as error:
                report.skipped.append(f"{key}: {error.message}")
        return report

    return run


def _cancel(keys: Sequence[Any], cleaned: Mapping[str, Any], actor: Actor) -> ActionReport:
    """Stop all of them before any members are cancelled, which may take longer than there is time."""
    stopped: list[UUID] = []

    def stop(key: UUID, actor: Actor) -> None:
        operate.stop(key, actor=actor)
        stopped.append(key)

    until = clock.boottime() + CANCEL_SECONDS
    report = _each(stop)(keys, cleaned, actor)
    using = conf.current().database
    for key in stopped:
        if key != stopped[0] and clock.boottime() >= until:
            break
        operate.cancel_members(key, actor=actor, until=until, skip_locked=False, using=using)
    return report


def _resume(key: UUID, actor: Actor) -> Workflow:
    return operate.resume(key, actor=actor)


def _may_resume(row: Workflow) -> bool:
    failed = not row.is_complete or row.callback_failed
    return row.finished_at is not None and row.parent_id is None and failed


WORKFLOW_OPERATIONS = (
    Operation(
        "resume",
        pgettext_lazy("workflow", "Resume"),
        "resume_workflow",
        gettext_lazy(
            "What has failed or was cancelled runs again, with new attempts and a new deadline, and "
            "the workflow goes on from there. What has completed is not repeated."
        ),
        _each(_resume),
        allowed=_may_resume,
    ),
    Operation(
        "cancel",
        gettext_lazy("Cancel"),
        "cancel_workflow",
        gettext_lazy(
            "All jobs of the workflow are cancelled, and those that run are told to stop. What waits "
            "is never enqueued, and callbacks do not run. It can be resumed."
        ),
        _cancel,
        allowed=lambda row: row.state == WorkflowState.RUNNING,
        danger=True,
    ),
)


class WorkflowChangeList(KeysetChangeList):
    """The list by id, read by an index."""

    by_index = True

    def get_filters_params(self, params: Any = None) -> dict[str, Any]:
        """No state has NUL, and PostgreSQL rejects it as a parameter."""
        found = super().get_filters_params(params)
        if any("\0" in "".join(value) for value in found.values()):
            raise IncorrectLookupParameters
        return found


@admin.register(Workflow)
class WorkflowAdmin(DetailsAdmin):
    """The outermost workflows, newest first; those inside others are reached from their graphs."""

    operations = WORKFLOW_OPERATIONS
    list_class = WorkflowChangeList
    heavy = ("meta", "error", "queues")
    list_display = ("title", "status", "kind", "progress", "failures", "begun", "lasted")
    list_filter = ("state",)
    search_fields = ("name",)
    search_help_text = gettext_lazy("A name or an id, or kind:chain, name:beginning among recent ones.")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """The list leaves out workflows that are part of others."""
        rows = super().get_queryset(request)
        return rows.filter(parent_id__isnull=True) if self.is_list(request) else rows

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """By name and id with an index; by kind and the beginning of a name among recent ones."""
        unknown: list[str] = []
        recent = False
        for name, value, typed, _quoted in terms(search_term, "[a-z]+"):
            if name is None:
                queryset = queryset.filter(**_exact(value))
            elif name == "name":
                queryset, recent = queryset.filter(name__startswith=value), True
            elif name == "kind" and value in set(WorkflowKind):
                queryset, recent = queryset.filter(kind=value), True
            else:
                unknown.append(typed)
        if unknown:
            return not_understood(request, unknown, queryset)
        return (queryset.filter(pk__gte=self._oldest_recent()) if recent else queryset), False

    def _oldest_recent(self) -> UUID:
        rows = Workflow.objects.using(self.using).filter(parent_id__isnull=True).order_by("-pk")
        found = rows.values_list("pk", flat=True)[WINDOW - 1 : WINDOW]
        return next(iter(found), UUID(int=0))

    def names(self, keys: Sequence[Any]) -> list[str]:
        """The ids: names are not unique."""
        return [str(key) for key in keys]

    # Columns

    @admin.display(description=gettext_lazy("workflow"))
    def title(self, row: Any) -> str:
        """The name, or the id of one without."""
        return shortened(row.name) or str(row.pk)

    @column(gettext_lazy("status"))
    def status(self, row: Any) -> str:
        """The state as a coloured word."""
        return _badge(row)

    @column(gettext_lazy("progress"))
    def progress(self, row: Any) -> str:
        """A bar of the members that have completed, and the numbers."""
        return _bar(row.completed, row.total)

    @column(gettext_lazy("failed"))
    def failures(self, row: Any) -> str:
        """How many members have failed."""
        return badge("bad", charts.plain(row.failed)) if row.failed else ""

    @column(gettext_lazy("created"))
    def begun(self, row: Any) -> str:
        """How long ago it was created."""
        return since(row.created_at, row.ojs_now)

    @column(gettext_lazy("lasted"))
    def lasted(self, row: Any) -> str:
        """From its creation to its end, or until now."""
        return span_of((row.finished_at or row.ojs_now) - row.created_at, row.created_at)

    # The page

    def page_context(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """The details, with the meta for those who may see that of jobs; the page of a workflow that
        has ended is not refreshed.
        """
        own = super().page_context(request, row)
        if not own:
            return own
        shows_meta = bool(row.meta) and request.user.has_perm("django_ojs.view_args")
        own["page"]["meta"] = pretty(redacted(row.meta)) if shows_meta else ""
        return {**own, "changes": row.finished_at is None}

    def details(self, row: Any) -> dict[str, Any]:
        """The sentence, the graph, the members as a table, and the facts."""
        using, site = self.using, self.admin_site
        now = clock.now(using)
        found = read.members(row, most=MOST_MEMBERS, using=using)
        errors = read.errors_of(row, using=using)
        part_of = None if row.parent_id is None else links.page_of(site, "workflow", row.parent_id)
        deadline = None
        if row.deadline_at is not None and row.finished_at is None:
            deadline = humanize_duration(row.deadline_at - now)
        return {
            "workflow": row,
            "badge": _badge(row),
            "story": story(row, found, errors, using=using),
            "bar": _bar(row.completed, row.total),
            "graph": graph(row, found, site),
            "members": [_member(one, {m.index: m.key for m in found}, site) for one in found],
            "more": max(0, row.total - MOST_MEMBERS),
            "part_of": part_of,
            "facts": [
                (_("id"), row.pk),
                (_("kind"), row.get_kind_display()),
                (_("created"), since(row.created_at, now)),
                (_("finished"), None if row.finished_at is None else since(row.finished_at, now)),
                (_("deadline in"), deadline),
                (_("runs"), row.runs if row.runs > 1 else None),
                (_("queues"), ", ".join(map(str, row.queues))),
                (_("created by"), row.created_by),
            ],
        }


def _exact(term: str) -> dict[str, Any]:
    try:
        return {"pk": UUID(term)}
    except ValueError:
        return {"name": term}


def _badge(row: Any) -> SafeString:
    return badge(TONES.get(row.state, "quiet"), row.get_state_display())


def _bar(done: int, total: int) -> SafeString:
    said = _("%(done)s of %(total)s") % {"done": charts.plain(done), "total": charts.plain(total)}
    return format_html(
        '<progress max="{}" value="{}" aria-label="{}"></progress> {}', total, done, said, said
    )


def _member(one: Member, keys: Mapping[int, str], site: admin.AdminSite) -> dict[str, Any]:
    span = ran_for(one)
    return {
        "key": one.key,
        "type": one.type,
        "url": url_of(one, site),
        "state": badge(TONES.get(one.state, "quiet"), LABELS.get(one.state, one.state)),
        "after": ", ".join(keys.get(index, str(index)) for index in one.depends_on),
        "lasted": None if span is None else humanize_duration(span),
    }
