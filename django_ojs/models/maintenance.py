"""When each maintenance task last ran, and how far it got."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_ojs.models.fields import CaseSensitiveCharField

PRUNE = "prune"


class MaintenanceRun(models.Model):
    """The last run of a maintenance task, or of the reaper (``reap``).

    ``cadence_ms`` is the intended time between runs. ``watermark_at`` is how far the task has got: of
    ``rollup``, all earlier minutes are counted; of ``prune``, all later events are still there. The
    rest is the reaper's: ``loops`` says whether it scans continuously, ``blind`` holds the spans in
    which no scan saw the database answer, ``resumed_at`` is the end of the last of them (decision T9),
    ``clock_steps`` counts the applied steps of the server's clock, ``outages`` those outages.
    ``behind`` says whether the last run ended before its work: of ``prune``, rows past their retention
    are left. ``ran_by`` is the process that ran it: of ``prune`` and ``queues``, the one that does so
    for all workers (``services.shared_tasks``).
    """

    name = CaseSensitiveCharField(primary_key=True, max_length=64)
    last_run_at = models.DateTimeField(_("last run"))
    cadence_ms = models.BigIntegerField(null=True)
    loops = models.BooleanField(db_default=False)
    blind = models.JSONField(null=True)
    clock_steps = models.BigIntegerField(db_default=0)
    outages = models.BigIntegerField(db_default=0)
    behind = models.BooleanField(db_default=False)
    resumed_at = models.DateTimeField(null=True)
    watermark_at = models.DateTimeField(null=True)
    ran_by = models.CharField(_("ran by"), max_length=255, default="", db_default="")

    class Meta:
        verbose_name = _("maintenance run")
        verbose_name_plural = _("maintenance runs")

    def __str__(self) -> str:
        return str(self.name)
