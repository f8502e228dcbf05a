"""A worker process: its identity, its last sign of life, its directive."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_ojs.models.fields import CaseSensitiveCharField


class Worker(models.Model):
    """One row per name and credential, so that clients may name their workers alike.

    ``principal`` is the credential that its requests come with, empty for a worker of this project.
    ``incarnation`` is new at every start of a process under that name. Jobs and attempts have the
    plain name in ``worker_id``; with ``lease_principal`` or ``principal`` it is this row's.
    """

    class Phase(models.TextChoices):
        """The phase in the worker's last heartbeat."""

        RUNNING = "running", _("running")
        QUIET = "quiet", _("quiet")
        DRAIN = "drain", _("draining")
        TERMINATE = "terminate", _("terminating")
        STOPPED = "stopped", _("stopped")

    id = models.BigAutoField(primary_key=True)
    name = CaseSensitiveCharField(_("name"), max_length=255)
    principal = CaseSensitiveCharField(_("client"), max_length=255, default="", db_default="")
    incarnation = models.UUIDField()
    phase = CaseSensitiveCharField(
        _("phase"), max_length=16, choices=Phase.choices, db_default="running"
    )
    beats = models.BooleanField(_("sends heartbeats"), db_default=False)
    directive = CaseSensitiveCharField(_("directive"), max_length=16, null=True)
    hostname = models.CharField(_("host"), max_length=255, default="", db_default="")
    pid = models.BigIntegerField(_("process id"), null=True)
    concurrency = models.IntegerField(_("slots"), null=True)
    running = models.IntegerField(_("running jobs"), db_default=0)
    queues = models.JSONField(_("queues"), default=list)
    types = models.JSONField(_("job types"), default=list)
    labels = models.JSONField(default=dict)
    version = models.CharField(_("version"), max_length=255, default="", db_default="")
    rss_bytes = models.BigIntegerField(_("memory"), null=True)
    """The resident memory of its processes, by the last heartbeat: what they share counts for each."""
    clock_ahead_ms = models.BigIntegerField(null=True)
    """How far the database's clock is ahead of this host's, by the last heartbeat."""
    started_at = models.DateTimeField(_("started"))
    heartbeat_at = models.DateTimeField(_("last heartbeat"))

    class Meta:
        verbose_name = _("worker")
        verbose_name_plural = _("workers")
        constraints = [
            models.UniqueConstraint(fields=["principal", "name"], name="ojs_worker_name"),
        ]
        permissions = [("direct_worker", "Can tell workers to be quiet, to stop, to go on")]

    def __str__(self) -> str:
        return str(self.name)
