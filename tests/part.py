"""One pytest process on one database, and what its report log says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PYTEST = (sys.executable, "-m", "pytest", "-q", "-rfEs")
NO_TESTS = 5
LEFT_OUT = ("PYTHONDONTWRITEBYTECODE",)
"""Of the environment: each part, and each process of a test, would compile everything anew."""
PERCENT = re.compile(r"\[ *(\d+%)\]")


@dataclass(eq=False)
class Part:
    """Some of the tests. ``files`` is the stem of its report log and its output.

    ``settings`` is the module of Django's settings, if not that of the other tests. ``failed`` are the
    tests that have failed so far.
    """

    name: str
    url: str
    arguments: tuple[str, ...]
    files: Path
    code: int | None = None
    settings: str = field(default="", kw_only=True)
    running: bool = False
    seconds: float = 0.0
    _counts: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)
    _skips: Counter[str] = field(default_factory=Counter)
    _read: int = 0

    @property
    def log(self) -> Path:
        """Where pytest reports, a line of JSON each."""
        return self.files.with_suffix(".jsonl")

    @property
    def output(self) -> Path:
        """What it prints."""
        return self.files.with_suffix(".txt")

    @property
    def ended(self) -> bool:
        """Whether it has come to its end."""
        return self.code is not None

    @property
    def good(self) -> bool:
        """Nothing failed. A part without any test that was asked for is no failure."""
        return self.code in (0, NO_TESTS)

    def __call__(self, tallies: Path) -> int:
        """Run it to its end; it leaves its counts of faults in a folder. Returns the exit code."""
        began, self.running = time.monotonic(), True
        with self.output.open("wb") as output:
            done = subprocess.run(
                [*PYTEST, f"--report-log={self.log}", *self.arguments],
                cwd=ROOT,
                env={
                    **{name: text for name, text in os.environ.items() if name not in LEFT_OUT},
                    "DATABASE_URL": self.url,
                    "PYTHONUNBUFFERED": "1",
                    "OJS_TEST_TALLIES": str(tallies),
                    **({"DJANGO_SETTINGS_MODULE": self.settings} if self.settings else {}),
                },
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
            )
        self.seconds, self.running, self.code = time.monotonic() - began, False, done.returncode
        return done.returncode

    def text(self) -> str:
        """All that it has printed."""
        return self.output.read_text(errors="replace") if self.output.exists() else ""

    def share(self) -> str:
        """How much of it is done, as pytest counts."""
        found = PERCENT.findall(self.text())
        return found[-1] if found else "0%"

    def counts(self) -> Counter[str]:
        """Tests by outcome. A process that failed without saying which test did counts as one."""
        self._take_in()
        if self.ended and not self.good and not self._counts["failed"]:
            return self._counts + Counter(failed=1)
        return self._counts

    def failures(self) -> list[str]:
        """The tests that failed, with the part's name."""
        self._take_in()
        if self.ended and not self.good and not self.failed:
            return [f"{self.name}: exit {self.code}"]
        return [f"{self.name}: {test}" for test in self.failed]

    def skips(self) -> Counter[str]:
        """How many tests skipped themselves, by reason."""
        self._take_in()
        return self._skips

    def _take_in(self) -> None:
        """Read the lines that have come since. The last may still be half-written."""
        if not self.log.exists():
            return
        with self.log.open("rb") as log:
            log.seek(self._read)
            for raw in log:
                if not raw.endswith(b"\n"):
                    break
                self._read += len(raw)
                self._note(json.loads(raw))

    def _note(self, entry: dict[str, Any]) -> None:
        kind, outcome = entry.get("$report_type"), entry.get("outcome")
        if kind not in ("TestReport", "CollectReport"):
            return
        if outcome == "failed":
            self._counts["failed"] += 1
            self.failed.append(entry["nodeid"])
        elif outcome == "skipped":
            self._counts["skipped"] += 1
            place = entry["longrepr"]
            reason = place[2] if isinstance(place, list) else str(place)
            self._skips[reason.removeprefix("Skipped: ")] += 1
        elif kind == "TestReport" and entry["when"] == "call":
            self._counts["passed"] += 1
