"""What all screens share: read-only rows, and operations with a confirmation and a reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar
from urllib.parse import urlencode

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import PermissionDenied
from django.db import OperationalError
from django.db.models import Model, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.text import capfirst
from django.utils.translation import gettext_lazy as _
from django.views.defaults import permission_denied

from django_ojs import conf
from django_ojs.admin import banner, links, live, refresh
from django_ojs.admin.actions import ActionReport, Chosen, Operation, report_to_user, say_gone
from django_ojs.admin.changelists import KeysetChangeList
from django_ojs.admin.database import JobsDatabaseAdmin
from django_ojs.admin.forms import ReasonForm
from django_ojs.admin.limits import SLOW, limited
from django_ojs.admin.replica import routed
from django_ojs.domain.errors import OJSError
from django_ojs.domain.printable import one_line
from django_ojs.services import audit
from django_ojs.store.keyset import Keys

MOST_AT_ONCE = 1000
LIST = "_list"
"""The parameter of an operation on one row with those of the list that it was begun on."""
JOB = "_job"
"""That with the id of a job on whose page it was begun, which it helps on."""


class OJSModelAdmin(JobsDatabaseAdmin):
    """Rows that are shown and operated on, but never edited as forms.

    ``keys`` are the columns of the index that orders the list (:meth:`KeysetChangeList.keys`),
    ``heavy`` those that can be large, which the list does not read. ``writes_rows`` is whether a
    template of ours has the rows, and not Django's.
    """

    list_class = KeysetChangeList
    writes_rows: ClassVar[bool] = False
    keys: ClassVar[Keys] = (("pk", True),)
    heavy: ClassVar[Sequence[str]] = ()
    list_per_page = 50
    sortable_by = ()
    show_facets = admin.ShowFacets.NEVER
    operations: ClassVar[Sequence[Operation]] = ()
    own_parameters: ClassVar[Sequence[str]] = ()
    actions_selection_counter = True

    def __init__(self, model: type[Model], admin_site: admin.AdminSite) -> None:
        super().__init__(model, admin_site)
        self.actions = [self._action(item) for item in self.operations if not item.single]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """The list omits the columns that can be large."""
        rows = super().get_queryset(request)
        return rows.defer(*self.heavy) if self.is_list(request) else rows

    def is_list(self, request: HttpRequest) -> bool:
        """Whether the list is asked for, not the page of a row."""
        name = getattr(request.resolver_match, "url_name", None)
        return bool(name == f"{self.opts.app_label}_{self.opts.model_name}_changelist")

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """The row, read once per request."""
        known: dict[Any, Any] = request.__dict__.setdefault("_ojs_rows", {})
        wanted = (self.opts.model_name, object_id, from_field)
        if wanted not in known:
            # No key contains NUL, and PostgreSQL rejects it as a parameter.
            found = None if "\0" in object_id else super().get_object(request, object_id, from_field)
            known[wanted] = found
        return known[wanted]

    @property
    def kind(self) -> str:
        """The target type of the rows in the audit."""
        return str((self.opts.concrete_model or self.model)._meta.model_name)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Rows are not added in the admin."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Rows are changed by operations only."""
        return False

    def names(self, keys: Sequence[Any]) -> list[str]:
        """The names of the rows with these keys, for confirmations and the audit."""
        return [str(key) for key in keys]

    # Operations

    def may(self, request: HttpRequest, operation: Operation) -> bool:
        """Whether the user has the permissions for an operation, and the admin is not read-only."""
        if conf.current().admin.read_only:
            return False
        needed = (operation.permission, *operation.also)
        return all(request.user.has_perm(f"django_ojs.{codename}") for codename in needed)

    def _action(self, operation: Operation) -> Any:
        """The operation as an action of Django's change list, offered to those with the permission."""

        def act(model_admin: Any, request: HttpRequest, queryset: QuerySet[Any]) -> Any:
            return self.act_on_list(request, operation, queryset)

        def allowed(request: HttpRequest) -> bool:
            return self.may(request, operation)

        setattr(self, f"has_{operation.name}_permission", allowed)
        act.__name__ = operation.name
        described = admin.action(description=operation.label, permissions=[operation.name])
        return described(act)

    def act_on_list(
        self, request: HttpRequest, operation: Operation, queryset: QuerySet[Any]
    ) -> HttpResponse | None:
        """Changelist action: confirm, then run."""
        try:
            chosen = self.chosen(request, queryset, MOST_AT_ONCE)
        except OperationalError:
            self.message_user(request, SLOW, messages.ERROR)
            return None
        if chosen.whole and not chosen.keys:
            self.message_user(request, _("Nothing matches any more."), messages.INFO)
            return None
        many = not chosen.whole
        if many and not self.does_many(operation):
            said = _("Select at most %d rows, or narrow the filter.") % MOST_AT_ONCE
            self.message_user(request, said, messages.ERROR)
            return None
        across = request.POST.get("select_across") == "1"
        hidden = [("action", operation.name), ("select_across", "1" if across else "0"), ("index", "0")]
        hidden += [(ACTION_CHECKBOX_NAME, key) for key in request.POST.getlist(ACTION_CHECKBOX_NAME)]
        hidden.append(("_many", "1" if many else "0"))
        form = self._form(request, operation)
        # If the selection has grown beyond MOST_AT_ONCE since, the user confirms again.
        agreed = not many or request.POST.get("_many") == "1"
        if form.is_bound and form.is_valid() and agreed:
            if many:
                self.act_on_many(request, operation, form.cleaned_data)
            else:
                self._perform(request, operation, chosen.keys, form.cleaned_data, chosen.gone)
            return None
        more: dict[str, Any] = {"narrowed": self.narrowed(request)} if across else {}
        more |= self.describe_many(request, len(chosen.keys)) if many else {}
        return self._confirmation(request, operation, form, chosen.keys, hidden, **more)

    def chosen(self, request: HttpRequest, queryset: QuerySet[Any], most: int) -> Chosen:
        """The keys of up to ``most`` selected rows, or with "select all" of rows that match.

        Selected rows need not match any more: the operation says what it leaves as it is.
        """
        if request.POST.get("select_across") == "1":
            keys = list(queryset.values_list("pk", flat=True)[: most + 1])
            return Chosen(keys[:most], len(keys) <= most)
        field: Any = self.opts.pk
        wanted = dict.fromkeys(map(field.to_python, request.POST.getlist(ACTION_CHECKBOX_NAME)))
        there = set(self.selectable(request).filter(pk__in=wanted).values_list("pk", flat=True))
        keys = [key for key in wanted if key in there]
        gone = [key for key in wanted if key not in there]
        return Chosen(keys[:most], len(keys) <= most, gone)

    def selectable(self, request: HttpRequest) -> QuerySet[Any]:
        """The rows that can be selected, whatever the filters of the list."""
        rows: QuerySet[Any] = self.model._default_manager.using(self.using)
        return rows

    def narrowed(self, request: HttpRequest) -> list[str]:
        """The filters of the list, in words."""
        return []

    def does_many(self, operation: Operation) -> bool:
        """Whether an operation on more than MOST_AT_ONCE rows runs as a bulk job."""
        return False

    def describe_many(self, request: HttpRequest, known: int) -> dict[str, Any]:
        """For the confirmation of a bulk job: ``many``, the number of rows as text, at least
        ``known``, and a ``hint``.
        """
        raise NotImplementedError

    def act_on_many(
        self, request: HttpRequest, operation: Operation, cleaned: Mapping[str, Any]
    ) -> None:
        """Start a bulk job."""
        raise NotImplementedError

    def get_urls(self) -> list[URLPattern]:
        """Adds a path for the operations on one row."""
        info = self.opts.app_label, self.opts.model_name
        view = self.admin_site.admin_view(self.operation_view)
        own = path("<path:object_id>/do/<slug:name>/", view, name="{}_{}_do".format(*info))
        return [*routed(self, [own]), *super().get_urls()]

    def url_to(self, operation: Operation, key: object, *, asked: str | None = None) -> str:
        """The address of an operation on one row; with ``asked``, the parameters of a list, it leads
        back there.
        """
        name = f"admin:{self.opts.app_label}_{self.opts.model_name}_do"
        url = reverse(name, args=[quote(str(key)), operation.name], current_app=self.admin_site.name)
        return url if asked is None else f"{url}?{urlencode({LIST: asked})}"

    def _came_from(self, request: HttpRequest) -> str:
        """The address of the list or job that an operation was begun on, empty if it was neither."""
        if JOB in request.GET:
            return links.page_of(self.admin_site, "job", request.GET[JOB])
        if LIST not in request.GET:
            return ""
        asked = QueryDict(request.GET[LIST]).urlencode()
        return self._list_url() + (f"?{asked}" if asked else "")

    def operation_view(self, request: HttpRequest, object_id: str, name: str) -> HttpResponse:
        """Confirm an operation on one row, then run it."""
        operation = next((item for item in self.operations if item.name == name), None)
        if operation is None:
            raise Http404
        if not self.may(request, operation):
            return self._refusal(request, operation, [unquote(object_id)])
        row = self.get_object(request, unquote(object_id))
        if row is None:
            raise Http404
        form = self._form(request, operation, row)
        if form.is_bound and form.is_valid():
            report = self._perform(request, operation, [row.pk], form.cleaned_data)
            return HttpResponseRedirect(self._after(request, row, report))
        return self._confirmation(request, operation, form, [row.pk], [], row)

    def _after(self, request: HttpRequest, row: Any, report: ActionReport) -> str:
        """The page to show next: the list that it was begun on, else that of the new job, that of the
        row if it still exists, or the list.
        """
        if back := self._came_from(request):
            if report.made is not None:
                link = links.link(links.page_of(self.admin_site, "job", report.made), report.made)
                self.message_user(
                    request, format_html(str(_("The new job is {}.")), link), messages.INFO
                )
            return back
        if report.made is not None:
            return links.page_of(self.admin_site, "job", report.made) or self._list_url()
        if self.get_queryset(request).filter(pk=row.pk).exists():
            return self._url_of(row)
        whole = (self.opts.concrete_model or self.model)._default_manager.using(self.using)
        if whole.filter(pk=row.pk).exists():
            return links.page_of(self.admin_site, self.kind, row.pk) or self._list_url()
        return self._list_url()

    def _refusal(self, request: HttpRequest, operation: Operation, keys: Sequence[str]) -> HttpResponse:
        """A 403, recorded in the audit when a user with view permission tried to act.

        It is returned, not raised: with ``ATOMIC_REQUESTS`` an exception would roll the record back.
        """
        if request.method == "POST" and self.has_view_permission(request):
            # Some databases have no NUL in text.
            names = [one_line(name) for name in self.names(keys[:10])]
            target = (self.kind, names[0]) if len(keys) == len(names) == 1 else ("", "")
            more: dict[str, Any] = {}
            if len(keys) != 1:
                more = {"count": len(keys), "ids": [name[:64] for name in names]}
            name, who = f"{self.kind}.{operation.name}", self.actor(request)
            audit.note(name, who, target=target, result="denied", using=self.using, **more)
        return permission_denied(request, PermissionDenied())

    def _form(self, request: HttpRequest, operation: Operation, row: Any = None) -> ReasonForm:
        if request.method == "POST" and "_confirmed" in request.POST:
            return operation.form(request.POST)
        return operation.form(initial={} if row is None else self.operation_initial(operation, row))

    def operation_initial(self, operation: Operation, row: Any) -> dict[str, Any]:
        """Initial values of the form of an operation on one row."""
        return {}

    def _perform(
        self,
        request: HttpRequest,
        operation: Operation,
        keys: Sequence[Any],
        cleaned: Mapping[str, Any],
        gone: Sequence[Any] = (),
    ) -> ActionReport:
        try:
            report = operation.run(keys, cleaned, self.actor(request, cleaned.get("reason", "")))
        except OJSError as error:
            self.message_user(request, error.message, messages.ERROR)
            return ActionReport()
        report.skipped += map(say_gone, gone)
        report_to_user(self, request, operation, report)
        return report

    def _confirmation(
        self,
        request: HttpRequest,
        operation: Operation,
        form: ReasonForm,
        keys: Sequence[Any],
        hidden: Sequence[tuple[str, str]],
        row: Any = None,
        **said: Any,
    ) -> HttpResponse:
        one = row is not None or (len(keys) == 1 and "many" not in said)
        label = operation.label if one else operation.several or operation.label
        context = {
            **self.admin_site.each_context(request),
            **banner.head(self, request),
            "title": label,
            "label": label,
            "keep": operation.back[not one],
            "opts": self.opts,
            "operation": operation,
            "form": form,
            "keys": self.names(keys[:10]),
            "count": len(keys),
            "most": MOST_AT_ONCE,
            "hidden": hidden,
            "row": row,
            "row_url": self._url_of(row) if row is not None else "",
            "back": self._came_from(request)
            or (self._list_url() if row is None else self._url_of(row)),
            **said,
        }
        return TemplateResponse(request, "admin/django_ojs/confirm.html", context)

    def _url_of(self, row: Any) -> str:
        return links.page_of(self.admin_site, str(self.opts.model_name), row.pk)

    def _list_url(self) -> str:
        return links.list_of(self.admin_site, str(self.opts.model_name))

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The list, with the refresh interval.

        A posted action that the user may not perform is a 403 and recorded; Django would ignore it.
        """
        wanted = request.POST.get("action")
        operation = next((item for item in self.operations if item.name == wanted), None)
        if operation is not None and not self.may(request, operation):
            return self._refusal(request, operation, request.POST.getlist(ACTION_CHECKBOX_NAME))
        title = {"title": capfirst(self.opts.verbose_name_plural)}
        context = {**title, **refresh.context(request)}
        if self.writes_rows:
            context |= live.around_rows(request)
        return super().changelist_view(request, context | (extra_context or {}))

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Redirect to the audit of the row: Django's history records only form submissions."""
        names = self.names([unquote(object_id)]) or [""]
        url = self._history(request, f'{self.kind}:"{names[0]}"')
        return HttpResponseRedirect(url) if url else permission_denied(request, PermissionDenied())

    def _history(self, request: HttpRequest, words: str) -> str:
        if not self.operations:
            return ""
        return links.list_for(request, self.admin_site, "auditentry", q=words)

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """The page of a row, with the operations that the user may perform on it as it is now."""
        row = self.get_object(request, unquote(object_id))
        operations = [
            (item, self.url_to(item, unquote(object_id)))
            for item in self.operations
            if row is not None and self.may(request, item) and item.allowed(row)
        ]
        own = limited(self, request, str(row), lambda: self.page_context(request, row))
        if isinstance(own, HttpResponse):
            return own
        context = {
            "operations": operations,
            "has_history": bool(self._history(request, "")),
            **(refresh.context(request) if own.get("changes", bool(own)) else {}),
            **own,
            **(extra_context or {}),
        }
        return super().change_view(request, object_id, form_url, context)

    def page_context(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """Template variables of the page of a row."""
        return {}
