"""Every index of ours names the order of each of its columns: YugabyteDB would hash the first one."""

from __future__ import annotations

import re
from io import StringIO

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import connection
from django.db.migrations.loader import MigrationLoader

from django_ojs.models.indexes import OrderedIndex

pytestmark = pytest.mark.every_database

_CREATE = re.compile(r"^CREATE INDEX (\S+) ON \S+ \((.*?)\)(?: WHERE .*)?;$", re.MULTILINE)
_ORDERED = re.compile(r'["`]\w+["`] (?:ASC|DESC)')


def statements() -> dict[str, list[str]]:
    """The columns of each index, as the migrations spell them on this database."""
    loader = MigrationLoader(connection)
    written = StringIO()
    for app, name in loader.graph.forwards_plan(loader.graph.leaf_nodes("django_ojs")[0]):
        if app == "django_ojs":
            call_command("sqlmigrate", app, name, stdout=written)
    found = {
        name.strip('"`'): columns.split(", ") for name, columns in _CREATE.findall(written.getvalue())
    }
    assert found
    # Those of Django for LIKE, on PostgreSQL: no query of ours needs their order.
    return {name: columns for name, columns in found.items() if not name.endswith("_like")}


def in_database() -> set[str]:
    """The indexes that there are, without those of constraints."""
    found = set()
    with connection.cursor() as cursor:
        for model in apps.get_app_config("django_ojs").get_models():
            constraints = connection.introspection.get_constraints(cursor, model._meta.db_table)
            found |= {
                name
                for name, one in constraints.items()
                if one["index"] and not (one["unique"] or one["primary_key"])
            }
    return {name for name in found if not name.endswith("_like")}


@pytest.mark.slow
def test_every_index_is_ordered_in_words(ojs_db: None) -> None:
    if not connection.features.supports_index_column_ordering:
        pytest.skip("this server knows no descending indexes")
    found = statements()
    assert set(found) == in_database()
    silent = {
        name: columns
        for name, columns in found.items()
        if not all(_ORDERED.fullmatch(column) for column in columns)
    }
    assert silent == {}


def test_so_will_be_the_next_one() -> None:
    for model in apps.get_app_config("django_ojs").get_models():
        for index in model._meta.indexes:
            assert isinstance(index, OrderedIndex), (model, index)


@pytest.mark.skipif(connection.vendor != "sqlite", reason="SQLite keeps the words")
def test_the_words_have_reached_the_database(ojs_db: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT sql FROM sqlite_master WHERE name = 'ojs_job_claim'")
        (sql,) = cursor.fetchone()
    assert '("queue" ASC, "priority" DESC, "enqueued_at" ASC, "id" ASC)' in sql
