"""What was written to the ledger is there, whole, whatever became of the writer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.soak import ledger
from tests.support import ROOT, poll

pytestmark = pytest.mark.tool

MOST = 20_000
"""What a writer writes if nobody kills it before."""
WRITER = f"""
import time
from tests.soak import ledger
for number in range({MOST}):
    ledger.write("n", number=number, padding="x" * 500)
time.sleep(600)
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


def test_half_a_line_of_a_killed_writer_harms_no_other(path: Path) -> None:
    ledger.write("one")
    whole = path.read_bytes()
    for cut in range(1, len(whole)):
        path.write_bytes(whole)
        reader = ledger.Reader(path)
        with path.open("ab") as file:
            file.write(whole[:cut])
        ledger.write("two")
        assert [entry.event for entry in reader if entry.event != "one"] == ["two"], cut


def test_killed_writers_leave_whole_lines_only(path: Path) -> None:
    writers: list[subprocess.Popen[bytes]] = []
    reader, entries = ledger.Reader(path), list[ledger.Entry]()

    def all_write() -> bool:
        entries.extend(reader)
        return {entry.pid for entry in entries} == {writer.pid for writer in writers}

    try:
        writers.extend(subprocess.Popen([sys.executable, "-c", WRITER], cwd=ROOT) for _ in range(3))
        # A writer that ended by itself is a failure, which the poll would only wait for.
        poll(
            lambda: all_write() or any(writer.poll() is not None for writer in writers), 120, every=0.1
        )
        assert all(writer.poll() is None for writer in writers)
    finally:
        for writer in writers:
            writer.kill()
        for writer in writers:
            writer.wait(60)
    entries.extend(reader)
    for writer in writers:
        numbers = [entry.data["number"] for entry in entries if entry.pid == writer.pid]
        assert numbers == list(range(len(numbers))), "all that it wrote, in its order"
