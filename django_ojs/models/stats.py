"""The minute roll-up: what ended, how long it took, what failed. Written by a maintenance task, for
screens and for monitoring.
"""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_ojs.models.fields import CaseSensitiveCharField
from django_ojs.models.indexes import OrderedIndex


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


class Incident(models.Model):
    """Failures of a type with the same error and message, but for what differs from job to job.

    ``id`` is ``domain.incidents.identify`` of these, ``message`` what they have in common, ``sample``
    the message of one of the last. The times are those of the first and the last failure.
    """

    id = models.CharField(primary_key=True, max_length=16)
    type = CaseSensitiveCharField(_("job type"), max_length=255)
    error = CaseSensitiveCharField(_("error"), max_length=200)
    message = models.TextField(_("message"), default="")
    sample = models.TextField(_("message"), default="")
    first_seen = models.DateTimeField(_("first seen"))
    last_seen = models.DateTimeField(_("last seen"))

    class Meta:
        verbose_name = _("incident")
        verbose_name_plural = _("incidents")
        indexes = [OrderedIndex(fields=["last_seen"], name="ojs_incident_seen")]

    def __str__(self) -> str:
        return f"{self.type} {self.error}"


class FailureStat(models.Model):
    """Failures of one incident in one minute (or hour)."""

    id = models.BigAutoField(primary_key=True)
    at = models.DateTimeField(_("from"))
    step = models.IntegerField(default=60)
    type = CaseSensitiveCharField(_("job type"), max_length=255)
    error = CaseSensitiveCharField(_("error"), max_length=200)
    queue = CaseSensitiveCharField(_("queue"), max_length=255)
    incident = models.CharField(_("incident"), max_length=16, default="")
    count = models.IntegerField(_("failures"), default=0)

    class Meta:
        verbose_name = _("failure")
        verbose_name_plural = _("failures")
        constraints = [
            models.UniqueConstraint(
                fields=["step", "at", "queue", "type", "error", "incident"], name="ojs_failure_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.type} {self.error}"


class TypeStat(models.Model):
    """What became of the attempts at jobs of one type in one step of time.

    The steps are those of ``services.type_stats.STEPS``. ``busy_ms`` is how long the attempts ran,
    ``durations`` a histogram of the completed ones.
    """

    id = models.BigAutoField(primary_key=True)
    at = models.DateTimeField(_("from"))
    step = models.IntegerField(default=60)
    type = CaseSensitiveCharField(_("job type"), max_length=255)
    completed = models.IntegerField(_("completed"), default=0)
    failed = models.IntegerField(_("failed attempts"), default=0)
    busy_ms = models.BigIntegerField(default=0)
    durations = models.JSONField(default=list)

    class Meta:
        verbose_name = _("figures of a job type")
        verbose_name_plural = _("figures of job types")
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["step", "at", "type"], name="ojs_type_once")]

    def __str__(self) -> str:
        return f"{self.type} {self.at}"


class DeployMark(models.Model):
    """A deployment: marked by somebody, or noticed when workers of another version started."""

    id = models.BigAutoField(primary_key=True)
    at = models.DateTimeField(_("time"))
    name = models.CharField(_("name"), max_length=200, default="")
    by = models.CharField(max_length=255, default="")
    noticed = models.BooleanField(default=False)

    class Meta:
        verbose_name = _("deployment")
        verbose_name_plural = _("deployments")
        default_permissions = ()
        indexes = [OrderedIndex(fields=["at"], name="ojs_deploy_at")]

    def __str__(self) -> str:
        return str(self.name)


class Total(models.Model):
    """What was ever counted of one metric in one queue and type; deleting jobs changes nothing.

    ``label`` tells what the metric distinguishes further: the outcome of an attempt, the kind of a
    timeout. ``buckets`` is a histogram as in :class:`MinuteStat`, of durations of which ``sum_ms`` is
    the sum; null for a plain count.
    """

    id = models.BigAutoField(primary_key=True)
    metric = models.CharField(max_length=32)
    queue = CaseSensitiveCharField(_("queue"), max_length=255)
    type = CaseSensitiveCharField(_("job type"), max_length=255)
    label = models.CharField(max_length=32, default="")
    count = models.BigIntegerField(default=0)
    sum_ms = models.BigIntegerField(default=0)
    buckets = models.JSONField(null=True)

    class Meta:
        verbose_name = _("total")
        verbose_name_plural = _("totals")
        constraints = [
            models.UniqueConstraint(fields=["metric", "queue", "type", "label"], name="ojs_total_once")
        ]

    def __str__(self) -> str:
        return f"{self.metric} {self.queue} {self.type} {self.label}"


class QueueSample(models.Model):
    """What waited and ran in a queue when most waited in a step of time, of the moments looked at.

    The steps begin at ``at`` and are those of ``services.queue_samples.STEPS``. The queue is empty for
    all queues together; this row alone has ``ages``, a histogram of how long the available jobs had
    waited, and the live ``workers`` with their ``slots``. With ``capped`` more were available than were
    counted.
    """

    id = models.BigAutoField(primary_key=True)
    at = models.DateTimeField(_("from"))
    step = models.IntegerField(default=60)
    queue = CaseSensitiveCharField(_("queue"), max_length=255)
    waiting = models.IntegerField(default=0)
    capped = models.BooleanField(default=False)
    oldest_ms = models.BigIntegerField(default=0)
    running = models.IntegerField(default=0)
    ages = models.JSONField(default=list)
    workers = models.IntegerField(default=0)
    slots = models.IntegerField(default=0)

    class Meta:
        verbose_name = _("queue sample")
        verbose_name_plural = _("queue samples")
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["step", "at", "queue"], name="ojs_sample_once")]

    def __str__(self) -> str:
        return f"{self.queue} {self.at}"
