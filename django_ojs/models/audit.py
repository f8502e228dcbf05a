"""Who did what, from where and why: append-only."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_ojs.models.fields import CaseSensitiveCharField
from django_ojs.models.indexes import OrderedIndex


class AuditEntry(models.Model):
    """One action of a person or a client, written in the transaction of the action.

    ``action`` is the kind of the event that it caused, ``result`` ``done`` or ``denied``. ``source``
    is one of ``api``, ``http``, ``admin``, ``command``.
    """

    id = models.BigAutoField(primary_key=True)
    created_at = models.DateTimeField(_("time"))
    action = CaseSensitiveCharField(_("action"), max_length=64)
    result = CaseSensitiveCharField(_("result"), max_length=16, default="done")
    source = CaseSensitiveCharField(_("source"), max_length=16)
    actor = models.CharField(_("actor"), max_length=255, default="")
    address = models.CharField(_("address"), max_length=64, default="")
    reason = models.TextField(_("reason"), default="")
    target_type = CaseSensitiveCharField(_("target"), max_length=32)
    target_id = models.CharField(_("target id"), max_length=255, default="")
    data = models.JSONField(_("data"), default=dict)

    class Meta:
        verbose_name = _("audit entry")
        verbose_name_plural = _("audit")
        indexes = [OrderedIndex(fields=["target_id", "id"], name="ojs_audit_target")]

    def __str__(self) -> str:
        return f"{self.action} {self.target_id}"
