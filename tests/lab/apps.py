"""Where the hooks of the lab get into workers and reapers."""

from __future__ import annotations

from django.apps import AppConfig


class LabConfig(AppConfig):
    """The app with the handlers of the lab."""

    name = "tests.lab"

    def ready(self) -> None:
        """What the environment of this process asks for."""
        from tests.lab import hooks

        hooks.install()
