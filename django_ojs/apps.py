"""Composition root: what is plugged together when Django starts."""

from __future__ import annotations

import contextlib

from django.apps import AppConfig
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _


class DjangoOjsConfig(AppConfig):
    """Registers checks and the core's maintenance tasks, and imports the handlers of the installed
    apps.
    """

    name = "django_ojs"
    label = "django_ojs"
    verbose_name = _("Open Job Spec")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """No database access and no threads here: handlers are imported, nothing is started."""
        from django_ojs import checks, conf
        from django_ojs.services import maintenance

        checks.register_all()
        maintenance.register_all()
        # With wrong settings nothing is imported; the check ojs.E001 reports them.
        with contextlib.suppress(ImproperlyConfigured):
            modules = conf.current().autodiscover
            autodiscover_modules(*modules)
