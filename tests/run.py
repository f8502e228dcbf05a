"""``make test``: the suite on SQLite, and on PostgreSQL and MariaDB where there are servers.

``OJS_TEST_PG_URL`` and ``OJS_TEST_MARIADB_URL`` name servers and an account that may create
databases; without them the usual local ones are tried. ``OJS_REQUIRE=pg,mariadb`` turns a skip into
a failure. ``--quick`` runs the fast tests on SQLite only, ``--long`` the long ones too.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

ROOT = Path(__file__).resolve().parent.parent
KNOWN = ("pg", "mariadb", "chromium", "node", "pgbouncer")
PURE = ("tests/domain", "tests/architecture")
COUNTS = re.compile(r"(\d+) (passed|failed|error|errors|skipped)")


@dataclass
class Run:
    """One pytest process on one database."""

    name: str
    url: str
    arguments: list[str]
    output: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start pytest."""
        environment = {**os.environ, "DATABASE_URL": self.url, "PYTHONUNBUFFERED": "1"}
        with self.output.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "pytest", "-q", *self.arguments],
                cwd=ROOT,
                env=environment,
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    def finish(self) -> tuple[int, dict[str, int]]:
        """Wait, show the output, count."""
        assert self.process is not None
        code = self.process.wait()
        text = self.output.read_text(errors="replace")
        print(f"\n===== {self.name}: exit {code} =====\n{text}", flush=True)
        counts: dict[str, int] = {}
        for line in reversed(text.splitlines()):
            found = COUNTS.findall(line)
            if found and " in " in line:
                for number, word in found:
                    key = "failed" if word.startswith("error") else word
                    counts[key] = counts.get(key, 0) + int(number)
                break
        return code, counts


def with_name(url: str, name: str) -> str:
    """The same server, another database."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc, f"/{name}", parts.query, ""))


def usable(url: str) -> str | None:
    """Why the server at ``url`` cannot be used, ``None`` if it can."""
    parts = urlsplit(url)
    try:
        if parts.scheme.startswith("postgres"):
            import psycopg

            psycopg.connect(url, connect_timeout=3).close()
        else:
            import pymysql

            pymysql.connect(
                host=parts.hostname or "127.0.0.1",
                port=parts.port or 3306,
                user=parts.username or "",
                password=parts.password or "",
                connect_timeout=3,
            ).close()
    except Exception as error:
        return (str(error).strip() or type(error).__name__).splitlines()[0]
    return None


def server(variable: str, guesses: tuple[str, ...]) -> tuple[str | None, str]:
    """The URL of a usable server, or why there is none."""
    named = os.environ.get(variable)
    if named:
        reason = usable(named)
        return (None, f"{variable}: {reason}") if reason else (named, "")
    for guess in guesses:
        if usable(guess) is None:
            return guess, ""
    return None, f"{variable} is not set and no local server answers"


def main() -> int:
    """Plan the runs, two at a time, and sum them up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("only", nargs="*", help="paths or pytest options")
    options = parser.parse_args()
    required = [item for item in os.environ.get("OJS_REQUIRE", "").split(",") if item]
    unknown = sorted(set(required) - set(KNOWN))
    if unknown:
        print(f"OJS_REQUIRE: unknown {', '.join(unknown)}; known are {', '.join(KNOWN)}")
        return 2
    marks = [] if options.long else ["-m", "not long"]
    skipped: dict[str, str] = {}
    scratch = Path(tempfile.mkdtemp(prefix="ojs-test-"))
    # Stored by Django under test_<name>; a file, so that other processes can use it too.
    sqlite = f"sqlite:///{scratch}/ojs.sqlite3"
    if options.quick:
        marks = ["-m", "not long and not process"]
    runs = [Run("SQLite", sqlite, [*marks, *options.only], scratch / "sqlite.txt")]
    if not options.quick:
        ignore = [] if options.only else [f"--ignore={path}" for path in PURE]
        for key, name, variable, guesses in (
            (
                "pg",
                "PostgreSQL",
                "OJS_TEST_PG_URL",
                (
                    "postgres://root@127.0.0.1:5432/postgres",
                    "postgres://postgres@127.0.0.1:5432/postgres",
                ),
            ),
            ("mariadb", "MariaDB", "OJS_TEST_MARIADB_URL", ("mysql://root@127.0.0.1:3306/test",)),
        ):
            url, reason = server(variable, guesses)
            if url is None:
                skipped[key] = reason
                continue
            own = with_name(url, f"ojs_{os.getpid()}")
            runs.append(Run(name, own, [*marks, *ignore, *options.only], scratch / f"{key}.txt"))
    code = 0
    totals = {"passed": 0, "failed": 0, "skipped": 0}
    waiting, running = list(runs), []
    while waiting or running:
        while waiting and len(running) < 2:
            run = waiting.pop(0)
            run.start()
            running.append(run)
        done = running.pop(0)
        status, counts = done.finish()
        code = code or status
        for key, number in counts.items():
            totals[key] = totals.get(key, 0) + number
    missing = [f"{key} ({skipped[key]})" for key in required if key in skipped]
    if missing:
        print(f"required but missing: {'; '.join(missing)}")
        code = code or 1
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**totals))
    shown = "; ".join(f"{key}: {reason}" for key, reason in skipped.items())
    ran = ", ".join(run.name for run in runs)
    print(f"ran on {ran}; databases skipped: {shown or 'none'}")
    return code


if __name__ == "__main__":
    sys.exit(main())
