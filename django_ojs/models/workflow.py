"""Workflows: one row of counters each, and a row for each step that may have to wait."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from django_ojs.domain.workflow import CALLBACK_NAMES, When, WorkflowKind, WorkflowState
from django_ojs.models.fields import CaseSensitiveCharField
from django_ojs.models.indexes import HotIndex, OrderedIndex

_OUTER = Q(parent_id__isnull=True)


class Workflow(models.Model):
    """A workflow. Its members are jobs that carry its id, or workflows whose parent it is.

    Of ``total`` members ``open`` have not ended; those that are in none of ``open``, ``completed`` and
    ``failed`` were cancelled. ``callbacks_open`` counts callback jobs that have not ended. Whoever
    changes a workflow holds the row of ``root_id``, the outermost workflow that it is part of.
    ``cancel_requested_at`` is set before the members are cancelled, page by page. ``queues`` are those
    that its jobs were asked for, sorted: who does not see all of them does not see the workflow.
    """

    class Kinds(models.TextChoices):
        """The kinds, for forms and filters."""

        CHAIN = WorkflowKind.CHAIN, _("chain")
        GROUP = WorkflowKind.GROUP, _("group")
        BATCH = WorkflowKind.BATCH, _("batch")
        DAG = WorkflowKind.DAG, _("DAG")

    class States(models.TextChoices):
        """The states, for forms and filters."""

        RUNNING = WorkflowState.RUNNING, _("running")
        COMPLETED = WorkflowState.COMPLETED, pgettext_lazy("workflow", "completed")
        FAILED = WorkflowState.FAILED, _("failed")
        CANCELLED = WorkflowState.CANCELLED, pgettext_lazy("workflow", "cancelled")

    id = models.UUIDField(primary_key=True, editable=False)
    root_id = models.UUIDField(editable=False)
    parent_id = models.UUIDField(_("part of"), null=True, editable=False)
    parent_step = models.IntegerField(null=True)
    kind = CaseSensitiveCharField(_("kind"), max_length=10, choices=Kinds.choices)
    name = CaseSensitiveCharField(_("name"), max_length=255)
    state = CaseSensitiveCharField(_("state"), max_length=10, choices=States.choices)
    total = models.IntegerField(_("members"))
    open = models.IntegerField(_("open"))
    completed = models.IntegerField(_("completed"), db_default=0)
    failed = models.IntegerField(_("failed"), db_default=0)
    callbacks_open = models.IntegerField(db_default=0)
    callbacks_fired = models.BooleanField(db_default=False)
    callback_failed = models.BooleanField(db_default=False)
    runs = models.IntegerField(_("runs"), db_default=1)
    created_at = models.DateTimeField(_("created"), db_default=Now())
    timeout_ms = models.BigIntegerField(null=True)
    deadline_at = models.DateTimeField(_("deadline"), null=True)
    cancel_requested_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(_("finished"), null=True)
    error = models.JSONField(_("error"), null=True)
    meta = models.JSONField(_("meta"), default=dict)
    queues = models.JSONField(_("queues"), default=list)
    created_by = CaseSensitiveCharField(_("created by"), max_length=255)
    digest = models.CharField(max_length=64, null=True)

    class Meta:
        verbose_name = _("workflow")
        verbose_name_plural = _("workflows")
        indexes = [
            OrderedIndex(fields=["root_id", "id"], name="ojs_workflow_root"),
            HotIndex(within=["parent_id"], fields=["id"], name="ojs_workflow_outermost", only=_OUTER),
            HotIndex(
                within=["parent_id"], fields=["state", "id"], name="ojs_workflow_state", only=_OUTER
            ),
            HotIndex(
                within=["parent_id"], fields=["name", "id"], name="ojs_workflow_name", only=_OUTER
            ),
            HotIndex(
                fields=["deadline_at"],
                name="ojs_workflow_deadline",
                only=Q(deadline_at__isnull=False),
            ),
            HotIndex(
                fields=["cancel_requested_at"],
                name="ojs_workflow_cancelling",
                only=Q(cancel_requested_at__isnull=False, finished_at__isnull=True),
            ),
            HotIndex(
                fields=["finished_at"],
                name="ojs_workflow_finished",
                only=Q(finished_at__isnull=False),
            ),
        ]
        permissions = [
            ("cancel_workflow", "Can cancel workflows"),
            ("resume_workflow", "Can resume workflows"),
        ]

    def __str__(self) -> str:
        return f"{self.name or self.kind} {self.id}"

    @property
    def cancelled(self) -> int:
        """How many members were cancelled, or never started."""
        return self.total - self.open - self.completed - self.failed

    @property
    def detaches(self) -> bool:
        """Whether a member that is retried runs by itself: callbacks have run, or it was cancelled."""
        return self.callbacks_fired or self.state == WorkflowState.CANCELLED

    @property
    def is_complete(self) -> bool:
        """Whether every member has completed."""
        return self.completed == self.total


class WorkflowStep(models.Model):
    """A step that may wait: every step of a chain or a DAG, a nested workflow, a callback.

    ``waits_for`` counts the dependencies that have yet to end. ``call`` is what to enqueue: a job, or
    the definition of a workflow. The jobs of a group that wait for nothing have no step.
    """

    class States(models.TextChoices):
        """What has become of a step; a step that was started is what its job or workflow is."""

        WAITING = "waiting", _("waiting")
        STARTED = "started", _("started")
        CANCELLED = "cancelled", _("cancelled")

    id = models.BigAutoField(primary_key=True)
    workflow_id = models.UUIDField()
    index = models.IntegerField()
    key = CaseSensitiveCharField(_("step"), max_length=255)
    type = CaseSensitiveCharField(_("type"), max_length=255)
    depends_on = models.JSONField(default=list)
    when = CaseSensitiveCharField(max_length=10, default=When.COMPLETED.value)
    waits_for = models.IntegerField()
    call = models.JSONField()
    state = CaseSensitiveCharField(_("state"), max_length=10, choices=States.choices)
    job_id = models.UUIDField(null=True)
    child_id = models.UUIDField(null=True)

    class Meta:
        verbose_name = _("step")
        verbose_name_plural = _("steps")
        constraints = [
            models.UniqueConstraint(fields=["workflow_id", "index"], name="ojs_workflow_step_index")
        ]

    def __str__(self) -> str:
        return self.key or f"{self.workflow_id} {self.index}"

    @property
    def is_callback(self) -> bool:
        """Whether this is a callback, not a member."""
        return self.index in CALLBACK_NAMES
