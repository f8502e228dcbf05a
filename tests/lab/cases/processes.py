"""One process of the fleet is stopped, slow, or late."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

from django_ojs import api
from tests.lab.cases import Case
from tests.lab.databases import suspended
from tests.lab.hooks import HOLD_BEAT, SLOW_RECEIVER, SLOW_SECONDS, STOP
from tests.lab.judge import HEARTBEAT
from tests.lab.stage import Stage
from tests.support import poll

MOST_STATEMENTS = 25
IN_BRIEF = 4
"""Of how many statements one is chosen where there is little time."""
STOPPED = 1.25 * HEARTBEAT
"""How long a reaper is stopped: longer than what it has read stays true."""
REACHED = 3.0
STOP_FILE, BEAT_FILE, RECEIVER_FILE = "stop", "beat", "receiver"


def reaper_stopped(stage: Stage) -> None:
    """A reaper stops after the first statement of a pass, another time after the second, and so on.

    The embedded reapers of the workers go on. On SQLite it may have the write lock.
    """
    armed = stage.folder / STOP_FILE
    if "S" not in stage.fleet:
        stage.reaper("S", **{STOP: str(armed)})
    reaper = stage.fleet["S"]
    stage.live()
    every = IN_BRIEF if stage.brief else 1
    reached = 0
    for number in range(random.randint(1, every), MOST_STATEMENTS + 1, every):
        # Due while it is stopped, and not before it can have stopped, when it may be its own to end.
        # Once it may have stopped the lab cannot write to SQLite either.
        stage.probe_ttl(REACHED + 1)
        # For this one it may be that the stopped reaper holds the row: it only has to end.
        due = str(api.enqueue("lab.nobody", queue="nobody", enqueue_ttl="300ms").id)
        stage.held_up.append(due)
        armed.write_text(str(number))
        if not _stopped_within(armed, REACHED):
            armed.unlink(missing_ok=True)
            break
        reached = number
        try:
            with stage.blocking_on("sqlite"):
                time.sleep(STOPPED)
        finally:
            reaper.send(signal.SIGCONT)
        stage.ended([due])
    if reached < 3:
        stage.notes.append(f"the reaper has stopped at statement {reached} at most")


def _stopped_within(armed: Path, seconds: float) -> bool:
    try:
        return bool(poll(lambda: not armed.exists(), seconds))
    except AssertionError:
        return False


def slow_receiver(stage: Stage) -> None:
    """A receiver of a signal takes 25 s; meanwhile its worker's other jobs end."""
    stage.live()
    stage.probe_all()
    (stage.folder / RECEIVER_FILE).touch()
    with stage.only_a():
        quick = str(api.enqueue("lab.quick", queue="a").id)
        stage.living.append(quick)
        stage.begun([quick])
    poll(lambda: not (stage.folder / RECEIVER_FILE).exists(), 30)
    stage.last(SLOW_SECONDS)


def late_beat(stage: Stage) -> None:
    """A beat leaves its worker before the server is suspended, and lands after it was judged again."""
    armed = stage.folder / BEAT_FILE
    marker = armed.with_suffix(".held")
    marker.unlink(missing_ok=True)
    stage.live()
    armed.touch()
    try:
        poll(marker.exists, 30)
        server = stage.database.server
        if server is None:
            # Without a server nobody can be kept from the file: only the beat is late.
            time.sleep(0.5 * HEARTBEAT)
        else:
            with stage.blocking(), suspended(server):
                stage.last()
            time.sleep(1.0)
    finally:
        armed.unlink(missing_ok=True)
    time.sleep(1.25 * HEARTBEAT)


CASES = [
    Case("reaper stopped after each statement", reaper_stopped, reaper=False),
    Case("receiver of 25 s", slow_receiver, hooks={SLOW_RECEIVER: RECEIVER_FILE}),
    Case("beat that lands late", late_beat, hooks={HOLD_BEAT: BEAT_FILE}),
]
