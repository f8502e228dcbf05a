"""A queue that ever had a job, was paused or is served by a worker."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from django_ojs.models.fields import CaseSensitiveCharField
from django_ojs.models.indexes import OrderedIndex


class Queue(models.Model):
    """Pausing stops claims, not clocks (decision T11). ``limited`` if there is a rate limit for it.

    ``created_by`` is the credential whose request named it first, empty where there was none.
    ``used_at`` is when retention found it in use last: an unused queue is deleted.
    """

    name = CaseSensitiveCharField(_("name"), primary_key=True, max_length=255)
    paused = models.BooleanField(_("paused"), db_default=False)
    limited = models.BooleanField(_("limited"), db_default=False)
    paused_at = models.DateTimeField(_("paused at"), null=True)
    paused_by = models.CharField(_("paused by"), max_length=255, default="", db_default="")
    reason = models.TextField(_("reason"), default="")
    created_at = models.DateTimeField(_("created"), db_default=Now())
    created_by = CaseSensitiveCharField(max_length=255, default="", db_default="")
    used_at = models.DateTimeField(db_default=Now())

    class Meta:
        verbose_name = _("queue")
        verbose_name_plural = _("queues")
        indexes = [OrderedIndex(fields=["created_by", "created_at"], name="ojs_queue_by")]
        permissions = [("pause_queue", "Can pause and resume queues")]

    def __str__(self) -> str:
        return str(self.name)
