"""How much a web process holds for one request about large rows, and how many statements it makes.

::

    python -m benchmarks.web_memory --database-url postgres://user@127.0.0.1:5432/any

makes a database of its own beside the one in the address (its name with ``ojs_bench_memory``; SQLite,
PostgreSQL or MariaDB), stores 300 jobs of 1 MiB in each of three states and as many events, workers
and schemas, sends each request to a fresh process with the whole stack of Django in it, and drops the
database. *Peak* is the resident memory while the request was answered beyond that before it. The goal
is 64 MiB beyond the body.
"""

from __future__ import annotations

import argparse
import io
import json
import logging
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from wsgiref.util import setup_testing_defaults

from example_project.databases import parse

NAME = "ojs_bench_memory"
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Figure:
    """What one request took, in bytes."""

    name: str
    status: int
    body: int
    answer: int
    peak: int
    statements: int


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.web_memory", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--size", type=int, default=_MIB - 64, help="characters in each, 1 MiB at most")
    parser.add_argument(
        "--database-url", default=os.environ.get("DATABASE_URL", "postgres://127.0.0.1:5432/postgres")
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    parser.add_argument("--ask", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def django_over(url: str) -> None:
    """Set Django up over a database."""
    os.environ["DATABASE_URL"] = url
    os.environ["DJANGO_DEBUG"] = "0"
    os.environ.setdefault("DJANGO_SECRET_KEY", "for-measuring-only")
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example_project.settings")
    import django

    django.setup()
    logging.getLogger("django_ojs.job").setLevel(logging.CRITICAL)


def measure(rows: int, size: int) -> list[Figure]:
    """Store, and send every request to a process of its own."""
    from benchmarks import heavy

    stored = heavy.store(rows, size)
    figures = []
    for asked in stored.asked:
        question = json.dumps({"token": stored.token, **asdict(asked)})
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.web_memory", "--ask"],
            input=question,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        figures.append(Figure(asked.name, **json.loads(done.stdout)))
        print(line(figures[-1]), flush=True)
    return figures


def line(figure: Figure) -> str:
    """A row of the table."""
    from benchmarks.heavy import GOAL

    verdict = "" if figure.peak - figure.body <= GOAL else "  MORE THAN THE GOAL"
    if figure.status != 200:
        verdict += f"  status {figure.status}"
    sizes = f"{figure.answer / _MIB:8.1f} {figure.peak / _MIB:8.1f}"
    return f"{figure.name:28} {sizes} {figure.statements:11}{verdict}"


def ask() -> None:
    """In a process of its own: answer the request on standard input, and say what that took."""
    asked = json.loads(sys.stdin.read())
    django_over(os.environ["DATABASE_URL"])
    from django.core.wsgi import get_wsgi_application
    from django.db import connection

    application = get_wsgi_application()
    # What every process has once: routes, the connection, the hash of the token.
    _send(application, asked["token"], "GET", "/jobs?limit=1&state=pending", b"")
    statements: list[str] = []

    def count(execute: Any, sql: str, *rest: Any) -> Any:
        statements.append(sql)
        return execute(sql, *rest)

    body = b"" if asked["body"] is None else json.dumps(asked["body"]).encode()
    Path("/proc/self/clear_refs").write_text("5")
    before = _memory("VmRSS")
    with connection.execute_wrapper(count):
        status, size = _send(application, asked["token"], asked["method"], asked["path"], body)
    peak = _memory("VmHWM") - before
    made = len([sql for sql in statements if "SAVEPOINT" not in sql])
    found = {"status": status, "body": len(body), "answer": size, "peak": peak, "statements": made}
    print(json.dumps(found))


def _send(application: Any, token: str, method: str, path: str, body: bytes) -> tuple[int, int]:
    """The status and the size of the answer, which is dropped as a server drops what it has sent."""
    path, _, query = path.partition("?")
    environ: dict[str, Any] = {
        "REQUEST_METHOD": method,
        "PATH_INFO": f"/ojs/v1{path}",
        "QUERY_STRING": query,
        "HTTP_HOST": "localhost",
        "HTTP_AUTHORIZATION": f"Bearer {token}",
        "CONTENT_LENGTH": str(len(body)),
        "CONTENT_TYPE": "application/json" if body else "",
        "wsgi.input": io.BytesIO(body),
    }
    setup_testing_defaults(environ)
    begun: list[str] = []
    answer = application(environ, lambda status, headers: begun.append(status))
    try:
        return int(begun[0].split()[0]), sum(map(len, answer))
    finally:
        answer.close()


def _memory(name: str) -> int:
    for row in Path("/proc/self/status").read_text().splitlines():
        if row.startswith(f"{name}:"):
            return int(row.split()[1]) << 10
    raise LookupError(name)


def main() -> None:
    """Store, measure, print, drop."""
    options = arguments()
    if options.ask:
        ask()
        return
    django_over(options.database_url)
    from django.db import connection

    given = connection.settings_dict["NAME"]
    own = str(Path(given).with_name(f"{NAME}.sqlite3")) if connection.vendor == "sqlite" else NAME
    connection.settings_dict["TEST"]["NAME"] = own
    connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
    try:
        os.environ["DATABASE_URL"] = _named(options.database_url, own)
        print(f"{options.rows} rows of {options.size} characters of each kind, {connection.vendor}\n")
        print(f"{'MiB':28} {'answer':>8} {'peak':>8} {'statements':>11}")
        figures = [asdict(figure) for figure in measure(options.rows, options.size)]
        if options.json:
            found = {"vendor": connection.vendor, "rows": options.rows, "requests": figures}
            options.json.write_text(json.dumps(found, indent=1) + "\n")
    finally:
        connection.creation.destroy_test_db(given, verbosity=0)


def _named(url: str, name: str) -> str:
    """The address with another database, which must be read as that."""
    scheme, _, rest = url.partition("://")
    server = rest.partition("/")[0]
    found = f"{scheme}://{server}/{name}"
    assert parse(found)["NAME"] == name, found
    return found


if __name__ == "__main__":
    main()
