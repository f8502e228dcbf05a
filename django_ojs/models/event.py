"""The append-only outbox of OJS events."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_ojs.models.fields import CaseSensitiveCharField
from django_ojs.models.indexes import HotIndex, OrderedIndex


class Event(models.Model):
    """One OJS event, written in the transaction of the change that it describes.

    ``seq`` is its place in the stream, given by the first reader after the commit: ids are made
    before it, so that their order is not the order in which events become visible.
    """

    id = models.UUIDField(primary_key=True, editable=False)
    seq = models.BigIntegerField(null=True, editable=False)
    kind = CaseSensitiveCharField(_("kind"), max_length=64)
    created_at = models.DateTimeField(_("time"))
    job_id = models.UUIDField(_("job"), null=True)
    job_type = CaseSensitiveCharField(_("job type"), max_length=255, null=True)
    queue = CaseSensitiveCharField(_("queue"), max_length=255, null=True)
    data = models.JSONField(_("data"), default=dict)

    class Meta:
        verbose_name = _("event")
        verbose_name_plural = _("events")
        indexes = [
            OrderedIndex(fields=["job_id", "id"], name="ojs_event_job"),
            OrderedIndex(fields=["seq"], name="ojs_event_seq"),
            HotIndex(
                within=["seq"], fields=["id"], name="ojs_event_fresh", only=models.Q(seq__isnull=True)
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.id}"


class EventStream(models.Model):
    """The last place given to an event; its one row is the lock of those who give places."""

    id = models.SmallIntegerField(primary_key=True, default=1)
    last = models.BigIntegerField(db_default=0)

    class Meta:
        verbose_name = _("event stream")
        verbose_name_plural = _("event streams")

    def __str__(self) -> str:
        return f"up to {self.last}"
