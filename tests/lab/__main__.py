"""``make faults``: do one harm at a time, on databases of our own, and judge what came of it.

Handlers append to a file what they did; the judge reads that file and the rows with SQL of its own.
Exit 1 unless no living job lost an attempt, no effect came twice, nothing was lost, and no deadline
on a row that nobody held was enforced a second late or more.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.lab import NAMES, report


def main(arguments: list[str] | None = None) -> int:
    """One database in this process, several in a process each; the exit code."""
    chosen = _arguments(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ojs-faults-") as made:
        folder = Path(made)
        lock = chosen.lock or folder / "lock"
        found = _one(chosen, lock) if chosen.db else _all(chosen, folder, lock)
    results = report.restored(found)
    if chosen.json and results:
        chosen.json.write_text(json.dumps(found, indent=1) + "\n")
    if not results:
        print("no case of this name is for this database", file=sys.stderr)
        return 2
    print(f"\n{report.table(results)}\n{time.monotonic() - began:.0f} s", flush=True)
    return 0 if all(result.skipped or result.figures.good for result in results) else 1


def _arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make faults", description=__doc__)
    parser.add_argument("--db", choices=NAMES, help="this database only")
    parser.add_argument("--rounds", type=int, help="of each case; otherwise 2, 5 or 20, as it needs")
    parser.add_argument("--only", help="cases whose name contains this, or one of these, by commas")
    parser.add_argument("--list", action="store_true", help="name the cases; play none")
    parser.add_argument("--json", type=Path, help="write the figures there too")
    parser.add_argument("--brief", action="store_true", help="one round of each, as a test")
    parser.add_argument("--lock", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args(given)
    chosen.rounds = 1 if chosen.brief else chosen.rounds
    if chosen.rounds is not None and chosen.rounds < 1:
        parser.error("--rounds: must be at least 1")
    return chosen


def _one(chosen: argparse.Namespace, lock: Path) -> list[dict[str, object]]:
    """The cases of one database."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.lab.settings"
    os.environ["DATABASE_URL"] = "sqlite:////nonexistent/lab"  # each case says which
    import django

    django.setup()
    from tests.lab import cases, running

    wanted = [word.strip() for word in (chosen.only or "").split(",")]
    some = [case for case in cases.every() if any(word in case.name for word in wanted)]
    if chosen.list:
        print("\n".join(f"{case.rounds:3} x {case.name}" for case in some))
        sys.exit(0)
    return report.record(
        running.run(
            chosen.db,
            some,
            chosen.rounds,
            lock,
            lambda line: print(line, flush=True),
            brief=chosen.brief,
        )
    )


def _all(chosen: argparse.Namespace, folder: Path, lock: Path) -> list[dict[str, object]]:
    """A process for each database, all at once: most of the time is waiting."""
    more = [f"--only={chosen.only}"] if chosen.only else []
    more += [f"--rounds={chosen.rounds}"] if chosen.rounds else []
    more += ["--brief"] if chosen.brief else []
    running = {
        name: subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.lab", f"--db={name}", f"--lock={lock}"),
                *(f"--json={folder / name}", *more),
            ],
            stdin=subprocess.DEVNULL,
        )
        for name in NAMES
    }
    try:
        for child in running.values():
            child.wait()
    finally:
        for child in running.values():
            if child.poll() is None:
                child.terminate()
                child.wait(60)
    # 2: it has no such case.
    if broken := [n for n, c in running.items() if c.returncode != 2 and not (folder / n).exists()]:
        sys.exit(f"the lab itself failed on {', '.join(broken)}")
    files = [folder / name for name in NAMES if (folder / name).exists()]
    found = [row for file in files for row in json.loads(file.read_text())]
    return sorted(found, key=lambda row: str(row["case"]))


if __name__ == "__main__":
    sys.exit(main())
