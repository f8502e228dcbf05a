"""``make test`` and ``make test-all``: the suite in parts, each a pytest process on one database.

``make test`` runs what is quick and needs neither other processes nor real time: everything on
SQLite, and on PostgreSQL and MariaDB what depends on the database. ``--all`` adds the rest: what is
slow, processes, browser, clusters, long tests, and on the servers everything that uses a database.

``OJS_TEST_PG_URL`` and ``OJS_TEST_MARIADB_URL`` name servers and an account that may create
databases; without them the usual local ones are tried. ``OJS_REQUIRE=pg,mariadb`` turns a skip into
a failure. ``--db pg`` leaves the other databases out. Anything else goes to pytest; of paths that are
named so, every test is run, whatever its marks.
"""

from __future__ import annotations

import argparse
import os
import random
import shlex
import shutil
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tests.faults.tally import add_up, line
from tests.part import ROOT, Part

SERVERS = {
    "pg": (
        "PostgreSQL",
        "OJS_TEST_PG_URL",
        ("postgres://root@127.0.0.1:5432/postgres", "postgres://postgres@127.0.0.1:5432/postgres"),
    ),
    "mariadb": ("MariaDB", "OJS_TEST_MARIADB_URL", ("mysql://root@127.0.0.1:3306/test",)),
}
DATABASES = ("sqlite", *SERVERS)
TOOLS = {
    "chromium": ("chromium", "chromium-browser", "google-chrome"),
    "node": ("node", "nodejs"),
    "pgbouncer": ("pgbouncer",),
    "prometheus": ("prometheus",),
    "promtool": ("promtool",),
}
AT_ONCE = 4
PROGRESS_SECONDS = 5.0

SHORT = "not process and not long and not tool"
FAST = f"{SHORT} and not slow"
SLOW = "(process or slow) and not long and not tool"
PURE = ("tests/domain", "tests/architecture", "tests/docs", "tests/soak", "tests/benchmarks")
APART = ("tests/clusters", "tests/browser")
"""What brings servers of its own, or a browser: parts of their own."""


@dataclass(frozen=True)
class Selection:
    """Some of the tests: by marks and by paths. ``seconds`` is about how long they take, ``settings``
    the module of Django's settings, if not that of the others.
    """

    name: str
    seconds: int = 0
    marks: str = ""
    paths: tuple[str, ...] = ("tests",)
    without: tuple[str, ...] = APART
    settings: str = ""

    def arguments(self) -> tuple[str, ...]:
        """For pytest."""
        marks = ("-m", self.marks) if self.marks else ()
        return (*marks, *(f"--ignore={path}" for path in self.without), *self.paths)


_HTTP, _ADMIN, _RACES = ("tests/http",), ("tests/admin",), ("tests/model", "tests/races")
_SERVICES = ("tests/services", "tests/races")
_NO_DATABASE = (*PURE, *APART)
FAST_ON_SQLITE = (
    Selection("HTTP", 33, FAST, _HTTP),
    Selection("admin", 56, FAST, _ADMIN),
    Selection("model and races", 4, FAST, _RACES),
    Selection("the rest", 90, FAST, without=(*_HTTP, *_ADMIN, *_RACES, *APART)),
)
FAST_ON_SERVERS = (
    Selection("services and races", 50, f"every_database and {FAST}", _SERVICES),
    Selection("the rest", 120, f"every_database and {FAST}", without=(*_SERVICES, *_NO_DATABASE)),
)
SLOW_ON_SQLITE = (
    Selection("processes", 900, SLOW),
    Selection("long", 800, "long and not tool"),
    Selection("tools", 700, "tool"),
    Selection("browser", 300, "", ("tests/browser",), ()),
    Selection("clusters of our own", 600, "", ("tests/clusters",), ()),
)
SLOW_ON_SERVERS = (
    Selection("processes", 800, f"every_database and {SLOW}", without=_NO_DATABASE),
    Selection("long", 600, "every_database and long", without=_NO_DATABASE),
    Selection(
        "everything else", 300, f"database and not every_database and {FAST}", without=_NO_DATABASE
    ),
)
SERIALIZABLE_ON_POSTGRESQL = (
    Selection(
        "serializable",
        250,
        f"every_database and {SHORT}",
        ("tests/store", *_SERVICES),
        (),
        "tests.settings_serializable",
    ),
    Selection(
        "a distributed engine",
        250,
        "every_database and not long and not tool",
        ("tests/distributed", *_SERVICES),
        (),
        "tests.settings_distributed",
    ),
)
"""What PostgreSQL can show of distributed SQL."""


def selections(database: str, options: argparse.Namespace, arguments: list[str]) -> list[Selection]:
    """What is to be run on a database."""
    on_sqlite = database == "sqlite"
    if any((ROOT / argument.partition("::")[0]).exists() for argument in arguments):
        every = on_sqlite or options.db == database
        return [Selection("", 0, "" if every else "every_database", (), ())]
    fast = FAST_ON_SQLITE if on_sqlite else FAST_ON_SERVERS
    slow = SLOW_ON_SQLITE if on_sqlite else SLOW_ON_SERVERS
    chosen = [*(slow if options.all else ()), *fast]
    if options.all and database == "pg":
        chosen += SERIALIZABLE_ON_POSTGRESQL
    return [one for one in chosen if not options.part or one.name in options.part]


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


def plan(
    options: argparse.Namespace, arguments: list[str], scratch: Path
) -> tuple[list[Part], dict[str, str]]:
    """The parts, in the order of their starts, and why a database is left out.

    The longest first, so that the last ones are short and end together.
    """
    found: list[tuple[str, str, Selection]] = []
    skipped: dict[str, str] = {}
    for database in [options.db] if options.db else DATABASES:
        # A file, so that the processes that tests start can use it too.
        name, url = "SQLite", f"sqlite:///{scratch}/any"
        if database != "sqlite":
            name, variable, guesses = SERVERS[database]
            answering, reason = server(variable, guesses)
            if answering is None:
                skipped[database] = reason
                continue
            url = answering
        found += [(name, url, chosen) for chosen in selections(database, options, arguments)]
    found.sort(key=lambda one: one[2].seconds, reverse=True)
    parts = [
        Part(
            f"{name}: {chosen.name}" if chosen.name else name,
            with_name(url, f"ojs_{os.getpid()}_{number}"),
            (*chosen.arguments(), *arguments),
            scratch / str(number),
            settings=chosen.settings,
        )
        for number, (name, url, chosen) in enumerate(found)
    ]
    return parts, skipped


def missing_tools(required: list[str]) -> dict[str, str]:
    """The required programs that are not installed."""
    return {
        key: f"{names[0]} is not installed"
        for key, names in TOOLS.items()
        if key in required and not any(shutil.which(name) for name in names)
    }


class Progress:
    """What is shown while the parts run: failures at once, otherwise a line every few seconds."""

    def __init__(self, parts: list[Part]) -> None:
        self._parts = parts
        self._began = time.monotonic()
        self._shown_at = 0.0
        self._said: set[str] = set()

    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._began

    def show(self) -> None:
        """Tell of new failures, and now and then how far everything is."""
        for part in self._parts:
            for failed in part.failures():
                if failed not in self._said:
                    self._said.add(failed)
                    print(f"FAILED {failed}", flush=True)
        if self.elapsed() >= self._shown_at:
            self._shown_at = self.elapsed() + PROGRESS_SECONDS
            running = ", ".join(f"{part.name} {part.share()}" for part in self._parts if part.running)
            done = sum(not part.running and part.ended for part in self._parts)
            tests = sum(part.counts().total() for part in self._parts)
            print(
                f"{self.elapsed():4.0f} s  {tests} tests, {len(self._said)} failed;"
                f" {done} of {len(self._parts)} parts done; {running}",
                flush=True,
            )


def execute(parts: list[Part], tallies: Path, at_once: int = AT_ONCE) -> None:
    """Run them, a few at a time; show the output of those that fail."""
    progress = Progress(parts)
    with ThreadPoolExecutor(at_once) as pool:
        waiting: dict[Future[int], Part] = {pool.submit(part, tallies): part for part in parts}
        while waiting:
            ended, _ = wait(waiting, timeout=0.5, return_when=FIRST_COMPLETED)
            progress.show()
            for future in ended:
                part = waiting.pop(future)
                verdict = f"in {part.seconds:.0f} s" if part.good else f"exit {future.result()}"
                counts = part.counts()
                print(f"===== {part.name}: {spelled(counts)}, {verdict} =====", flush=True)
                if not part.good:
                    print(part.text(), flush=True)


def repeated(parts: list[Part], tallies: Path) -> dict[Part, Part]:
    """What failed, run again with nothing beside it: by part, the part that decides.

    Processes in real time share the processors with two other parts, and a machine may be too busy
    for them. What passes alone is named at the end; what fails again has failed.
    """
    alone = {
        part: Part(
            f"{part.name}, alone",
            with_name(part.url, f"ojs_{os.getpid()}_alone_{number}"),
            tuple(part.failed),
            part.files.with_name(f"alone-{number}"),
            settings=part.settings,
        )
        for number, part in enumerate(parts)
        if part.failed
    }
    execute([*alone.values()], tallies, at_once=1)
    return alone


def spelled(counts: Counter[str]) -> str:
    """The counts in the words of everybody's test runner."""
    return f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped"


def main(arguments: list[str] | None = None) -> int:
    """Plan the parts, run them, and sum them up."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--all", action="store_true", help="everything, not only what is fast")
    parser.add_argument("--db", choices=DATABASES, help="on this database only")
    parser.add_argument("--part", action="append", default=[], help="this part only, such as processes")
    options, more = parser.parse_known_args(arguments)
    required = [item.strip() for item in os.environ.get("OJS_REQUIRE", "").split(",")]
    required = [item for item in required if item]
    known = {**SERVERS, **TOOLS}
    if unknown := sorted(set(required) - set(known)):
        print(f"OJS_REQUIRE: unknown {', '.join(unknown)}; known are {', '.join(known)}")
        return 2
    if options.all:
        os.environ.setdefault("FUZZ_TIMES", "3")
    if not any("randomly" in argument for argument in more):
        more.append(f"--randomly-seed={random.randrange(1 << 31)}")
    began = time.monotonic()
    print(f"pytest {shlex.join(more)}", flush=True)
    with tempfile.TemporaryDirectory(prefix="ojs-test-") as scratch:
        parts, skipped = plan(options, more, Path(scratch))
        found = {part.name.rpartition(": ")[2] for part in parts}
        if (missing := sorted(set(options.part) - found)) and not skipped:
            print(f"--part: nothing to run of {', '.join(missing)}")
            return 2
        tallies = Path(scratch) / "tallies"
        tallies.mkdir()
        execute(parts, tallies)
        alone = repeated(parts, tallies) if options.all else {}
        decisive = [alone.get(part, part) for part in parts]
        totals = sum((part.counts() for part in [*parts, *alone.values()]), Counter[str]())
        totals["failed"] = sum(part.counts()["failed"] for part in decisive)
        failures = [test for part in decisive for test in part.failures()]
        recovered = [
            f"{part.name}: {test}"
            for part, again in alone.items()
            for test in part.failed
            if test not in again.failed
        ]
        skips = [f"{part.name}: {n} x {why}" for part in parts for why, n in part.skips().items()]
        injected = add_up(tallies)
    print(line(*injected))
    print(f"{time.monotonic() - began:.0f} s; to repeat: pytest {shlex.join(more)}")
    for test in recovered:
        print(f"passed only alone: {test}")
    for test in failures:
        print(f"failed: {test}")
    absent = {key: why for key, why in skipped.items() if key in required}
    absent |= {} if options.db else missing_tools(required)
    if absent:
        print("required but missing: " + "; ".join(f"{key} ({why})" for key, why in absent.items()))
    print(spelled(totals))
    reasons = [f"{key} ({why})" for key, why in skipped.items()] + skips
    print(f"skipped: {'; '.join(reasons) or 'nothing'}")
    good = all(part.good for part in decisive)
    return 0 if good and totals["passed"] and not absent else 1


if __name__ == "__main__":
    sys.exit(main())
