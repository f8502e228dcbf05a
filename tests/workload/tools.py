"""What the handlers of the tests share."""

from __future__ import annotations

import time
from pathlib import Path

LATER = {"initial_interval": "PT1H", "jitter": False}
AT_ONCE = {"initial_interval": "PT0.01S", "jitter": False, "max_attempts": 5}


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
