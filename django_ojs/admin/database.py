"""Rows of the jobs' database in the admin, whatever routers say."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import BadRequest, ValidationError
from django.core.validators import ProhibitNullCharactersValidator
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern

from django_ojs.admin import banner, themes
from django_ojs.admin.changelists import LimitedChangeList
from django_ojs.admin.replica import routed
from django_ojs.domain.job import Actor
from django_ojs.services import reading

_without_nul = ProhibitNullCharactersValidator()


class JobsDatabaseAdmin(banner.BulkWorkAdmin):
    """Rows of the jobs' database, listed within a time limit and never deleted by forms."""

    show_full_result_count = False
    list_class: ClassVar[type[ChangeList]] = LimitedChangeList

    @property
    def themed(self) -> bool:
        """Whether a theme replaces Django's templates, for those of a list."""
        return themes.replaces_templates()

    @property
    def using(self) -> str:
        """The database that holds the jobs; for a list that is read, perhaps its replica."""
        return reading.database()

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Rows of the jobs' database, with or without a router."""
        return super().get_queryset(request).using(self.using)

    def get_urls(self) -> list[URLPattern]:
        """Django's, on the database that was chosen, the list on its replica if there is one."""
        return routed(self, super().get_urls())

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The list. Raises :class:`BadRequest` for selected values that are no keys, which the
        database would reject.
        """
        field: Any = self.opts.pk
        for key in request.POST.getlist(ACTION_CHECKBOX_NAME):
            try:
                _without_nul(key)
                field.run_validators(field.to_python(key))
            except ValidationError as error:
                raise BadRequest(f"{ACTION_CHECKBOX_NAME}: no such key") from error
        return super().changelist_view(request, extra_context)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """The change list of ``list_class``."""
        return self.list_class

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        """Only the parameters of the declared filters are lookups.

        Django would accept any column and lookup: by trying values a user could find out the content
        of columns that are not shown, and most columns have no index.
        """
        return any(
            lookup == (getattr(item, "parameter_name", None) or f"{item}__exact")
            for item in self.list_filter
        )

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Rows are deleted by retention, or by an operation such as purge."""
        return False

    def actor(self, request: HttpRequest, reason: str = "") -> Actor:
        """The user, the address and the reason, for events and audit."""
        address = request.META.get("REMOTE_ADDR", "")
        return Actor("admin", request.user.get_username(), reason, address)
