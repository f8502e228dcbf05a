"""The table of the bare DRF view that ours is compared with: columns and indexes of the same kind."""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import Q
from django.utils import timezone


class BareJob(models.Model):
    """What a project would write for itself."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    queue = models.CharField(max_length=255, default="default")
    type = models.CharField(max_length=255)
    state = models.CharField(max_length=10, default="available")
    priority = models.SmallIntegerField(default=0)
    attempt = models.SmallIntegerField(default=0)
    max_attempts = models.SmallIntegerField(default=3)
    args = models.JSONField()
    meta = models.JSONField(default=dict)
    worker = models.CharField(max_length=255, null=True)
    created_at = models.DateTimeField(default=timezone.now)
    scheduled_at = models.DateTimeField(default=timezone.now)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [
            models.Index(
                fields=["queue", "-priority", "created_at"],
                name="bare_claim",
                condition=Q(state="available"),
            ),
            models.Index(fields=["started_at"], name="bare_active", condition=Q(state="active")),
        ]

    def __str__(self) -> str:
        return f"{self.type} {self.id}"
