"""What the jobs write."""

from __future__ import annotations

from django.db import models


class Reading(models.Model):
    """The temperature of a city at a full hour."""

    city = models.CharField(max_length=40)
    at = models.DateTimeField()
    celsius = models.FloatField()

    class Meta:
        constraints = [
            # What makes an import that is run twice harmless: a row is there once or not at all.
            models.UniqueConstraint(fields=["city", "at"], name="showcase_reading_once")
        ]

    def __str__(self) -> str:
        return f"{self.city} {self.at:%Y-%m-%d %H:%M} {self.celsius:.1f}"


class Thumbnail(models.Model):
    """A small copy of a picture; ``path`` is relative to ``settings.VAR_DIR``."""

    picture = models.CharField(max_length=100)
    side = models.PositiveIntegerField()
    width = models.PositiveIntegerField()
    height = models.PositiveIntegerField()
    path = models.CharField(max_length=255)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["picture", "side"], name="showcase_thumbnail_once")
        ]

    def __str__(self) -> str:
        return f"{self.picture} {self.width}x{self.height}"
