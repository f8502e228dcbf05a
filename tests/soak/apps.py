"""Where a mutant, if one is asked for, gets into every process of a soak."""

from __future__ import annotations

from django.apps import AppConfig


class SoakConfig(AppConfig):
    """The app with the handlers of the soak."""

    name = "tests.soak"

    def ready(self) -> None:
        """Break what ``OJS_TEST_MUTANT`` names."""
        from tests.faults import mutants

        mutants.apply_from_environment()
