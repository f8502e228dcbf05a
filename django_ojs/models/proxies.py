"""Screens of their own over the same rows."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _

from django_ojs.models.job import Job
from django_ojs.models.stats import MinuteStat


class DeadLetter(Job):
    """The dead letter: discarded jobs that were kept for an operator."""

    class Meta:
        proxy = True
        verbose_name = _("dead-lettered job")
        verbose_name_plural = _("dead letter")
        default_permissions = ("view",)


class Dashboard(MinuteStat):
    """The address and the name of the dashboard in any admin site."""

    class Meta:
        proxy = True
        verbose_name = _("dashboard")
        verbose_name_plural = _("dashboard")
        default_permissions = ()
