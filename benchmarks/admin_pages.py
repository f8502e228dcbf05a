"""How long the pages of the admin take over millions of jobs, beside a plain ``ModelAdmin``.

::

    python -m benchmarks.admin_pages --rows 10000000 --database-url postgres://user@127.0.0.1:5432/any

makes a database of its own (the name in the address is not used), migrates and fills it, asks both
admins for the same pages through Django's test client, in turns, and drops it. Ours is the median of
five tries, the other the better of two; on PostgreSQL a statement of more than two minutes is given up.
Ten million rows take about 8 GB of disk and, on two cores, ten minutes to load. With ``sqlite:///FOLDER/any``
the database is a file of that folder.

Exits with 1 when a page of ours takes longer than it may, or more statements.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

NAME = "ojs_bench_admin"
TRIES = 5
STOCK_TRIES = 2
LIMIT_MS = 120_000
MOST_MS, MOST_LIVE_MS = 150.0, 50.0
"""What a page may take, and what a script that keeps a page up to date asks for."""
MOST_STATEMENTS = 12


@dataclass(frozen=True, slots=True)
class Page:
    """The same question to both admins; no path where one has no such page. A ``live`` one is asked
    for by the script of a page that the reader has.
    """

    name: str
    ours: str | None
    stock: str | None
    live: bool = False

    @property
    def most_ms(self) -> float:
        """How long it may take."""
        return MOST_LIVE_MS if self.live else MOST_MS


@dataclass(slots=True)
class Figure:
    """What a page took, in milliseconds; ``None`` where it was given up or is missing."""

    page: str
    ours: float | None = None
    best: float | None = None
    """Ours where nothing else kept the machine busy: the shortest of the tries."""
    statements: int = 0
    stock: float | None = None
    stock_given_up: bool = False
    most_ms: float = MOST_MS

    @property
    def over(self) -> bool:
        """Whether ours takes more than it may; where nothing else kept the machine busy."""
        return self.best is None or self.best > self.most_ms or self.statements > MOST_STATEMENTS

    @property
    def ratio(self) -> float | None:
        """How many times faster; at least, where the other was given up."""
        stock = float(LIMIT_MS) if self.stock_given_up else self.stock
        return None if stock is None or not self.ours else stock / self.ours


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.admin_pages", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument(
        "--database-url", default=os.environ.get("DATABASE_URL", "postgres://127.0.0.1:5432/postgres")
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    parser.add_argument("--keep", action="store_true", help="leave the database")
    parser.add_argument("--reuse", action="store_true", help="measure the database that was left")
    parser.add_argument("--no-stock", action="store_true", help="only our admin")
    parser.add_argument("--only", default="", help="the pages whose names have these words")
    return parser.parse_args()


def prepare(url: str, *, anew: bool = True) -> None:
    """Django over the database of ours, which is made anew unless it was left for this."""
    parts = urlsplit(url)
    if parts.scheme not in ("postgres", "postgresql", "sqlite"):
        sys.exit("Only PostgreSQL and SQLite are measured: --database-url postgres://...")
    if anew:
        drop(url)
        if parts.scheme != "sqlite":
            _administer(url, f'CREATE DATABASE "{NAME}"')
    if parts.scheme == "sqlite":
        os.environ["DATABASE_URL"] = f"sqlite://{_folder(url)}/{NAME}"
    else:
        os.environ["DATABASE_URL"] = urlunsplit(parts._replace(path=f"/{NAME}"))
    os.environ["DJANGO_DEBUG"] = "0"
    os.environ.setdefault("DJANGO_SECRET_KEY", "for-measuring-only")
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example_project.settings")
    import django
    from django.conf import settings
    from django.core.management import call_command

    django.setup()
    settings.ROOT_URLCONF = "benchmarks.stock"
    settings.ALLOWED_HOSTS = ["testserver"]
    call_command("migrate", verbosity=0)


def drop(url: str) -> None:
    """Delete the database of ours."""
    if urlsplit(url).scheme == "sqlite":
        for file in Path(_folder(url)[1:]).glob(f"{NAME}*"):
            file.unlink()
    else:
        _administer(url, f'DROP DATABASE IF EXISTS "{NAME}" WITH (FORCE)')


def _folder(url: str) -> str:
    """Where the file of SQLite is, as the path of its address."""
    return urlsplit(url).path.rpartition("/")[0]


def _administer(url: str, *statements: str) -> None:
    import psycopg

    parts = urlsplit(url)._replace(scheme="postgresql", path="/postgres")
    with psycopg.connect(urlunsplit(parts), autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def pages(rows: int) -> list[Page]:
    """What is asked."""
    from django_ojs.models import Job, Worker

    first, last = (Job.objects.order_by(key)[:1].get().created_at for key in ("pk", "-pk"))
    middle = first + (last - first) / 2
    prefix = f"{int(middle.timestamp() * 1000):012x}"
    deep = f"{prefix[:8]}-{prefix[8:]}-7000-8000-000000000000"
    failed = Job.objects.filter(state="discarded").order_by("-finished_at")[:1].get()
    worker = Worker.objects.order_by("pk")[:1].get()
    ours, stock = "/admin/django_ojs/job/", "/stock/django_ojs/job/"
    order = rows - 1000
    return [
        Page("list", ours, stock),
        Page("state filter", f"{ours}?state=completed", f"{stock}?state__exact=completed"),
        Page("queue filter", f"{ours}?queue=default", f"{stock}?queue=default"),
        Page("next page, deep", f"{ours}?after={deep}", f"{stock}?p={rows // 100}"),
        Page("search, a match", f"{ours}?q=args.order:{order}", f"{stock}?q={order}"),
        Page("search, no match", f"{ours}?q=args.order:-1", f"{stock}?q=no-such-words"),
        Page("text, a match", f"{ours}?q=%22user{order}@%22", None),
        Page("text, no match", f"{ours}?q=%22no+such+words%22", None),
        Page("oldest first", f"{ours}?state=completed&sort=ended", None),
        Page("next in line", f"{ours}?state=available&sort=line", None),
        Page("most attempts", f"{ours}?sort=-attempts", None),
        Page("longest duration", f"{ours}?state=completed&sort=-duration", None),
        Page("job page", f"{ours}{failed.pk}/change/", f"{stock}{failed.pk}/change/"),
        Page("list live", ours, None, True),
        *(Page(f"tab {state}", f"{ours}?state={state}", None) for state in Job.States.values),
        *(Page(f"lens {name}", f"{ours}?lens={name}", None) for name in ("timed_out", "overdue")),
        *(
            Page(f"search {what} in {state}", f"{ours}?state={state}&q={word}", None)
            for state in ("completed", "discarded", "available")
            for what, word in (
                ("arguments", "args.order:-1"),
                ("tag", "tag:none"),
                ("type", "type:none"),
                ("error", "error:None"),
            )
        ),
        Page("search further", f"{ours}?q=args.order:-1&from={deep}", None),
        Page("queue, completed", f"{ours}?state=completed&queue=rare", None),
        Page("incident's jobs", f"{ours}?q=incident:{failed.incident}", None),
        Page("incident's discarded", f"{ours}?state=discarded&q=incident:{failed.incident}", None),
        Page("dead letter", "/admin/django_ojs/deadletter/", None),
        Page("dead letter, search", "/admin/django_ojs/deadletter/?q=args.order:-1", None),
        *(
            Page(f"dashboard {window}", f"/admin/django_ojs/dashboard/?window={window}", None)
            for window in ("1h", "24h", "7d", "30d")
        ),
        *(
            Page(
                f"dashboard {window} live", f"/admin/django_ojs/dashboard/?window={window}", None, True
            )
            for window in ("1h", "30d")
        ),
        Page("failures", "/admin/django_ojs/failurestat/", None),
        Page("failures live", "/admin/django_ojs/failurestat/", None, True),
        Page("queues", "/admin/django_ojs/queue/", None),
        Page("queues live", "/admin/django_ojs/queue/", None, True),
        Page("workers", "/admin/django_ojs/worker/", None),
        Page("workers live", "/admin/django_ojs/worker/", None, True),
        Page("queue page", "/admin/django_ojs/queue/default/change/", None),
        Page("worker page", f"/admin/django_ojs/worker/{worker.pk}/change/", None),
        Page("failures table", "/admin/django_ojs/failurestat/?view=table", None),
        *(
            Page(name, f"/admin/django_ojs/{name}/", None)
            for name in ("attempt", "event", "auditentry", "workflow", "schedule", "ratelimit")
        ),
        Page("confirm one", f"{ours}{failed.pk}/do/retry/", None),
    ]


def more_queues(now: datetime) -> None:
    """Sixty queues in all: of each the depth is read."""
    from django_ojs.models import Queue

    names = [f"tenant-{number}" for number in range(57)]
    Queue.objects.bulk_create(Queue(name=name, created_at=now) for name in names)


def milliseconds(client: Any, path: str, known: str = "") -> float | None:
    """How long a page takes; ``None`` when it was given up. Exits if there is none. With ``known`` as
    its script asks for it, which has these parts.
    """
    from django.db import OperationalError

    from django_ojs.admin import live

    begun = time.perf_counter()
    try:
        response = client.get(path, headers={live.HEADER: known} if known else None)
    except OperationalError:
        return None
    took = (time.perf_counter() - begun) * 1000
    if response.status_code != 200:
        sys.exit(f"{path} answered {response.status_code}")
    return took


def parts(client: Any, path: str) -> str:
    """What the script of a page says that it has."""
    text = client.get(path).content.decode()
    found = re.findall(r'id="([\w-]+)" data-live="([^"]+)"', text)
    return " ".join(f"{name}={version}" for name, version in found) or "parts"


def statements(client: Any, path: str, known: str) -> int:
    """How many statements a page costs, those that read the session and the user among them."""
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    with CaptureQueriesContext(connection) as asked:
        milliseconds(client, path, known)
    return sum(
        one["sql"].startswith(("SELECT", "(")) and "set_config" not in one["sql"] for one in asked
    )


def measure(asked: list[Page], *, with_stock: bool) -> list[Figure]:
    """Every page in turns of both admins."""
    from django.contrib.auth.models import User
    from django.db import connection
    from django.test import Client

    client = Client()
    client.force_login(User.objects.create_superuser(f"bench-{os.getpid()}", password="x"))
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(f"SET statement_timeout = {LIMIT_MS}")
    figures = []
    for page in asked:
        ours: list[float] = []
        stock: list[float] = []
        figure = Figure(page.name, most_ms=page.most_ms)
        known = parts(client, page.ours) if page.live and page.ours else ""
        if page.ours:
            figure.statements = statements(client, page.ours, known)
        for turn in range(TRIES):
            if page.ours and (took := milliseconds(client, page.ours, known)) is not None:
                ours.append(took)
            if with_stock and page.stock and turn < STOCK_TRIES and not figure.stock_given_up:
                took = milliseconds(client, page.stock)
                figure.stock_given_up = took is None
                stock += [] if took is None else [took]
        figure.ours, figure.best = (statistics.median(ours), min(ours)) if ours else (None, None)
        figure.stock = None if figure.stock_given_up or not stock else min(stock)
        figures.append(figure)
        print(line(figure), flush=True)
    return figures


def line(figure: Figure) -> str:
    """A row of the table."""
    stock = f">{LIMIT_MS}" if figure.stock_given_up else _number(figure.stock)
    ratio = "" if figure.ratio is None else f"{figure.ratio:.0f}x"
    return (
        f"{figure.page:32} {_number(figure.ours):>10} {_number(figure.best):>8}"
        f" {figure.statements:>10} {stock:>12} {ratio:>8}{'  over' if figure.over else ''}"
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def machine(rows: int) -> dict[str, Any]:
    """What it was measured on."""
    import django
    from django.db import connection

    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute("SELECT sqlite_version()")
            version = cursor.fetchone()[0]
            size = Path(connection.settings_dict["NAME"]).stat().st_size
        else:
            cursor.execute("SHOW server_version")
            version = cursor.fetchone()[0]
            cursor.execute("SELECT pg_total_relation_size('django_ojs_job')")
            size = cursor.fetchone()[0]
    return {
        "cpus": os.cpu_count(),
        connection.vendor: version.partition(" ")[0],
        "django": django.get_version(),
        "python": platform.python_version(),
        "rows": rows,
        "table_bytes": size,
    }


def fill(rows: int) -> None:
    """A table of jobs, sixty queues, a week of failures and a month of figures."""
    from benchmarks.figures import count_month
    from benchmarks.rows import count_failures, load
    from django_ojs import clock

    now = clock.now("default")
    load(rows, now, using="default")
    more_queues(now)
    count_failures(now, using="default")
    count_month(now, using="default")


def main() -> None:
    """Load, measure, print, drop."""
    options = arguments()
    prepare(options.database_url, anew=not options.reuse)
    from django.db import connection

    try:
        begun = time.perf_counter()
        if not options.reuse:
            fill(options.rows)
        on = machine(options.rows)
        print(", ".join(f"{name} {value}" for name, value in on.items()))
        print(f"loaded in {time.perf_counter() - begun:.0f} s\n", flush=True)
        heads = f"{'django_ojs':>10} {'best':>8} {'statements':>10} {'ModelAdmin':>12} {'ratio':>8}"
        print(f"{'milliseconds':32} {heads}")
        asked = [page for page in pages(options.rows) if options.only in page.name]
        figures = measure(asked, with_stock=not options.no_stock)
        if options.json:
            found = [{**asdict(figure), "ratio": figure.ratio} for figure in figures]
            options.json.write_text(json.dumps({"machine": on, "pages": found}, indent=1) + "\n")
    finally:
        connection.close()
        if not options.keep and not options.reuse:
            drop(options.database_url)
    over = [figure.page for figure in figures if figure.over]
    print(f"over: {', '.join(over)}" if over else "none is over")
    sys.exit(bool(over))


if __name__ == "__main__":
    main()
