"""Where a mutant, if one is asked for, gets into every process of a soak."""

from __future__ import annotations

import os

from django.apps import AppConfig


class SoakConfig(AppConfig):
    """The app with the handlers of the soak."""

    name = "tests.soak"

    def ready(self) -> None:
        """Break what ``OJS_SOAK_MUTANT`` names."""
        if mutant := os.environ.get("OJS_SOAK_MUTANT"):
            from tests.soak import mutants

            mutants.MUTANTS[mutant]()
