"""What coroutines that share a process gain: many that wait, in one worker.

::

    python -m benchmarks.coroutines [--jobs N] [--slots N]

enqueues jobs that sleep for one second on the database of ``DATABASE_URL``, whose jobs are deleted,
and lets one worker with ``--async-slots`` drain them. The goal is 25 s for 1,000 jobs in 50 slots,
counted from the worker's start to its end.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GOAL_SECONDS = 25.0
SETTINGS = "benchmarks.waiting_settings"
_FILL = (
    "from django_ojs import enqueue_many; from django_ojs.models import Job; "
    "Job.objects.all().delete(); enqueue_many('bench.second', [[]] * {jobs})"
)
_COUNT = (
    "from django_ojs.models import Attempt; rows = Attempt.objects.filter(job__type='bench.second'); "
    "print(rows.filter(outcome='completed').values('job').distinct().count(), rows.count())"
)


def main() -> int:
    """Measure and print; 1 if a job was lost or ran twice."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coroutines", description=__doc__)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--slots", type=int, default=50)
    given = parser.parse_args()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "DJANGO_SETTINGS_MODULE": SETTINGS}
    manage = [sys.executable, "-m", "django"]
    subprocess.run([*manage, "migrate", "-v0"], env=environment, check=True)
    shell = [*manage, "shell", "-v0", "-c"]
    subprocess.run([*shell, _FILL.format(jobs=given.jobs)], env=environment, check=True)
    words = ["runworker", "--drain", "--concurrency=1", f"--async-slots={given.slots}", "-v0"]
    began = time.monotonic()
    subprocess.run([*manage, *words], env=environment, check=True, stdout=subprocess.DEVNULL)
    took = time.monotonic() - began
    said = subprocess.check_output([*shell, _COUNT], env=environment, text=True)
    completed, attempts = (int(word) for word in said.split())
    goal = GOAL_SECONDS * given.jobs / 1000 * 50 / given.slots
    found = {
        "jobs": given.jobs,
        "slots": given.slots,
        "seconds": round(took, 2),
        "completed": completed,
        "attempts": attempts,
        "met": took < goal,
    }
    print(json.dumps(found, indent=1))
    return 0 if completed == attempts == given.jobs else 1


if __name__ == "__main__":
    sys.exit(main())
