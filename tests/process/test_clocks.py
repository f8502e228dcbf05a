"""The clock of a worker's host is wrong: the database's is what counts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from django.db import connection

from django_ojs import api, clock
from tests.process.tools import Diary, Flag, Start, attempts, failed, in_state, on_time
from tests.support import not_none
from tests.workload import jobs

pytestmark = [pytest.mark.every_database, pytest.mark.process]
# Only what tells the time of day; sleeping and the steady clocks stay as they are.
SHIM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
int clock_gettime(clockid_t which, struct timespec *told) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *)) dlsym(RTLD_NEXT, "clock_gettime");
    int answer = real(which, told);
    const char *shift = getenv("CLOCK_SHIFT");
    if (!answer && shift && which == CLOCK_REALTIME) told->tv_sec += atol(shift);
    return answer;
}
"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that shifts the time of day by ``CLOCK_SHIFT`` seconds."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("shim")
    (folder / "shim.c").write_text(SHIM)
    library = folder / "shim.so"
    command = [compiler, "-shared", "-fPIC", "-o", str(library), str(folder / "shim.c"), "-ldl"]
    subprocess.run(command, check=True)
    told = subprocess.run(
        [sys.executable, "-c", "import time; print(time.time())"],
        env={**os.environ, "LD_PRELOAD": str(library), "CLOCK_SHIFT": "3600"},
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    assert 3590 < float(told) - time.time() < 3630
    return library


@pytest.mark.fault("F99", "F101")
@pytest.mark.parametrize("offset", [3600, -3600])
def test_a_worker_whose_clock_is_wrong(
    shim: Path, manage: Start, diary: Diary, flag: Flag, offset: int
) -> None:
    if connection.vendor == "sqlite":
        pytest.skip("a SQLite file and its workers are on one host and have one clock")
    held, quick = jobs.hold.enqueue(diary.path, flag.path), jobs.echo.enqueue(1)
    looping = jobs.loop.enqueue(diary.path)
    worker = manage("runworker", "--concurrency=3", LD_PRELOAD=str(shim), CLOCK_SHIFT=str(offset))
    diary.wait("started", 2)
    manage("reap_timeouts", "--loop")  # with the right time
    now = clock.now("default")
    assert abs((now - not_none(api.get(held).started_at)).total_seconds()) < 60
    finished_at = not_none(in_state(quick, "completed").finished_at)
    assert abs((now - finished_at).total_seconds()) < 60
    assert failed(looping)["timeout_kind"] == "execution"
    (attempt,) = attempts(looping)
    assert on_time(attempt, 4)
    flag.set()
    assert in_state(held, "completed").attempt == 1
    assert worker.running
