"""Rate limits by key, and the places under them that jobs wait for or have."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from django_ojs.domain.rate_limit import MAX_KEY
from django_ojs.models.fields import CaseSensitiveCharField
from django_ojs.models.indexes import HotIndex, OrderedIndex


class RateLimit(models.Model):
    """The limits of a key. Its row is the lock of those who admit jobs under it.

    ``policy`` is that of the job that was enqueued last, ``override`` an operator's, which wins until
    ``override_until``, or for good. ``blocked_until`` is what a handler asked for. ``due_at`` is when
    places open because of the time. ``exceeded`` holds while jobs wait.
    """

    key = CaseSensitiveCharField(_("key"), primary_key=True, max_length=MAX_KEY)
    policy = models.JSONField(_("limits of the jobs"), default=dict)
    override = models.JSONField(_("override"), null=True)
    override_until = models.DateTimeField(_("override ends"), null=True)
    override_by = models.CharField(_("override by"), max_length=255, default="", db_default="")
    blocked_until = models.DateTimeField(_("blocked until"), null=True)
    due_at = models.DateTimeField(_("next opening"), null=True)
    exceeded = models.BooleanField(_("exceeded"), db_default=False)
    created_at = models.DateTimeField(_("created"), db_default=Now())
    used_at = models.DateTimeField(_("last used"), db_default=Now())

    class Meta:
        verbose_name = _("rate limit")
        verbose_name_plural = _("rate limits")
        indexes = [
            HotIndex(
                fields=["due_at"],
                name="ojs_ratelimit_due",
                only=models.Q(due_at__isnull=False),
            ),
            OrderedIndex(fields=["used_at"], name="ojs_ratelimit_used"),
        ]
        permissions = [("override_ratelimit", "Can override rate limits")]

    def __str__(self) -> str:
        return str(self.key)


class RateLimitPlace(models.Model):
    """A job under a key; written under the lock of the job's row.

    It is ``idle`` while the job does not wait for this key: the job is not available, or waits for
    an earlier key. ``queue``, ``priority`` and ``enqueued_at`` are the job's. ``ending`` is a place of
    its own, without a job: the handler of an attempt that is over may run until ``until``.
    """

    class Status(models.IntegerChoices):
        """The states of a place."""

        IDLE = 0, _("idle")
        WAITING = 1, _("waiting")
        ADMITTED = 2, _("admitted")
        RUNNING = 3, _("running")
        ENDING = 4, _("ending")

    id = models.BigAutoField(primary_key=True)
    key = CaseSensitiveCharField(_("key"), max_length=MAX_KEY)
    status = models.SmallIntegerField(_("status"), choices=Status.choices)
    priority = models.SmallIntegerField(_("priority"), db_default=0)
    enqueued_at = models.DateTimeField(_("enqueued"))
    job_id = models.UUIDField(_("job"))
    queue = CaseSensitiveCharField(_("queue"), max_length=255)
    lease_id = models.UUIDField(null=True)
    until = models.DateTimeField(null=True)

    class Meta:
        verbose_name = _("place under a rate limit")
        verbose_name_plural = _("places under rate limits")
        indexes = [
            OrderedIndex(
                fields=["key", "status", "-priority", "enqueued_at", "job_id"], name="ojs_place_key"
            ),
            OrderedIndex(fields=["job_id"], name="ojs_place_job"),
            OrderedIndex(fields=["status", "queue", "enqueued_at"], name="ojs_place_queue"),
            HotIndex(
                fields=["lease_id"],
                name="ojs_place_lease",
                only=models.Q(lease_id__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.job_id} under {self.key}"


class RateLimitStart(models.Model):
    """A start under a key whose starts are counted."""

    id = models.BigAutoField(primary_key=True)
    key = CaseSensitiveCharField(_("key"), max_length=MAX_KEY)
    started_at = models.DateTimeField(_("started"))

    class Meta:
        verbose_name = _("start under a rate limit")
        verbose_name_plural = _("starts under rate limits")
        indexes = [OrderedIndex(fields=["key", "started_at"], name="ojs_start_key")]

    def __str__(self) -> str:
        return f"{self.started_at} under {self.key}"


class RateLimitDue(models.Model):
    """A key whose places have changed: inserted with the change, deleted by the admission that has
    seen it. ``due_at`` is when anybody is to admit, if those who made the change have not.
    """

    id = models.BigAutoField(primary_key=True)
    key = CaseSensitiveCharField(_("key"), max_length=MAX_KEY)
    due_at = models.DateTimeField()

    class Meta:
        verbose_name = _("due admission")
        verbose_name_plural = _("due admissions")
        indexes = [OrderedIndex(fields=["key"], name="ojs_admission_key")]

    def __str__(self) -> str:
        return str(self.key)
