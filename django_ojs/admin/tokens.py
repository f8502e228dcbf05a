"""API tokens: created and shown once, narrowed, rotated, revoked."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, cast

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext_lazy as _

from django_ojs import clock, conf
from django_ojs.admin.database import JobsDatabaseAdmin
from django_ojs.admin.forms import validating
from django_ojs.domain.errors import InvalidRequest, NotFound, OJSError
from django_ojs.models import ApiToken
from django_ojs.services import audit, tokens
from django_ojs.store.contention import atomically

_CHANGED = ("scopes", "queues", "expires_at")

if TYPE_CHECKING:
    _TokenModelForm = forms.ModelForm[ApiToken]
else:
    _TokenModelForm = forms.ModelForm


class TokenForm(_TokenModelForm):
    """Scopes as checkboxes, queues as lines; validated by the service."""

    scopes = forms.MultipleChoiceField(
        label=_("Scopes"),
        choices=[(scope, scope) for scope in tokens.SCOPES],
        widget=forms.CheckboxSelectMultiple,
    )
    queues = forms.CharField(
        label=_("Queues"),
        widget=forms.Textarea(attrs={"rows": 3}),
        initial="*",
        help_text=_("One a line: a name, or a prefix that ends in *."),
    )

    grantable: ClassVar[frozenset[str]] = frozenset()
    """The scopes that the user has and may grant; a token keeps those that it has."""
    before: ApiToken | None = None
    """The token as it was when it was locked, for the audit."""

    class Meta:
        model = ApiToken
        fields = ("name", "scopes", "queues", "expires_at")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        offered = {*self.grantable, *(self.instance.scopes or ())}
        if "scopes" in self.fields:
            field = cast(forms.MultipleChoiceField, self.fields["scopes"])
            field.choices = [(scope, scope) for scope in tokens.SCOPES if scope in offered]
        if self.instance.pk:
            self.initial["queues"] = "\n".join(self.instance.queues)

    def clean_scopes(self) -> list[str]:
        """The validated scopes, in canonical order."""
        with validating():
            return tokens.check_scopes(self.cleaned_data["scopes"])

    def clean_queues(self) -> list[str]:
        """The validated patterns."""
        with validating():
            return tokens.check_queues(self.cleaned_data["queues"].split())

    def clean(self) -> dict[str, Any]:
        """Check a new token by the service, a change against the locked row."""
        cleaned = super().clean() or self.cleaned_data
        if self.instance.pk:
            # Locked until it is saved, so that a concurrent revocation is seen.
            rows = ApiToken.objects.using(conf.current().database).select_for_update()
            self.before = rows.get(pk=self.instance.pk)
            self._check_change(self.before, cleaned, clock.now(conf.current().database))
        elif "name" in cleaned:
            try:
                tokens.check_new(cleaned["name"], cleaned.get("expires_at"))
            except OJSError as error:
                raise ValidationError(error.message) from error
        return cleaned

    def _check_change(self, before: ApiToken, cleaned: dict[str, Any], now: datetime) -> None:
        """Raise ``ValidationError`` for a token that has ended, and for granting more than the user
        has.
        """
        if before.revoked_at is not None:
            raise ValidationError(_("The token was revoked: it stays as it is."))
        if not tokens.is_live(before, now):
            raise ValidationError(_("The token has expired: it stays as it is."))
        expiry = cleaned.get("expires_at")
        if "expires_at" in self.changed_data and expiry is not None and expiry <= now:
            self.add_error("expires_at", _("An expiry is in the future; to end it, revoke it."))
        elif "expires_at" in self.changed_data:
            try:
                tokens.check_expiry(expiry, now)
            except InvalidRequest as error:
                self.add_error("expires_at", error.rule)
        scopes, queues = cleaned.get("scopes") or [], cleaned.get("queues") or []
        if not set(scopes) <= self.grantable | set(before.scopes):
            self.add_error("scopes", _("You cannot give a scope that you do not have."))
        later = before.expires_at is not None and (expiry is None or expiry > before.expires_at)
        wider = not set(queues) <= set(before.queues)
        if (wider or later) and not set(scopes) <= self.grantable:
            said = _("It has scopes that you do not have: it can be narrowed, but not widened.")
            raise ValidationError(said)


def grantable(request: HttpRequest) -> frozenset[str]:
    """The scopes that the user has, and may therefore grant."""
    has = request.user.has_perm
    return frozenset(scope for scope in tokens.SCOPES if has(f"django_ojs.http_{scope}"))


def _values(token: ApiToken, names: Sequence[str]) -> dict[str, Any]:
    values = {name: getattr(token, name) for name in names}
    return {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in values.items()
    }


@admin.register(ApiToken)
class ApiTokenAdmin(JobsDatabaseAdmin):
    """API tokens: created and shown once, narrowed, rotated, revoked; never deleted, so that the
    audit stays meaningful.
    """

    form = TokenForm
    list_display = ("name", "prefix", "scopes", "queues", "expires_at", "revoked_at", "last_used_at")
    ordering = ("name", "-pk")
    actions = ("revoke_selected", "rotate_selected")

    def get_form(
        self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any
    ) -> Any:
        """The form with the scopes that the user may grant."""
        form = super().get_form(request, obj, change, **kwargs)
        return type(form.__name__, (form,), {"grantable": grantable(request)})

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """The name of a client cannot be changed."""
        fixed = ("prefix", "created_at", "created_by", "revoked_at", "last_used_at")
        return ("name", *fixed) if obj is not None else ()

    def get_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """The editable fields, and for an existing token the others."""
        wanted = ("name", "scopes", "queues", "expires_at")
        return wanted if obj is None else (*wanted, *self.get_readonly_fields(request, obj)[1:])

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Not while the admin is read-only."""
        return not conf.current().admin.read_only and super().has_add_permission(request)

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Not while the admin is read-only."""
        return not conf.current().admin.read_only and super().has_change_permission(request, obj)

    def has_rotate_permission(self, request: HttpRequest) -> bool:
        """Rotation adds one token and ends another."""
        return self.has_add_permission(request) and self.has_change_permission(request)

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Runs in a transaction of the jobs' database, which need not be Django's default."""
        view = partial(super().changeform_view, request, object_id, form_url, extra_context)
        return atomically(self.using, view) if request.method == "POST" else view()

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """New tokens are created by the service, which generates the secret."""
        if change:
            # Only these fields: concurrent changes to others are kept.
            names = [name for name in _CHANGED if name in form.changed_data]
            obj.save(update_fields=names)
            audit.note(
                "token.changed",
                self.actor(request),
                target=("token", obj.name),
                prefix=obj.prefix,
                old=_values(form.before, names),
                new=_values(obj, names),
            )
            return
        made, text = tokens.create(
            obj.name,
            scopes=obj.scopes,
            queues=obj.queues,
            expires_at=obj.expires_at,
            actor=self.actor(request),
        )
        obj.pk = made.pk
        obj.shown_once = text

    def response_add(
        self, request: HttpRequest, obj: Any, post_url_continue: str | None = None
    ) -> HttpResponse:
        """The page that shows the secret; a message could be stored in a cookie."""
        return self._show(request, obj.name, obj.shown_once)

    @admin.action(description=_("Revoke the selected tokens"), permissions=["change"])
    def revoke_selected(self, request: HttpRequest, queryset: QuerySet[ApiToken]) -> None:
        """Revoke the selected tokens, which stop working at once."""
        done = 0
        for token in queryset.filter(revoked_at=None):
            with suppress(NotFound):  # Revoked concurrently.
                done += tokens.revoke(token.prefix, actor=self.actor(request))
        self.message_user(request, _("%d revoked.") % done, messages.SUCCESS)

    @admin.action(description=_("Rotate the selected client's token"), permissions=["rotate"])
    def rotate_selected(
        self, request: HttpRequest, queryset: QuerySet[ApiToken]
    ) -> HttpResponse | None:
        """Replace a client's token. The new one is shown once; the old one works for 24 hours."""
        names = sorted(set(queryset.values_list("name", flat=True)))
        if len(names) != 1:
            self.message_user(request, _("Select tokens of one client."), messages.ERROR)
            return None
        try:
            _made, text = tokens.rotate(names[0], allowed=grantable(request), actor=self.actor(request))
        except OJSError as error:
            self.message_user(request, error.message, messages.ERROR)
            return None
        return self._show(request, names[0], text)

    def _show(self, request: HttpRequest, name: str, text: str) -> HttpResponse:
        context = {
            **self.admin_site.each_context(request),
            "title": _("API token for %s") % name,
            "opts": self.model._meta,
            "token": text,
        }
        return TemplateResponse(request, "admin/django_ojs/token_shown_once.html", context)
