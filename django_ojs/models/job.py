"""The job: one row from enqueue to retention; the open attempt lives on it."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from django_ojs.domain.states import TERMINAL, State
from django_ojs.models.fields import CaseSensitiveCharField
from django_ojs.models.indexes import HotIndex

_CLAIMABLE = Q(state=State.AVAILABLE, held=False)


class Job(models.Model):
    """A job. ``store.inserting`` creates rows, ``store.claiming`` and ``store.transitions`` alone
    write ``state``.

    Limits are milliseconds. ``deadline_at`` is the earliest deadline that beats do not move.
    ``lease_id`` is the right to finish the open attempt; ``lease_seq`` counts claims ever made;
    ``lease_principal`` is the credential that fetched over HTTP. ``hooks`` has a bit for each
    transition hook that wants to see the job end. A job that is ``held`` waits for a place under a
    rate limit: no claim sees it. ``unique_key`` is what equal jobs have in common, of which
    :class:`UniqueKey` knows the holders. ``incident`` is that of the last failure, which a retry
    leaves. A negative ``workflow_step`` is a callback.
    """

    class States(models.TextChoices):
        """The states, for forms and filters."""

        SCHEDULED = State.SCHEDULED, _("scheduled")
        PENDING = State.PENDING, _("pending")
        AVAILABLE = State.AVAILABLE, _("available")
        ACTIVE = State.ACTIVE, pgettext_lazy("job", "active")
        RETRYABLE = State.RETRYABLE, _("retryable")
        COMPLETED = State.COMPLETED, _("completed")
        CANCELLED = State.CANCELLED, _("cancelled")
        DISCARDED = State.DISCARDED, _("discarded")

    id = models.UUIDField(primary_key=True, editable=False)
    state = CaseSensitiveCharField(_("state"), max_length=10, choices=States.choices)
    queue = CaseSensitiveCharField(_("queue"), max_length=255)
    type = CaseSensitiveCharField(_("type"), max_length=255)
    priority = models.SmallIntegerField(_("priority"), db_default=0)
    attempt = models.IntegerField(_("attempt"), db_default=0)
    max_attempts = models.IntegerField(_("max attempts"), db_default=3)
    lease_seq = models.BigIntegerField(db_default=0)
    lease_id = models.UUIDField(null=True)
    worker_id = CaseSensitiveCharField(_("worker"), max_length=255, null=True)
    lease_principal = CaseSensitiveCharField(max_length=255, null=True)

    created_at = models.DateTimeField(_("created"), db_default=Now())
    limits_from = models.DateTimeField(db_default=Now())
    enqueued_at = models.DateTimeField(_("enqueued"), null=True)
    scheduled_at = models.DateTimeField(_("scheduled"), null=True)
    expires_at = models.DateTimeField(_("expires"), null=True)
    started_at = models.DateTimeField(_("started"), null=True)
    heartbeat_at = models.DateTimeField(_("last heartbeat"), null=True)
    lease_expires_at = models.DateTimeField(null=True)
    deadline_at = models.DateTimeField(_("deadline"), null=True)
    finished_at = models.DateTimeField(_("finished"), null=True)

    timeout_ms = models.BigIntegerField(db_default=1_800_000)
    grace_period_ms = models.BigIntegerField(db_default=30_000)
    heartbeat_timeout_ms = models.BigIntegerField(db_default=60_000)
    total_timeout_ms = models.BigIntegerField(null=True)
    enqueue_ttl_ms = models.BigIntegerField(null=True)
    attempt_ttl_ms = models.BigIntegerField(null=True)
    visibility_timeout_ms = models.BigIntegerField(null=True)
    lease_visibility_ms = models.BigIntegerField(null=True)
    extended_ms = models.BigIntegerField(db_default=0)
    timeout_explicit = models.BooleanField(db_default=False)
    heartbeat_explicit = models.BooleanField(db_default=False)
    heartbeat_armed = models.BooleanField(db_default=False)
    dead_letter = models.BooleanField(_("dead letter"), db_default=False)
    retry_delay_ms = models.BigIntegerField(null=True)

    retry = models.JSONField(_("retry policy"), default=dict)
    args = models.JSONField(_("arguments"), default=list)
    meta = models.JSONField(_("meta"), default=dict)
    tags = models.JSONField(_("tags"), default=list)
    result = models.JSONField(_("result"), null=True)
    error = models.JSONField(_("error"), null=True)
    errors = models.JSONField(_("errors"), default=list)
    incident = models.CharField(_("incident"), max_length=16, null=True)
    extra = models.JSONField(default=dict)
    progress = models.FloatField(_("progress"), null=True)
    progress_message = models.TextField(default="")
    progress_data = models.JSONField(null=True)
    checkpoint = models.JSONField(_("checkpoint"), null=True)
    checkpoint_seq = models.IntegerField(db_default=0)
    checkpoint_info = models.JSONField(null=True)
    digest = models.CharField(max_length=64, null=True)
    unique_key = models.CharField(_("unique key"), max_length=64, null=True)
    hooks = models.SmallIntegerField(db_default=0)
    held = models.BooleanField(_("held"), db_default=False)
    workflow_id = models.UUIDField(_("workflow"), null=True)
    workflow_step = models.IntegerField(_("step"), null=True)

    class Meta:
        verbose_name = _("job")
        verbose_name_plural = _("jobs")
        indexes = [
            HotIndex(
                within=["state", "held"],
                fields=["-priority", "enqueued_at", "id"],
                name="ojs_job_claim_any",
                only=_CLAIMABLE,
            ),
            HotIndex(
                within=["state", "held"],
                fields=["queue", "-priority", "enqueued_at", "id"],
                name="ojs_job_claim",
                only=_CLAIMABLE,
            ),
            HotIndex(
                within=["state", "held"],
                fields=["queue", "type", "-priority", "enqueued_at", "id"],
                name="ojs_job_claim_type",
                only=_CLAIMABLE,
            ),
            HotIndex(
                fields=["state", "scheduled_at"],
                beside=["queue"],
                name="ojs_job_due",
                only=Q(state__in=[State.SCHEDULED, State.RETRYABLE]),
            ),
            HotIndex(
                fields=["deadline_at"],
                name="ojs_job_deadline",
                only=Q(deadline_at__isnull=False),
            ),
            HotIndex(
                within=["state"],
                fields=["worker_id"],
                name="ojs_job_active",
                only=Q(state=State.ACTIVE),
            ),
            HotIndex(
                within=["state", "dead_letter"],
                fields=["finished_at", "id"],
                name="ojs_job_dead",
                only=Q(state=State.DISCARDED, dead_letter=True),
            ),
            HotIndex(
                fields=["state", "id"],
                name="ojs_job_untimed",
                only=Q(state__in=[State.AVAILABLE, State.PENDING]),
            ),
            HotIndex(
                fields=["state", "finished_at"],
                name="ojs_job_finished",
                only=Q(state__in=sorted(TERMINAL)),
            ),
            HotIndex(
                fields=["incident", "finished_at"],
                beside=["state"],
                name="ojs_job_incident",
                only=Q(incident__isnull=False),
            ),
            HotIndex(
                fields=["workflow_id", "workflow_step"],
                name="ojs_job_workflow",
                only=Q(workflow_id__isnull=False),
            ),
        ]
        permissions = [
            ("view_args", "Can see arguments, meta, results and checkpoints"),
            ("retry_job", "Can retry discarded jobs, run waiting ones now and reschedule them"),
            ("requeue_job", "Can edit a job's arguments into a new job"),
            ("cancel_job", "Can cancel waiting and running jobs"),
            ("extend_job", "Can extend the timeout of running jobs"),
            ("edit_job", "Can change queue and priority of waiting jobs"),
            ("discard_job", "Can discard waiting jobs"),
            ("purge_job", "Can delete finished jobs before their time"),
        ]
        constraints = [
            models.CheckConstraint(
                name="ojs_job_state", condition=Q(state__in=[str(state) for state in State])
            ),
            models.CheckConstraint(
                name="ojs_job_lease",
                condition=Q(state=State.ACTIVE, lease_id__isnull=False)
                | (~Q(state=State.ACTIVE) & Q(lease_id__isnull=True)),
            ),
            models.CheckConstraint(
                name="ojs_job_active_deadline",
                condition=~Q(state=State.ACTIVE) | Q(deadline_at__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.type} {self.id}"
