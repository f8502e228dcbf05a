"""``make failover``: take the server that is written to away, under load, and judge what came of it.

Servers of our own, with a standby or in a Galera cluster, are killed, suspended and cut off. Exit 1
unless nothing acknowledged was lost, nothing ran or was settled twice, nothing was settled on the old
primary, no attempt of a living job was lost, and jobs were claimed again within ten seconds.
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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

AT_ONCE = 2
LONGEST = 240
"""Seconds after which a case is broken off."""


def main(arguments: list[str] | None = None) -> int:
    """Play the cases, a few at a time, each in a process of its own; the exit code."""
    chosen = _arguments(arguments)
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.lab.settings"
    os.environ["DATABASE_URL"] = "sqlite:////nonexistent/failover"  # each process is told its own
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    import django

    django.setup()
    from tests.failover import cases, report

    wanted = [word.strip().lower() for word in (chosen.only or "").split(";")]
    known = cases.every()
    some = [case for case in known if case.name.lower() in wanted]
    some = some or [case for case in known if any(word in case.name.lower() for word in wanted)]
    some = [case for case in some if case.brief or not chosen.brief]
    if chosen.list:
        print("\n".join(case.name for case in some))
        return 0
    if chosen.play is not None:
        (case,) = [case for case in cases.every() if case.name == chosen.play]
        signal.alarm(LONGEST)
        signal.signal(signal.SIGALRM, _too_long)
        with tempfile.TemporaryDirectory(prefix="ojs-failover-", ignore_cleanup_errors=True) as made:
            Path(made).chmod(0o755)
            figures = case.play(Path(made), chosen.template)
        chosen.json.write_text(json.dumps(asdict(figures)))
        return 0
    began = time.monotonic()
    results = _all(some, chosen.at_once)
    print(f"\n{report.table(results)}\n{time.monotonic() - began:.0f} s", flush=True)
    if chosen.json:
        chosen.json.write_text(json.dumps([asdict(one) for one in results], indent=1) + "\n")
    return 0 if results and all(one.good for one in results) else 1


def _arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make failover", description=__doc__)
    parser.add_argument("--only", help="cases whose name contains this, or one of these, by semicolons")
    parser.add_argument("--brief", action="store_true", help="a few of them, as a test")
    parser.add_argument("--list", action="store_true", help="name the cases; play none")
    parser.add_argument("--at-once", type=int, default=AT_ONCE, help="how many cases at a time")
    parser.add_argument("--json", type=Path, help="write the figures there too")
    parser.add_argument("--play", help=argparse.SUPPRESS)
    parser.add_argument("--template", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args(given)


def _too_long(*_: object) -> None:
    raise TimeoutError(f"not over after {LONGEST} s")


def _all(some: list, at_once: int) -> list:  # type: ignore[type-arg]
    """The results, in the order of the cases."""
    from tests.failover import templates
    from tests.failover.report import Result

    with tempfile.TemporaryDirectory(prefix="ojs-failover-", ignore_cleanup_errors=True) as made:
        folder = Path(made)
        folder.chmod(0o755)
        ready = templates.make(folder, {case.engine for case in some if not case.missing()})
        running: set[subprocess.Popen[str]] = set()

        def play(number: int) -> Result:
            case = some[number]
            if reason := case.missing():
                return Result(case.name, skipped=reason)
            record, began = folder / f"{number}.json", time.monotonic()
            child = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.failover", f"--play={case.name}"),
                    *(f"--template={ready[case.engine]}", f"--json={record}"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            running.add(child)
            said, _ = child.communicate()
            running.discard(child)
            result = Result(case.name, lossy=case.lossy, seconds=time.monotonic() - began)
            if record.exists():
                result.take(json.loads(record.read_text()))
            else:
                result.figures.wrong.append("it was not played to its end")
            print(f"{result.line()}", flush=True)
            if not result.good:
                print(said[-30000:], flush=True)
            return result

        with ThreadPoolExecutor(at_once) as pool:
            try:
                return list(pool.map(play, range(len(some))))
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
                for child in list(running):
                    child.terminate()


if __name__ == "__main__":
    sys.exit(main())
