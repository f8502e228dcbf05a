"""Credentials for the HTTP binding: scopes, queues, a hash; never the secret."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from django_ojs.models.fields import CaseSensitiveCharField
from django_ojs.models.indexes import OrderedIndex


class ApiToken(models.Model):
    """One credential. ``name`` is the client it belongs to: rotation keeps it, so leases stay valid.

    ``secret_hash`` is ``check$salt$scrypt`` in hex (ADR 24); ``scopes`` out of ``produce``,
    ``work``, ``inspect``, ``administer``, ``metrics``; ``queues`` are names or prefixes that end in
    ``*``.
    """

    id = models.BigAutoField(primary_key=True)
    name = CaseSensitiveCharField(_("client"), max_length=200)
    prefix = CaseSensitiveCharField(_("prefix"), max_length=32, unique=True, editable=False)
    secret_hash = models.CharField(max_length=255, editable=False)
    scopes = models.JSONField(_("scopes"), default=list)
    queues = models.JSONField(_("queues"), default=list)
    created_at = models.DateTimeField(_("created"), db_default=Now(), editable=False)
    created_by = models.CharField(
        _("created by"), max_length=255, default="", db_default="", editable=False
    )
    expires_at = models.DateTimeField(_("expires"), null=True, blank=True)
    revoked_at = models.DateTimeField(_("revoked"), null=True, editable=False)
    last_used_at = models.DateTimeField(_("last used"), null=True, editable=False)

    class Meta:
        verbose_name = _("API token")
        verbose_name_plural = _("API tokens")
        indexes = [OrderedIndex(fields=["name"], name="ojs_token_name")]
        permissions = [
            ("http_produce", "Can enqueue jobs over HTTP"),
            ("http_work", "Can fetch and report jobs over HTTP"),
            ("http_inspect", "Can look at jobs over HTTP"),
            ("http_administer", "Can act on jobs, queues and workers over HTTP"),
            ("http_metrics", "Can read metrics over HTTP"),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix})"
