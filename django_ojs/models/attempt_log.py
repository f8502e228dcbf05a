"""What the handlers of attempts have logged."""

from __future__ import annotations

from django.db import models

from django_ojs.models.indexes import OrderedIndex


class AttemptLog(models.Model):
    """The last lines that one attempt has logged (``OJS["LOGS"]``): an observation, not a result.

    Written by the holder of the lease alone, beside its reports; no foreign key, which would wait for
    the job's row (ADR 47). ``text`` has the lines, ``lines`` says how many those are, and ``dropped``
    how many came before them. Keys grow with time.
    """

    id = models.BigAutoField(primary_key=True)
    job_id = models.UUIDField()
    lease_id = models.UUIDField(unique=True)
    written_at = models.DateTimeField()
    text = models.TextField()
    lines = models.IntegerField()
    dropped = models.BigIntegerField()

    class Meta:
        indexes = [OrderedIndex(fields=["job_id", "id"], name="ojs_attemptlog_job")]

    def __str__(self) -> str:
        return f"{self.job_id}: {self.lines} lines"
