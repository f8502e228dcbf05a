"""The services against an exact model: whatever happens, in whatever order."""

from __future__ import annotations

import os
import random

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.faults import tally
from tests.model.machine import Machine
from tests.support import drop_dead_rows

pytestmark = pytest.mark.every_database

SHORT = settings(
    max_examples=10,
    stateful_step_count=40,
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
"""The same examples everywhere, every time; the first that fails is shown as it is."""
LONGER = settings(SHORT, max_examples=40)
DEEP = settings(
    SHORT,
    stateful_step_count=80,
    derandomize=False,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    print_blob=True,
)
"""Others every time, and the first that fails is made small."""
EXAMPLES = {"sqlite": 150, "postgresql": 80, "mysql": 50}
"""How many others: about two and a half minutes on each database, on a machine that has time."""


def run(limits: settings, number: int | None = None) -> None:
    """Run the machine; what it injected and checked is counted when it has passed."""
    # Each step looks through whole tables: those of a million jobs that are gone take an hour.
    drop_dead_rows()

    class Run(Machine):
        faults: dict[str, int] = {}
        checked: dict[str, int] = {}

    run_state_machine_as_test(Run if number is None else seed(number)(Run), settings=limits)
    for row, times in Run.faults.items():
        tally.injected(row, times=times)
    for name, times in Run.checked.items():
        tally.checked(name, times=times)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_services_do_what_the_model_says(ojs_db: None) -> None:
    run(SHORT)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_services_do_what_the_model_says_in_the_examples_of_the_mutants(ojs_db: None) -> None:
    run(LONGER)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_the_services_do_what_the_model_says_of_much_more(
    vendor: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """``OJS_MODEL_SEED`` repeats what was tried before, ``OJS_MODEL_EXAMPLES`` tries more."""
    number = int(os.environ.get("OJS_MODEL_SEED") or random.getrandbits(32))
    examples = int(os.environ.get("OJS_MODEL_EXAMPLES") or EXAMPLES[vendor])
    with capsys.disabled():
        print(f"\nOJS_MODEL_SEED={number}, {examples} examples", flush=True)
    run(settings(DEEP, max_examples=examples), number)
