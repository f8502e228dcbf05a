"""When periodic work was last done, by whom, and how often it is."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_ojs.models.fields import CaseSensitiveCharField

PRUNE = "prune"


class MaintenanceRun(models.Model):
    """The last run of a maintenance task. ``cadence_ms`` is how far apart its runs are meant to be; of
    ``reap``, ``loops`` says whether its scanner looks all the time, and ``blind`` holds the spans in
    which nobody saw the database answer; ``clock_steps`` counts the steps of the server's clock.

    ``resumed_at`` is when the reaper last found that it had been blind (decision T9); of ``prune``,
    since when no event is missing; of ``rollup``, up to where minutes are counted.
    """

    name = CaseSensitiveCharField(primary_key=True, max_length=64)
    last_run_at = models.DateTimeField(_("last run"))
    cadence_ms = models.BigIntegerField(null=True)
    loops = models.BooleanField(db_default=False)
    blind = models.JSONField(null=True)
    clock_steps = models.BigIntegerField(db_default=0)
    resumed_at = models.DateTimeField(null=True)
    ran_by = models.CharField(_("ran by"), max_length=255, default="", db_default="")

    class Meta:
        verbose_name = _("maintenance run")
        verbose_name_plural = _("maintenance runs")

    def __str__(self) -> str:
        return str(self.name)
