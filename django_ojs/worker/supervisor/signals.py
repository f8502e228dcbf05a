"""Signals to the worker: TERM and INT to stop, TSTP and CONT to pause and resume."""

from __future__ import annotations

import logging
import signal
from collections import deque
from collections.abc import Iterator
from types import FrameType

from django_ojs import clock

logger = logging.getLogger("django_ojs.worker")

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGTSTP, signal.SIGCONT)
_STOP = (signal.SIGTERM, signal.SIGINT)
REPEAT_S = 0.5
"""Seconds after the first TERM or INT in which another one is ignored: ``timeout``, terminals and
supervisors signal the process and then its group.
"""


class SignalQueue:
    """Signals to this process, queued until the main loop takes them."""

    def __init__(self, wakeup: int) -> None:
        self._queue: deque[tuple[signal.Signals, float]] = deque()
        self._stop_at: float | None = None
        for number in _SIGNALS:
            signal.signal(number, self._note)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)

    def __bool__(self) -> bool:
        return bool(self._queue)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._queue.append((signal.Signals(number), clock.boottime()))

    def take(self) -> Iterator[signal.Signals]:
        """Yield new signals, without immediate repetitions of a signal to stop."""
        while self._queue:
            number, at = self._queue.popleft()
            if number in _STOP:
                first = self._stop_at
                if first is not None and at - first < REPEAT_S:
                    logger.info("repeated signal ignored: %s", number.name)
                    continue
                self._stop_at = at if first is None else first
            yield number

    def close(self) -> None:
        """Restore the default actions, but ignore INT, which a terminal may repeat."""
        signal.set_wakeup_fd(-1)
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL if number != signal.SIGINT else signal.SIG_IGN)
