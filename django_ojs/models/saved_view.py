"""Filters of the job list that users of the admin have named."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_ojs.models.fields import CaseSensitiveCharField


class SavedView(models.Model):
    """A filter and search of the job list under the name that a user gave it.

    ``user`` is the key of the user as text and no foreign key: users may be in another database.
    ``query`` has the parameters of the list.
    """

    id = models.BigAutoField(primary_key=True)
    user = CaseSensitiveCharField(_("user"), max_length=255)
    name = CaseSensitiveCharField(_("name"), max_length=60)
    query = models.JSONField(_("filter"), default=dict)

    class Meta:
        verbose_name = _("saved view")
        verbose_name_plural = _("saved views")
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(fields=["user", "name"], name="ojs_saved_view_name"),
        ]

    def __str__(self) -> str:
        return str(self.name)
