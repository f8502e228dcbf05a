"""``make test``: the suite on SQLite, and on PostgreSQL and MariaDB where there are servers.

``OJS_TEST_PG_URL`` and ``OJS_TEST_MARIADB_URL`` name servers and an account that may create
databases; without them the usual local ones are tried. ``OJS_REQUIRE=pg,mariadb`` turns a skip into
a failure. ``--quick`` runs the fast tests on SQLite only, ``--long`` the long ones too. The last
lines are the sums over all databases: faults injected and invariants checked, tests, and what was
skipped and why.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tests.faults.tally import add_up, line

ROOT = Path(__file__).resolve().parent.parent
SERVERS = {
    "pg": (
        "PostgreSQL",
        "OJS_TEST_PG_URL",
        ("postgres://root@127.0.0.1:5432/postgres", "postgres://postgres@127.0.0.1:5432/postgres"),
    ),
    "mariadb": ("MariaDB", "OJS_TEST_MARIADB_URL", ("mysql://root@127.0.0.1:3306/test",)),
}
TOOLS = {
    "chromium": ("chromium", "chromium-browser", "google-chrome"),
    "node": ("node", "nodejs"),
    "pgbouncer": ("pgbouncer",),
}
PURE = ("tests/domain", "tests/architecture")
SEARCHING = ("tests/races", "tests/model")
"""What plays many cases: not among the fast tests."""
PARTS = {"": ("tests",), " over HTTP": ("tests/http",), " with workers": ("tests/process",)}
"""What is run by itself: the last two mostly wait, for deadlines and for each other."""
ONCE = {"clusters of our own": ("tests/clusters",)}
"""What starts the databases that it needs by itself."""
AT_ONCE = 3
NO_TESTS = 5
COUNTS = re.compile(r"(\d+) (passed|failed|error|skipped)")
SUMMARY = re.compile(r"\d+ \w+.* in \d[\d.]*s\b")
SKIP = re.compile(r"^SKIPPED \[(\d+)\] (\S+?)(?::\d+)?: (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Outcome:
    """What one pytest process said."""

    code: int
    text: str

    @property
    def good(self) -> bool:
        """Nothing failed. A part without any test that was asked for is no failure."""
        return self.code in (0, NO_TESTS)

    @property
    def counts(self) -> Counter[str]:
        """Tests by outcome. A run that failed without saying which test did counts as one failure."""
        summary = next((x for x in reversed(self.text.splitlines()) if SUMMARY.search(x)), "")
        counts: Counter[str] = Counter()
        for number, word in COUNTS.findall(summary):
            counts["failed" if word == "error" else word] += int(number)
        if not self.good and not counts["failed"]:
            counts["failed"] = 1
        return counts

    @property
    def skips(self) -> Counter[str]:
        """How many tests skipped themselves, by reason."""
        skips: Counter[str] = Counter()
        for number, _, reason in SKIP.findall(self.text):
            skips[reason] += int(number)
        return skips


@dataclass(frozen=True)
class Run:
    """One pytest process on one database."""

    name: str
    url: str
    arguments: tuple[str, ...]

    def __call__(self, tallies: Path) -> Outcome:
        """Run it to its end; it leaves its counts of faults in a folder."""
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-rfEs", *self.arguments],
            cwd=ROOT,
            env={
                **os.environ,
                "DATABASE_URL": self.url,
                "PYTHONUNBUFFERED": "1",
                "OJS_TEST_TALLIES": str(tallies),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        return Outcome(done.returncode, done.stdout)


def with_name(url: str, name: str) -> str:
    """Another database on the same server, or for SQLite in the same folder."""
    place, mark, query = url.partition("?")
    if urlsplit(place).path:
        place = place.rpartition("/")[0]
    return f"{place}/{name}{mark}{query}"


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


def plan(options: argparse.Namespace, scratch: Path) -> tuple[list[Run], dict[str, str]]:
    """The runs, the longest first, and why a database is left out."""
    only = tuple(options.only)
    # A file, so that the processes that tests start can use it too.
    left_out = SEARCHING if options.quick else ()
    databases: list[tuple[str, str, tuple[str, ...]]] = [
        ("SQLite", f"sqlite:///{scratch}/any", left_out)
    ]
    skipped: dict[str, str] = {}
    for key, (name, variable, guesses) in {} if options.quick else SERVERS.items():
        url, reason = server(variable, guesses)
        if url is None:
            skipped[key] = reason
        else:
            databases.append((name, url, PURE))
    apart = {name: paths for name, paths in (PARTS | ONCE).items() if name}
    elsewhere = tuple(f"--ignore={path}" for paths in apart.values() for path in paths)
    whole = not (options.quick or only)
    parts = {**PARTS, "": (*PARTS[""], *elsewhere)} if whole else {"": only}
    runs: list[Run] = []
    for name, paths in ONCE.items() if whole else ():
        marks = () if options.long else ("-m", "not long")
        runs.append(Run(name, f"sqlite:///{scratch}/{len(runs)}", (*marks, *paths)))
    for name, url, left_out in databases:
        for part, paths in parts.items():
            ignore = () if only else tuple(f"--ignore={path}" for path in left_out)
            own = with_name(url, f"ojs_{os.getpid()}_{len(runs)}")
            excluded = [] if options.long else ["long"]
            if options.quick:
                excluded.append("process")
            if name != "SQLite" and not options.long:
                excluded.append("one_database")
            marks = ("-m", " and ".join(f"not {mark}" for mark in excluded)) if excluded else ()
            runs.append(Run(name + part, own, (*marks, *ignore, *paths)))
    return runs, skipped


def missing_tools(required: list[str]) -> dict[str, str]:
    """The required programs that are not installed."""
    return {
        key: f"{names[0]} is not installed"
        for key, names in TOOLS.items()
        if key in required and not any(shutil.which(name) for name in names)
    }


def execute(runs: list[Run], tallies: Path) -> tuple[bool, Counter[str], list[str]]:
    """Run them, a few at a time; show the output of each when it ends."""
    good, totals, skips = True, Counter[str](), []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        futures = {pool.submit(run, tallies): run for run in runs}
        for future in as_completed(futures):
            run, outcome = futures[future], future.result()
            print(f"\n===== {run.name}: exit {outcome.code} =====\n{outcome.text}", flush=True)
            good &= outcome.good
            totals += outcome.counts
            skips += [f"{run.name}: {n} x {reason}" for reason, n in outcome.skips.items()]
    return good, totals, skips


def main(arguments: list[str] | None = None) -> int:
    """Plan the runs, execute them, and sum them up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fast tests, on SQLite only")
    parser.add_argument("--long", action="store_true", help="the long tests too")
    parser.add_argument("only", nargs="*", help="paths or, after --, pytest options")
    options = parser.parse_args(arguments)
    required = [item.strip() for item in os.environ.get("OJS_REQUIRE", "").split(",")]
    required = [item for item in required if item]
    known = {**SERVERS, **TOOLS}
    if unknown := sorted(set(required) - set(known)):
        print(f"OJS_REQUIRE: unknown {', '.join(unknown)}; known are {', '.join(known)}")
        return 2
    if options.long:
        os.environ.setdefault("FUZZ_TIMES", "3")
    with tempfile.TemporaryDirectory(prefix="ojs-test-") as scratch:
        runs, skipped = plan(options, Path(scratch))
        tallies = Path(scratch) / "tallies"
        tallies.mkdir()
        good, totals, skips = execute(runs, tallies)
        injected = add_up(tallies)
    print(line(*injected))
    # ``--quick`` is about one database only.
    absent = {key: why for key, why in skipped.items() if key in required}
    absent |= {} if options.quick else missing_tools(required)
    if absent:
        print("required but missing: " + "; ".join(f"{key} ({why})" for key, why in absent.items()))
    print(f"{totals['passed']} passed, {totals['failed']} failed, {totals['skipped']} skipped")
    reasons = [f"{key} ({why})" for key, why in skipped.items()] + skips
    print(f"skipped: {'; '.join(reasons) or 'nothing'}")
    return 0 if good and totals["passed"] and not absent else 1


if __name__ == "__main__":
    sys.exit(main())
