"""One row per ended attempt."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_ojs.models.fields import CaseSensitiveCharField
from django_ojs.models.job import Job


class Attempt(models.Model):
    """How one lease of a job ended; inserted once, by the write that ended it.

    ``outcome`` is ``completed``, ``failed``, ``timeout``, ``stalled``, ``visibility_timeout``,
    ``total_timeout``, ``shutdown``, ``worker_crash``, ``cancelled``, ``requeued`` or ``released``.
    ``principal`` is the credential that fetched it, ``None`` for a worker of this project.
    ``late_report`` is what the holder reported after it had lost the lease.
    """

    id = models.BigAutoField(primary_key=True)
    job = models.ForeignKey(
        Job, models.CASCADE, related_name="attempts", db_constraint=False, db_index=False
    )
    lease_seq = models.BigIntegerField()
    lease_id = models.UUIDField()
    attempt = models.IntegerField(_("attempt"))
    worker_id = CaseSensitiveCharField(_("worker"), max_length=255, null=True)
    principal = CaseSensitiveCharField(_("credential"), max_length=255, null=True)
    started_at = models.DateTimeField(_("started"))
    ended_at = models.DateTimeField(_("ended"))
    deadline_at = models.DateTimeField(null=True)
    outcome = CaseSensitiveCharField(_("outcome"), max_length=32)
    error = models.JSONField(_("error"), null=True)
    late_report = models.JSONField(null=True)

    class Meta:
        verbose_name = _("attempt")
        verbose_name_plural = _("attempts")
        constraints = [models.UniqueConstraint(fields=["job", "lease_seq"], name="ojs_attempt_job_seq")]

    def __str__(self) -> str:
        return f"{self.job_id} #{self.lease_seq} {self.outcome}"
