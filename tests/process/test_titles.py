"""Process titles say who is who."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.process.tools import Diary, Flag, StartWorker, in_state
from tests.support import poll
from tests.workload import jobs

pytest.importorskip("setproctitle", reason="setproctitle is not installed")
pytestmark = pytest.mark.process


def title(pid: int) -> str:
    """What ``ps`` shows for a process."""
    return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ").decode()


def test_each_process_of_a_worker_has_its_title(worker: StartWorker, diary: Diary, flag: Flag) -> None:
    held = jobs.hold.enqueue(diary.path, flag.path)
    runner = worker("--concurrency=1", "--worker-id=box-7")
    executor = int(diary.wait("started")[1])
    poll(lambda: title(executor) == f"django-ojs: executor: {held.type} {held.id}")
    titles = {title(pid) for pid in runner.below() if pid != executor}
    assert titles == {"django-ojs: fork server", f"django-ojs: monitor of {executor}"}
    assert title(runner.pid) == "django-ojs: worker box-7"
    flag.set()
    in_state(held, "completed")
    poll(lambda: title(executor) == "django-ojs: executor, idle")
