"""Heartbeats of leases whose job's row was locked by another transaction."""

from __future__ import annotations

from django.db import models


class LeaseBeat(models.Model):
    """The last beat of a lease that could not be written on its job's row (ADR 0015).

    Written by the holder of the lease alone; no foreign key, which would wait for the job's row.
    ``visibility_ms`` is the visibility lease that the beat asked for, if any.
    """

    lease_id = models.UUIDField(primary_key=True)
    job_id = models.UUIDField()
    heartbeat_at = models.DateTimeField()
    visibility_ms = models.BigIntegerField(null=True)

    def __str__(self) -> str:
        return str(self.lease_id)
