"""A measurement in a process of its own: started, waited for, ended."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_RESULT = "RESULT "
_STOPS = 90
"""Seconds for it to stop its workers: many of them take up to a minute."""


class Child:
    """One measurement that is running; its result is the last line that begins with ``RESULT``."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], *, folder: Path, log: Path
    ) -> None:
        self._log = log.name
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def result(self, seconds: float) -> dict[str, Any]:
        """The figures, or an ``error``, which it is too not to have ended within so many seconds."""
        try:
            out, _ = self._process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.end()
            return {"error": f"no result within {seconds:g} s, see {self._log}"}
        except BaseException:
            self.end()
            raise
        for line in reversed(out.splitlines()):
            if line.startswith(_RESULT):
                found: dict[str, Any] = json.loads(line.removeprefix(_RESULT))
                return found
        return {"error": f"exit status {self._process.returncode}, see {self._log}"}

    def end(self) -> None:
        """Let it stop the workers that it started."""
        self._process.terminate()
        try:
            self._process.wait(_STOPS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
