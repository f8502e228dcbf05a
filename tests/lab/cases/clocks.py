"""The server's clock is set while jobs run."""

from __future__ import annotations

import time

from django_ojs import clock
from tests.lab import effects
from tests.lab.cases import SERVERS, Case
from tests.lab.judge import HEARTBEAT, Probe
from tests.lab.stage import Stage

OFFSETS = (600, 0, 3600, 0)
"""One after the other: 10 minutes and an hour, forward and backward."""
BETWEEN = HEARTBEAT + 3.0


def steps(stage: Stage) -> None:
    """Jobs that began before a step go on, and others begin after it."""
    stage.live(2)
    for offset in OFFSETS:
        # Wall-clock time: what the step carries past its time is due at the step.
        passed = offset > 0
        if passed:
            stage.probe_ttl(300.0)
        stage.set_clock(offset)
        if passed:
            _due_now(stage)
        # The lab itself makes the probes: by the new time.
        clock.database_clock.forget()
        # One of those who judge is new, and knows the new time only.
        stage.replace_reaper()
        stage.live(1)
        stage.probe_silent()
        stage.probe_ttl(2.0)
        time.sleep(BETWEEN)
    stage.end_early()


def _due_now(stage: Stage) -> None:
    """The last probe's deadline was carried over by the step."""
    probe = stage.probes.pop()
    stage.probes.append(Probe(probe.job, probe.kind, probe.begun, effects.now()))


CASES = [Case("server's clock +/- 10 min, +/- 1 h", steps, databases=SERVERS, steppable=True)]
