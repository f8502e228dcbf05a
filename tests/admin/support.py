"""Log in, look and act, as a browser would."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from benchmarks.rows import count_failures, load
from django_ojs import clock
from django_ojs.models import Job, Worker
from django_ojs.services import bulk
from tests.support import tidy_tables

MANY = 70_000 if connection.vendor == "sqlite" else 200_000


@contextmanager
def many_jobs(blocker: Any) -> Iterator[datetime]:
    """For the block there are ``MANY`` jobs and nothing else; when they were made."""
    from tests.conftest import empty_tables

    with blocker.unblock():
        User.objects.all().delete()
        empty_tables()
        now = clock.now("default")
        load(MANY, now, using="default")
        count_failures(now, using="default")
        yield now
        empty_tables()
        User.objects.all().delete()
        tidy_tables()


def login(*permissions: str, superuser: bool = False, name: str = "ada") -> Client:
    """A browser in which a staff user with these permissions of ours is logged in."""
    user = User.objects.create_user(name, password="x", is_staff=True, is_superuser=superuser)
    for codename in permissions:
        user.user_permissions.add(Permission.objects.get(codename=codename))
    client = Client()
    client.force_login(user)
    return client


def page(client: Client, path: str, **query: str) -> str:
    """The text of a page; it must be there."""
    response = client.get(f"/admin/django_ojs/{path}", query)
    assert response.status_code == 200, response.status_code
    return response.content.decode()


def do(client: Client, job: Any, name: str, **fields: Any) -> Any:
    """Confirm an operation on one job."""
    path = f"/admin/django_ojs/job/{job.id}/do/{name}/"
    return client.post(path, {**fields, "_confirmed": "1"}, follow=False)


def do_to(client: Client, kind: str, key: str, name: str, **fields: str) -> Any:
    """Confirm an operation on one queue or worker."""
    place = at(key) if kind == "worker" else f"{kind}/{key}"
    return client.post(f"/admin/django_ojs/{place}/do/{name}/", {"_confirmed": "1", **fields})


def at(name: str = "w1") -> str:
    """Where the pages of a worker are: by its key, since several may have the name."""
    return f"worker/{Worker.objects.get(name=name).pk}"


def cell(text: str, key: str, column: str) -> str:
    """What a column of a list shows for the row that links to ``key``, without its label."""
    rows = re.split(r"<tr(?: data-key=[^>]*)?>", text)
    row = next(part for part in rows if re.search(f">{re.escape(key)}</a>(?: <small.*?)?</th>", part))
    found = row.partition(f'class="field-{column}">')[2].partition("</td>")[0]
    return re.sub(r'^<span data-label="[^"]*">(.*)</span>$', r"\1", found)


def worker(name: str = "w1", age: int = 0, **columns: Any) -> Worker:
    """A worker that was heard so many seconds ago."""
    now = clock.now("default")
    return Worker.objects.create(
        name=name,
        incarnation=clock.new_lease(),
        started_at=now - timedelta(hours=2),
        heartbeat_at=now - timedelta(seconds=age),
        **columns,
    )


def across(
    client: Client, action: str, query: str = "", *, using: str = "default", **fields: str
) -> Any:
    """An action of the list to all rows that match."""
    key = str(Job.objects.using(using).values_list("pk", flat=True)[0])
    data = {"action": action, "_selected_action": [key], "select_across": "1", "index": "0"}
    return client.post(f"/admin/django_ojs/job/{query}", {**data, **fields})


def reads(asked: CaptureQueriesContext) -> list[str]:
    """The statements that read, without those that set and take back a time limit, and without that
    of the bulk work, which every page shows.
    """
    found = [query["sql"] for query in asked if query["sql"].startswith(("SELECT", "("))]
    return [sql for sql in found if "set_config" not in sql and bulk.TYPE not in sql]
