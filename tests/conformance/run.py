"""``make conformance``: the Open Job Spec suites that this version claims, normally and strictly.

Without ``--url`` it starts the example project on a SQLite file of its own (``DATABASE_URL`` names
another database), and stops it afterwards. With ``--bare`` the project has no ``OJS`` setting at all,
and the token is one of ``ojs token create``: levels 0 and 1.

Other arguments are handed to ``run_suites.py``; ``--folder`` replaces the folders that are claimed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CLAIMED = (
    "level-0-core",
    "level-1-reliable",
    "level-2-scheduled/cron",
    "level-2-scheduled/delay",
    "level-2-scheduled/ttl",
    "level-3-workflows",
    "level-4-advanced/priority",
    "level-4-advanced/bulk",
    "level-4-advanced/queue-ops",
    "level-4-advanced/rate-limit",
    "level-4-advanced/unique",
    "ext-progress",
    "ext-durable-execution",
    "ext-graceful-shutdown",
    "ext-job-versioning",
    "ext-schema-registry",
    "ext-serverless",
    "ext-ai-agents",
    "ext-observability",
)
SCOPES = ("produce", "work", "inspect", "administer", "metrics")
BARE_PROJECT = {"DJANGO_SETTINGS_MODULE": "tests.conformance.bare", "DJANGO_DEBUG": "1"}
BARE = ("level-0-core", "level-1-reliable")


def main() -> int:
    """Run both readings; 0 when all passed in both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suites", required=True)
    parser.add_argument("--url")
    parser.add_argument("--token", default="dev")
    parser.add_argument("--bare", action="store_true")
    parser.add_argument("--folder", action="append")
    options, more = parser.parse_known_args()
    if not Path(options.suites).is_dir():
        print(f"{options.suites} is no folder", file=sys.stderr)
        return 2
    if options.bare:
        options.folder = options.folder or list(BARE)
    worst = 0
    for reading in ([], ["--strict"]):
        # Each case has queues of its own, and a client may name a hundred new ones in an hour.
        with nullcontext(options.url) if options.url else _served(options) as url:
            worst = max(worst, _run(options, url, [*reading, *more]))
    return worst


def _run(options: argparse.Namespace, url: str, more: list[str]) -> int:
    base = [
        sys.executable,
        str(ROOT / "tests/conformance/run_suites.py"),
        *("--url", url, "--suites", options.suites, "--isolate", "--jobs", "8"),
        *("--header", f"Authorization: Bearer {options.token}"),
        *more,
    ]
    folders = [word for name in options.folder or CLAIMED for word in ("--folder", name)]
    print(f"\n== {' '.join(more) or 'normally'}", flush=True)
    return subprocess.run([*base, *folders], check=False).returncode


@contextmanager
def _served(options: argparse.Namespace) -> Iterator[str]:
    """The URL of the example project, for as long as the block lasts.

    A bare one gets a token of its own, which becomes ``options.token``.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="ojs-conformance-") as scratch:
        environment = {
            "DATABASE_URL": f"sqlite:///{scratch}/db.sqlite3",
            **os.environ,
            "EXAMPLE_VAR": scratch,
            **(BARE_PROJECT if options.bare else {"OJS_DEV_TOKEN": "dev"}),
        }
        manage = [sys.executable, "manage.py"]
        subprocess.run([*manage, "migrate", "--verbosity", "0"], cwd=ROOT, env=environment, check=True)
        _delete_schedules(manage, environment)
        if options.bare:
            options.token = _token(manage, environment)
        process = subprocess.Popen([*manage, "serve", "--port", str(port)], cwd=ROOT, env=environment)
        url = f"http://127.0.0.1:{port}"
        try:
            _await(f"{url}/ready", process)
            yield url
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.wait(30)


def _delete_schedules(manage: list[str], environment: dict[str, str]) -> None:
    """Cases expect the names that they register to be new, and do not delete all of them."""
    command = [*manage, "ojs", "cron"]
    run = partial(subprocess.run, cwd=ROOT, env=environment, check=True, capture_output=True, text=True)
    for found in json.loads(run([*command, "list", "--format", "json"]).stdout):
        if found["source"] == "http":
            run([*command, "delete", found["name"]])


def _token(manage: list[str], environment: dict[str, str]) -> str:
    scopes = [word for scope in SCOPES for word in ("--scope", scope)]
    command = [*manage, "ojs", "token", "create", "suites", *scopes, "--format", "json"]
    made = subprocess.run(
        command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True
    )
    return str(json.loads(made.stdout)["token"])


def _await(url: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 30
    while time.monotonic() < until and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise SystemExit("the example project did not start")


if __name__ == "__main__":
    sys.exit(main())
