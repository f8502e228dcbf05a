"""JSON Schemas of job arguments, by type and version."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from django_ojs.models.fields import CaseSensitiveCharField


class JobSchema(models.Model):
    """One version of the schema of a job type; it never changes."""

    id = models.BigAutoField(primary_key=True)
    type = CaseSensitiveCharField(_("job type"), max_length=255)
    version = models.IntegerField(_("version"))
    schema = models.JSONField(_("schema"))
    created_at = models.DateTimeField(_("created"), db_default=Now())

    class Meta:
        verbose_name = _("schema")
        verbose_name_plural = _("schemas")
        constraints = [models.UniqueConstraint(fields=["type", "version"], name="ojs_schema_version")]

    def __str__(self) -> str:
        return f"{self.type} {self.version}"
