"""Schedules, and what became of each of their ticks."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from django_ojs.domain.schedule import CATCH_UP_WITHIN_MS, CatchUp, Overlap, ScheduleSource
from django_ojs.models.fields import CaseSensitiveCharField
from django_ojs.models.indexes import HotIndex, OrderedIndex


class Schedule(models.Model):
    """Which job is enqueued when (OJS cron).

    ``due_at`` is the next tick, ``NULL`` while there is none: whoever moves it on enqueues the job,
    in the same transaction. ``fingerprint`` is that of the declaration in code or settings: a
    process that has another one leaves the schedule alone. It is empty once the schedule is given up,
    until it is declared or changed again. A pause is an operator's, and outlasts deployments.
    """

    class Overlaps(models.TextChoices):
        """What happens while the last job has not ended."""

        SKIP = Overlap.SKIP, _("skip")
        ALLOW = Overlap.ALLOW, _("allow")
        CANCEL_PREVIOUS = Overlap.CANCEL_PREVIOUS, _("cancel the previous job")
        ENQUEUE = Overlap.ENQUEUE, _("one after the other")

    class CatchUps(models.TextChoices):
        """What becomes of missed ticks."""

        NONE = CatchUp.NONE, _("none")
        ONE = CatchUp.ONE, _("the last one")

    class Sources(models.TextChoices):
        """Where a schedule is declared."""

        CODE = ScheduleSource.CODE, _("code")
        SETTINGS = ScheduleSource.SETTINGS, _("settings")
        ADMIN = ScheduleSource.ADMIN, _("admin")
        HTTP = ScheduleSource.HTTP, _("HTTP")

    name = CaseSensitiveCharField(_("name"), primary_key=True, max_length=255)
    source = models.CharField(_("declared in"), max_length=8, choices=Sources.choices)
    fingerprint = models.CharField(max_length=64, default="", db_default="")
    expression = models.CharField(_("schedule"), max_length=255)
    timezone = models.CharField(_("time zone"), max_length=64, default="UTC", db_default="UTC")
    type = CaseSensitiveCharField(_("job type"), max_length=255)
    queue = CaseSensitiveCharField(_("queue"), max_length=255)
    template = models.JSONField(_("job"), default=dict)
    overlap = models.CharField(
        _("overlap"), max_length=16, choices=Overlaps.choices, default=Overlap.SKIP
    )
    catch_up = models.CharField(
        _("catch up"), max_length=8, choices=CatchUps.choices, default=CatchUp.ONE
    )
    catch_up_within_ms = models.BigIntegerField(default=CATCH_UP_WITHIN_MS)
    jitter_ms = models.BigIntegerField(default=0)
    enabled = models.BooleanField(_("enabled"), default=True)
    description = models.TextField(_("description"), default="", blank=True)
    starts_at = models.DateTimeField(_("starts"), null=True, blank=True)
    ends_at = models.DateTimeField(_("ends"), null=True, blank=True)
    paused_at = models.DateTimeField(_("paused"), null=True)
    paused_by = models.CharField(_("paused by"), max_length=255, default="", db_default="")
    pause_reason = models.TextField(_("reason for the pause"), default="")
    created_at = models.DateTimeField(_("created"), db_default=Now())
    updated_at = models.DateTimeField(_("changed"), db_default=Now())
    due_at = models.DateTimeField(_("next tick"), null=True)
    last_run_at = models.DateTimeField(_("last run"), null=True)
    last_job_id = models.UUIDField(_("last job"), null=True)
    run_count = models.BigIntegerField(_("runs"), default=0, db_default=0)

    class Meta:
        verbose_name = _("schedule")
        verbose_name_plural = _("schedules")
        indexes = [
            HotIndex(fields=["due_at"], name="ojs_schedule_due", only=models.Q(due_at__isnull=False)),
        ]
        permissions = [
            ("run_schedule", "Can run schedules now, and fill in missed runs"),
            ("pause_schedule", "Can pause and resume schedules"),
        ]

    def __str__(self) -> str:
        return str(self.name)


class ScheduleRun(models.Model):
    """What became of a tick of a schedule, or of ``count`` ticks that were missed, the first at
    ``tick``.

    ``by`` has asked for a run outside of the ticks.
    """

    class Outcomes(models.TextChoices):
        """What became of it."""

        FIRED = "fired", _("enqueued")
        SKIPPED = "skipped", _("skipped")
        MISSED = "missed", _("missed")
        REFUSED = "refused", _("refused")

    id = models.BigAutoField(primary_key=True)
    schedule = CaseSensitiveCharField(_("schedule"), max_length=255)
    tick = models.DateTimeField(_("time"))
    outcome = models.CharField(_("outcome"), max_length=8, choices=Outcomes.choices)
    reason = models.TextField(_("reason"), default="")
    job_id = models.UUIDField(_("job"), null=True)
    count = models.BigIntegerField(_("ticks"), default=1, db_default=1)
    by = models.CharField(_("by"), max_length=255, default="", db_default="")
    created_at = models.DateTimeField(_("decided"), db_default=Now())

    class Meta:
        verbose_name = _("run of a schedule")
        verbose_name_plural = _("runs of schedules")
        constraints = [
            models.UniqueConstraint(fields=["schedule", "tick"], name="ojs_schedule_run_tick"),
        ]
        indexes = [OrderedIndex(fields=["tick"], name="ojs_schedule_run_age")]

    def __str__(self) -> str:
        return f"{self.schedule} at {self.tick}"
