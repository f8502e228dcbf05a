"""What the handlers of the tests share."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

LATER = {"initial_interval": "PT1H", "max_interval": "PT1H", "jitter": False}
AT_ONCE = {"initial_interval": "PT0.01S", "jitter": False, "max_attempts": 5}
DEAF: dict[str, Any] = {"timeout": 4, "grace_period": 1, "retry": LATER}
"""For what has to be killed: time to start on a busy machine, and little grace."""
SOFT: dict[str, Any] = {"timeout": 4, "grace_period": 60, "retry": LATER}
"""For what the soft signal ends: it would take a minute longer without."""


def note(diary: str, *words: object) -> None:
    """Append a line to the test's file."""
    with open(diary, "a") as file:
        file.write(" ".join(map(str, words)) + "\n")


def wait_for(path: str, timeout: float = 60.0) -> None:
    """Wait until the test makes this file."""
    until = time.monotonic() + timeout
    while not Path(path).exists():
        if time.monotonic() > until:
            raise TimeoutError(path)
        time.sleep(0.01)
