"""The append-only outbox of OJS events."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_ojs.models.fields import TokenField


class Event(models.Model):
    """One OJS event, written in the transaction of the change that it tells of."""

    id = models.UUIDField(primary_key=True, editable=False)
    kind = TokenField(_("kind"), max_length=64)
    created_at = models.DateTimeField(_("time"))
    job_id = models.UUIDField(_("job"), null=True)
    job_type = TokenField(_("job type"), max_length=255, null=True)
    queue = TokenField(_("queue"), max_length=255, null=True)
    data = models.JSONField(_("data"), default=dict)

    class Meta:
        verbose_name = _("event")
        verbose_name_plural = _("events")
        indexes = [models.Index(fields=["job_id", "id"], name="ojs_event_job")]

    def __str__(self) -> str:
        return f"{self.kind} {self.id}"
