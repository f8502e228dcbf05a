"""When the machine itself stood still: a committed write that took long, processors without time."""

from __future__ import annotations

import threading

from tests.lab import effects, raw
from tests.lab.judge import Block
from tests.support import processors

_EVERY = 0.1
_STALL = 0.4
"""How much longer than ``_EVERY`` a write may take to come."""
_SAMPLE = 0.5
_IDLE = 0.2
"""The share of the processors' time that must be left over for lateness to be ours."""


class Pulse(threading.Thread):
    """Commits to a row that nobody else uses, ten times a second, and watches the processors.

    What holds up a commit here, such as a disk that others use, holds up every process of the fleet.
    """

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True, name="pulse")
        # A file of its own: on SQLite a writer of the fleet would hold it up.
        self._url = f"{url}-pulse" if url.startswith("sqlite") else url
        self._over = threading.Event()
        self._came = effects.now()
        self.stalls: list[Block] = []

    def run(self) -> None:
        """Until :meth:`stop`; a lost session is opened again."""
        while not self._over.is_set():
            try:
                with raw.session(self._url) as session:
                    session.run("CREATE TABLE IF NOT EXISTS lab_pulse (beats integer)")
                    session.run("DELETE FROM lab_pulse")
                    session.run("INSERT INTO lab_pulse VALUES (0)")
                    self._beat(session)
            except Exception:
                self._over.wait(_EVERY)

    def stop(self) -> None:
        """End it."""
        self._over.set()
        self.join(60)

    def _beat(self, session: raw.Session) -> None:
        sampled, (idle, whole) = effects.now(), processors()
        while not self._over.wait(_EVERY):
            session.run("UPDATE lab_pulse SET beats = beats + 1")
            now = effects.now()
            if now - self._came > _EVERY + _STALL:
                self.stalls.append(Block(self._came, now))
            self._came = now
            if now - sampled >= _SAMPLE:
                idle_now, whole_now = processors()
                if idle_now - idle < _IDLE * (whole_now - whole):
                    self.stalls.append(Block(sampled, now))
                sampled, idle, whole = now, idle_now, whole_now
