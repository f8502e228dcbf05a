"""The services against an exact model: whatever happens, in whatever order."""

from __future__ import annotations

import pytest
from django.db import connections
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.faults import tally
from tests.model.machine import Machine

pytestmark = pytest.mark.every_database

SHORT = settings(
    max_examples=40,
    stateful_step_count=40,
    derandomize=True,
    database=None,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
"""The same examples everywhere, every time; the first that fails is shown as it is."""
DEEP = settings(
    SHORT,
    max_examples=600,
    stateful_step_count=80,
    derandomize=False,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    print_blob=True,
)
"""Others every time, reproducible by what is printed (or ``--hypothesis-seed``), and made small."""


def run(limits: settings) -> None:
    """Run the machine; what it injected and checked is counted when it has passed."""

    class Run(Machine):
        faults: dict[str, int] = {}
        checked: dict[str, int] = {}

    if connections["default"].vendor == "postgresql":
        with connections["default"].cursor() as cursor:
            # Thousands of commits, none of which has to survive a crash.
            cursor.execute("SET synchronous_commit TO off")
    run_state_machine_as_test(Run, settings=limits)
    for row, times in Run.faults.items():
        tally.injected(row, times=times)
    for name, times in Run.checked.items():
        tally.checked(name, times=times)


@pytest.mark.timeout(300)
def test_the_services_do_what_the_model_says(vendor: str) -> None:
    run(SHORT if vendor == "sqlite" else settings(SHORT, max_examples=15))


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_the_services_do_what_the_model_says_of_much_more(ojs_db: None) -> None:
    run(DEEP)
