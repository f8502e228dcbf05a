"""``make soak``: a fleet under faults for a while, then a judgement; exit 1 unless nothing is wrong.

Workers, HTTP workers behind a real server, reapers and an enqueuer run on a database of their own,
while processes are killed and suspended, sessions ended and the database restarted, on a schedule
that comes from a seed. At the end everything must have drained, and a ledger outside the database
must agree with it: nothing lost, nothing settled twice, no report of a lost lease honoured.

In namespaces of its own where that is permitted, so that no wrong signal can reach anything else.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import secrets
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

INSIDE = "OJS_SOAK_INSIDE"
NAMESPACES = ("--pid", "--fork", "--kill-child", "--mount-proc", "--net", "--mount", "--ipc")


def main() -> int:
    """Arguments, a folder, a database; the exit code."""
    chosen = _arguments()
    if chosen.namespace and INSIDE not in os.environ:
        _enter_namespaces()
    alone = INSIDE in os.environ
    if alone:
        _loopback_up()
    run = secrets.token_hex(8)
    folder = Path(tempfile.mkdtemp(prefix="ojs-soak-"))
    folder.chmod(0o755)
    os.environ.update(
        DJANGO_SETTINGS_MODULE="tests.soak.settings",
        OJS_SOAK_LEDGER=str(folder / "ledger"),
        OJS_SOAK_RUN=run,
        OJS_TEST_MUTANT=chosen.mutant,
        EXAMPLE_VAR=str(folder / "var"),
    )
    print(
        f"soak: {chosen.db}, {chosen.seconds:g} s, seed {chosen.seed}"
        + (f", mutant {chosen.mutant}" if chosen.mutant else "")
        + (", in namespaces of its own" if alone else ", without namespaces: recorded ids only"),
        flush=True,
    )
    from tests.soak import remains, report, servers
    from tests.soak.running import Soak

    settings = {name: getattr(chosen, name) for name in ("db", "seed", "mutant")}
    settings["seconds"] = f"{chosen.seconds:g}"
    kept = True
    database = None
    try:
        database = servers.KINDS[chosen.db](folder)
        os.environ["DATABASE_URL"] = database.url
        database.start()
        soak = Soak(chosen, folder, database, run=run, alone=alone)
        verdict = soak.run()
        kept = chosen.keep or not verdict.passed
    except servers.Missing as missing:
        print(f"soak: {missing}", file=sys.stderr)
        return 2
    finally:
        if not alone:
            remains.end_leftovers(run)
        if database is not None:
            database.stop()
        if kept:
            print(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    print(report.table(verdict, settings), flush=True)
    if chosen.json:
        chosen.json.write_text(json.dumps(report.record(verdict, settings), indent=2) + "\n")
    return 0 if verdict.passed else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=90, help="how long there are jobs and faults")
    parser.add_argument("--db", choices=("pg", "mariadb", "sqlite"), default="pg")
    parser.add_argument("--seed", type=int, help="of the jobs and faults; drawn if not given")
    parser.add_argument(
        "--mutant", default="", help="a defect of tests/faults/mutants.py to plant, such as no-fence"
    )
    parser.add_argument("--workers", type=int, default=5, help="runworker processes")
    parser.add_argument("--slots", type=int, default=3, help="executors of each")
    parser.add_argument(
        "--rate", type=float, default=40, help="jobs a second, unless enough are waiting"
    )
    parser.add_argument("--json", type=Path, help="write the figures there too")
    parser.add_argument("--keep", action="store_true", help="the ledger, the rows and what was said")
    parser.add_argument("--no-namespace", dest="namespace", action="store_false")
    chosen = parser.parse_args()
    if chosen.seed is None:
        chosen.seed = secrets.randbelow(1_000_000)
    return chosen


def _enter_namespaces() -> None:
    """Start again inside; go on here where that is not permitted."""
    unshare = shutil.which("unshare")
    if unshare is None or sys.platform != "linux":
        return
    inside = [unshare, *NAMESPACES, "--"]
    if subprocess.run([*inside, "true"], capture_output=True, check=False).returncode:
        return
    os.environ[INSIDE] = "1"
    sys.stdout.flush()
    os.execv(unshare, [*inside, sys.executable, "-m", "tests.soak", *sys.argv[1:]])


def _loopback_up() -> None:
    """A new network namespace begins with its loopback down."""
    request, up_and_running = 0x8914, 0x41
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, request, struct.pack("16sh22x", b"lo", up_and_running))


if __name__ == "__main__":
    sys.exit(main())
