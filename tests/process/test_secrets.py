"""What processes of a worker show to everybody on the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.process.tools import Diary, Flag, StartWorker, in_state
from tests.workload import jobs

pytestmark = pytest.mark.process


@pytest.mark.fault("S23")
def test_command_lines_hold_no_arguments_and_no_credentials(
    worker: StartWorker, diary: Diary, flag: Flag
) -> None:
    marker = "hunter2-in-the-arguments"
    job = jobs.hold.enqueue(diary.path, flag.path + marker)
    runner = worker(MAIL_PASSWORD="hunter2-in-the-environment")
    diary.wait("started")
    shown = [
        Path(f"/proc/{pid}/{name}").read_bytes().decode(errors="replace")
        for pid in (runner.pid, *runner.below())
        for name in ("cmdline", "comm")
    ]
    assert len(shown) >= 8, "the runner, the fork_server, a monitor, an executor"
    assert [text for text in shown if "hunter2" in text or "://" in text] == []
    Path(flag.path + marker).touch()
    in_state(job, "completed")
    assert "hunter2" not in runner.stdout + runner.stderr
