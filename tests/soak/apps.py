"""Where a mutant, if one is asked for, gets into every process of a soak."""

from __future__ import annotations

import sys
import time
from itertools import count
from typing import Any

from django.apps import AppConfig

from tests.soak import plan


class SoakConfig(AppConfig):
    """The app with the handlers of the soak."""

    name = "tests.soak"

    def ready(self) -> None:
        """Break what ``OJS_TEST_MUTANT`` names."""
        from tests.faults import mutants

        mutants.apply_from_environment()
        if any(one.startswith(f"--worker-id={plan.SLOW_RECEIVER}.") for one in sys.argv):
            from django_ojs.signals import job_completed

            job_completed.connect(_dawdle)


_completed = count(1)


def _dawdle(**_: Any) -> None:
    """A receiver that now and then is not done for a long time."""
    if next(_completed) % plan.SLOW_EVERY == 0:
        time.sleep(plan.SLOW_SECONDS)
