"""Composition root: what is plugged together when Django starts."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db.models.signals import post_migrate
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _


def _forget_queues(**_: object) -> None:
    from django_ojs.services.enqueue import forget_all_queues
    from django_ojs.services.rate_limits.policies import forget_limited

    forget_all_queues()
    forget_limited()


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
        from django_ojs import checks, conf, hooks
        from django_ojs.models.returning import decide_returned_fields
        from django_ojs.services import maintenance
        from django_ojs.services.rate_limits import places
        from django_ojs.services.workflows import advance, upkeep

        decide_returned_fields(self.get_models())
        checks.register_all()
        maintenance.register_all()
        hooks.register_transition_hook(advance.HOOK)
        hooks.register_transition_hook(places.HOOK)
        hooks.register_deadline_hook(upkeep.DEADLINES)
        # Sent after `flush` too, by which every TransactionTestCase ends.
        post_migrate.connect(_forget_queues, sender=self, dispatch_uid="django_ojs.forget_queues")
        # With wrong settings nothing is imported; the check ojs.E001 reports them.
        with contextlib.suppress(ImproperlyConfigured):
            modules = conf.current().autodiscover
            autodiscover_modules(*modules)
            import_module("django_ojs.own_jobs")
            self._adopt_tasks(modules)

    def _adopt_tasks(self, modules: Sequence[str]) -> None:
        """Where ``TASKS`` names our backend, its tasks are jobs: each worker process must know them."""
        entries: Mapping[str, Mapping[str, Any]] = getattr(settings, "TASKS", None) or {}
        if any(str(one.get("BACKEND", "")).startswith("django_ojs.") for one in entries.values()):
            from django_ojs.tasks_backend import handlers

            handlers.adopt_all(modules)
