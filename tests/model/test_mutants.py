"""The tests are tested: every planted bug is found, and found as what it is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest
from django.db import IntegrityError

from django_ojs.models import Attempt
from django_ojs.services.reap import reap
from django_ojs.services.settle import Verdict
from django_ojs.store import locking
from tests.apart import Apart
from tests.faults.mutants import ENVIRONMENT, MUTANTS, apply_from_environment
from tests.model.test_model import LONGER, run
from tests.services.support import ack, make, now_stored, take

FOUND_AS = {
    "no-fence": "I6: a stale report was honoured",
    "state-only-fence": "I6: a stale report was honoured",
    "unfenced-beat": "I6: .*extended under stale leases",
    "no-look-ahead": "I11: a retry that cannot end in time",
    "one-attempt-too-many": "I3: .*",
    "no-catch-up": "I10: stalled after an outage",
    "unguarded-cancel": "I2: cancel of what is (completed|discarded)",
    "claim-ignores-pause": "I13: claimed while paused",
    "claim-out-of-order": "I14: ",
}
FOUND_BY_A_RACE = {"unguarded-reap"}
FOUND_ELSEWHERE = {
    "late-deadlines",
    "announced-claim-ignores-pause",
    "single-attempts-ahead",
    "promotes-expired",
    "unread-last-frames",
    "kill-spares-descendants",
}
"""In ``process/test_mutants.py``."""
FOUND_BY_THE_SOAK = {"callbacks-again", "unlocked-workflow"}
"""In ``soak/test_soak.py``; the second by ``make soak SOAK_MUTANT=unlocked-workflow`` (no SQLite)."""
FOUND_BY_A_WAIT = {"judge-after-wait", "beats-not-put-aside"}
"""Found by ``services/test_sightings.py`` and ``services/test_held_rows.py``: what needs statements
between which time passes, or rows that another session holds.
"""


def test_every_mutant_is_looked_for() -> None:
    found = set(FOUND_AS) | FOUND_BY_A_RACE | FOUND_BY_A_WAIT | FOUND_ELSEWHERE | FOUND_BY_THE_SOAK
    assert found == set(MUTANTS)


@pytest.mark.slow
@pytest.mark.parametrize("name", FOUND_AS)
def test_the_model_finds(name: str, ojs_db: None) -> None:
    """The very examples that pass without the bug find it."""
    with MUTANTS[name](), pytest.raises(AssertionError) as failure:
        run(LONGER)
    assert re.match(FOUND_AS[name], str(failure.value)), failure.value


@contextmanager
def _meanwhile(work: Any) -> Iterator[list[Apart]]:
    """Once the reaper has read what is overdue, and before it writes, ``work`` is done elsewhere, as
    far as it can be: not to its end where what was read is locked.
    """
    others: list[Apart] = []
    read = locking.jobs

    def reading(*rest: Any, **named: Any) -> Any:
        found = read(*rest, **named)
        if found and named.get("brief") and not others:
            others.append(Apart(work))
            others[0].goes_as_far_as_it_can()
        return found

    with patch.object(locking, "jobs", reading):
        yield others
    assert others, "the reaper found nothing"


def _reap_while_a_report_comes(frozen: Any) -> None:
    make(timeout=10, grace_period=0)
    (job,) = take()
    frozen.advance(11)
    with _meanwhile(lambda: ack(job)[0].verdict) as reports:
        reaped = reap()
    assert [report.outcome() for report in reports] == [Verdict.LOST]
    assert reaped.counts == {"execution": 1}
    assert now_stored(job).state == "retryable"
    assert [attempt.outcome for attempt in Attempt.objects.all()] == ["timeout"]


@pytest.mark.every_database
@pytest.mark.fault("F56")
def test_a_report_waits_for_the_reaper_and_is_refused(ojs_db: None, frozen: Any) -> None:
    _reap_while_a_report_comes(frozen)


@pytest.mark.every_database
def test_a_reaper_without_guard_is_found(ojs_db: None, frozen: Any) -> None:
    with MUTANTS["unguarded-reap"](), pytest.raises((AssertionError, IntegrityError)):
        _reap_while_a_report_comes(frozen)


def test_a_process_gets_what_its_environment_names(monkeypatch: pytest.MonkeyPatch) -> None:
    planted = []

    @contextmanager
    def plant() -> Iterator[None]:
        planted.append(1)
        yield

    monkeypatch.setitem(MUTANTS, "test", plant)
    monkeypatch.setenv(ENVIRONMENT, "test,test")
    assert apply_from_environment() == ["test", "test"]
    assert planted == [1, 1]
    monkeypatch.setenv(ENVIRONMENT, "")
    assert apply_from_environment() == []
