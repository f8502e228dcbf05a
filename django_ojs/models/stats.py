"""The minute roll-up: what ended, how long it took, what failed. Written by a maintenance task, for
screens.
"""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_ojs.models.fields import CaseSensitiveCharField


class MinuteStat(models.Model):
    """What happened in one queue in one minute.

    ``durations`` and ``waits`` are histograms: how many jobs fell into each bucket of
    ``domain.histogram.BUCKETS``. ``step`` is 60, or 3600 for hours that minutes were merged into.
    """

    id = models.BigAutoField(primary_key=True)
    at = models.DateTimeField(_("from"))
    step = models.IntegerField(default=60)
    queue = CaseSensitiveCharField(_("queue"), max_length=255)
    completed = models.IntegerField(_("completed"), default=0)
    failed = models.IntegerField(_("failed attempts"), default=0)
    discarded = models.IntegerField(_("discarded"), default=0)
    timed_out = models.IntegerField(_("timed out"), default=0)
    durations = models.JSONField(default=list)
    waits = models.JSONField(default=list)

    class Meta:
        verbose_name = _("minute")
        verbose_name_plural = _("minutes")
        constraints = [models.UniqueConstraint(fields=["step", "at", "queue"], name="ojs_minute_once")]

    def __str__(self) -> str:
        return f"{self.queue} {self.at}"


class FailureStat(models.Model):
    """Failures of one type with one error in one minute (or hour)."""

    id = models.BigAutoField(primary_key=True)
    at = models.DateTimeField(_("from"))
    step = models.IntegerField(default=60)
    type = CaseSensitiveCharField(_("job type"), max_length=255)
    error = CaseSensitiveCharField(_("error"), max_length=200)
    queue = CaseSensitiveCharField(_("queue"), max_length=255)
    count = models.IntegerField(_("failures"), default=0)

    class Meta:
        verbose_name = _("failure")
        verbose_name_plural = _("failures")
        constraints = [
            models.UniqueConstraint(
                fields=["step", "at", "queue", "type", "error"], name="ojs_failure_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.type} {self.error}"
