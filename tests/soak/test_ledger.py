"""What was written to the ledger is there, whole, whatever became of the writer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.soak import ledger
from tests.support import ROOT, poll

pytestmark = pytest.mark.tool

WRITER = """
import itertools
from tests.soak import ledger
for number in itertools.count():
    ledger.write("n", number=number, padding="x" * 500)
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the ledger of the test is."""
    found = tmp_path / "ledger"
    monkeypatch.setenv(ledger.VARIABLE, str(found))
    return found


def test_entries_come_back_in_order_and_once(path: Path) -> None:
    reader = ledger.Reader(path)
    assert list(reader) == []
    ledger.write("one", job="a")
    ledger.write("two")
    first = list(reader)
    assert [(entry.event, entry.data) for entry in first] == [("one", {"job": "a"}), ("two", {})]
    assert first[0].pid == os.getpid()
    assert first[0].ns <= first[1].ns <= ledger.now_ns()
    ledger.write("three")
    assert [entry.event for entry in reader] == ["three"]
    assert len(list(ledger.Reader(path))) == 3


def test_half_a_line_is_not_read_yet(path: Path) -> None:
    ledger.write("one")
    reader = ledger.Reader(path)
    with path.open("ab") as file:
        file.write(b'[1, 2, "tw')
        file.flush()
        assert [entry.event for entry in reader] == ["one"]
        file.write(b'o", {}]\n')
    assert list(reader) == [ledger.Entry(1, 2, "two", {})]


def test_killed_writers_leave_whole_lines_only(path: Path) -> None:
    writers = [subprocess.Popen([sys.executable, "-c", WRITER], cwd=ROOT) for _ in range(3)]
    try:
        poll(lambda: len({entry.pid for entry in ledger.Reader(path)}) == 3, 30)
    finally:
        for writer in writers:
            os.kill(writer.pid, signal.SIGKILL)
            writer.wait(10)
    assert path.read_bytes().endswith(b"\n")
    entries = list(ledger.Reader(path))
    for writer in writers:
        numbers = [entry.data["number"] for entry in entries if entry.pid == writer.pid]
        assert numbers == list(range(len(numbers))), "all that it wrote, in its order"
