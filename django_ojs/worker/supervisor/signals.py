"""What the host tells the worker: TERM and INT to stop, TSTP and CONT to pause and go on."""

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
SAME_ORDER_S = 0.5
"""Within this time of the first TERM or INT another one is the same order: ``timeout``, terminals and
supervisors signal the process and then its group.
"""


class Orders:
    """Signals of this process, kept until the runner's loop takes them."""

    def __init__(self, wakeup: int) -> None:
        self._noted: deque[tuple[signal.Signals, float]] = deque()
        self._told_to_stop_at: float | None = None
        for number in _SIGNALS:
            signal.signal(number, self._note)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)

    def __bool__(self) -> bool:
        return bool(self._noted)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._noted.append((signal.Signals(number), clock.boottime()))

    def take(self) -> Iterator[signal.Signals]:
        """The signals that came since the last time, without repetitions of an order to stop."""
        while self._noted:
            order, at = self._noted.popleft()
            if order in _STOP:
                first = self._told_to_stop_at
                if first is not None and at - first < SAME_ORDER_S:
                    logger.info("%s is the same order", order.name)
                    continue
                self._told_to_stop_at = at if first is None else first
            yield order

    def close(self) -> None:
        """Leave signals to the system again; INT, which a terminal repeats, to nobody."""
        signal.set_wakeup_fd(-1)
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL if number != signal.SIGINT else signal.SIG_IGN)
