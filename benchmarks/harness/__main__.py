"""One workload of one system, in the system's own environment; the result as a line of JSON.

The benchmark sets the environment (``harness.config``) and calls ``python -m benchmarks.harness
WORKLOAD [key=json ...]``; ``setup`` and ``teardown`` make and drop the database.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from typing import Any

from benchmarks.harness import config
from benchmarks.harness.endurance import day
from benchmarks.harness.failures import held_snapshot, hung_handler, killed_worker
from benchmarks.harness.workloads import COMMON
from benchmarks.systems import adapter_of

RESULT = "RESULT "


def run(workload: str, options: dict[str, Any]) -> dict[str, Any]:
    """The figures of one workload."""
    adapter = adapter_of(config.SYSTEM)
    os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.harness.settings"
    if workload == "teardown":
        adapter.drop_database()
        return {}
    if workload == "setup":
        adapter.create_database()
        adapter.install()
        return {}
    import django

    django.setup()
    rare = {work.__name__: work for work in (killed_worker, hung_handler, held_snapshot, day)}
    work = {**COMMON, **rare, **adapter.own}[workload]
    try:
        if not adapter.keeps_rows:
            adapter.reset()
        return work(adapter, **options)
    finally:
        adapter.workers.stop(1)


def main() -> None:
    """Read the command line, print the result or the error."""
    # Unwinds, so that the workers are stopped too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    workload, *pairs = sys.argv[1:]
    options = {key: json.loads(value) for key, _, value in (pair.partition("=") for pair in pairs)}
    try:
        result = run(workload, options)
    except Exception as error:
        traceback.print_exc()
        result = {"error": f"{type(error).__name__}: {error}".strip()[:300]}
    print(RESULT + json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
