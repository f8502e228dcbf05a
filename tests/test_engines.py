"""Which dialect a backend gets: by the backend of Django's that it is built on, and by its features."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.db.backends.sqlite3.base import DatabaseWrapper as SQLiteWrapper

from django_ojs import checks, clock
from django_ojs.engines import EngineFamily, family_of, is_postgresql
from django_ojs.store import dialect as dialects
from django_ojs.store.dialects.compatible import PostgresCompatible
from django_ojs.store.dialects.postgresql import Postgres
from example_project.databases import _need_mysql_driver


def built_on(module: str, vendor: str) -> Any:
    """A connection of a backend that is built on one of Django's, and calls itself otherwise."""
    if module == "mysql":
        # Under the name that Django asks for, whichever driver is there.
        _need_mysql_driver()
    base: Any = pytest.importorskip(f"django.db.backends.{module}.base").DatabaseWrapper
    wrapper = type("DatabaseWrapper", (base,), {"vendor": vendor})
    return object.__new__(wrapper)


@pytest.mark.parametrize(
    ("module", "family"),
    [
        ("postgresql", EngineFamily.POSTGRESQL),
        ("mysql", EngineFamily.MYSQL),
        ("sqlite3", EngineFamily.SQLITE),
    ],
)
def test_a_backend_belongs_to_what_it_is_built_on(module: str, family: EngineFamily) -> None:
    assert family_of(built_on(module, "of_its_own")) is family
    assert family_of(built_on(module, str(family))) is family


def test_a_backend_that_is_built_on_none_belongs_where_its_vendor_says() -> None:
    assert family_of(SimpleNamespace(vendor="postgresql")) is EngineFamily.POSTGRESQL  # type: ignore[arg-type]


def test_any_other_is_refused_by_name() -> None:
    with pytest.raises(ImproperlyConfigured, match="'oracle'"):
        family_of(SimpleNamespace(vendor="oracle"))  # type: ignore[arg-type]


def test_what_only_speaks_the_language_is_not_postgresql(monkeypatch: pytest.MonkeyPatch) -> None:
    other, original = built_on("postgresql", "cockroachdb"), built_on("postgresql", "postgresql")
    assert is_postgresql(original) and not is_postgresql(other)
    for wrapper in (other, original):
        wrapper.features = SimpleNamespace(has_select_for_update_skip_locked=True)
    assert dialects._kind(other) is PostgresCompatible
    assert dialects._kind(original) is Postgres
    assert not PostgresCompatible.notifies
    monkeypatch.setattr(clock, "connections", {"default": other})
    assert clock.server_time("default") == "clock_timestamp()"


def test_a_server_that_cannot_skip_locked_rows_is_refused() -> None:
    old = built_on("mysql", "mysql")
    old.features = SimpleNamespace(has_select_for_update_skip_locked=False)
    old.display_name = "An old server"
    with pytest.raises(ImproperlyConfigured, match=r"An old server lacks .* SKIP LOCKED"):
        dialects._kind(old)


def test_one_that_cannot_be_asked_for_its_time_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its host's clock is no substitute: deadlines would rest on it."""
    unknown = SimpleNamespace(vendor="oracle", needs_rollback=False)
    monkeypatch.setattr(clock, "connections", {"default": unknown})
    assert "ojs.E012" in [found.id for found in checks.check_database_settings(None)]
    with pytest.raises(ImproperlyConfigured, match="'oracle'"):
        clock.DatabaseClock().now("default")


@pytest.mark.every_database
def test_the_dialect_of_a_backend_of_ones_own(ojs_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the first use of a connection finds it."""
    connection = connections["default"]
    family = family_of(connection)
    monkeypatch.setattr(type(connection), "vendor", "of_its_own")
    monkeypatch.delattr(connection, dialects._ATTRIBUTE, raising=False)
    found = dialects.dialect("default")
    # Not by monkeypatch, which would put it back where the connection had none before.
    delattr(connection, dialects._ATTRIBUTE)
    assert found.notifies is False
    assert isinstance(found, PostgresCompatible) is (family is EngineFamily.POSTGRESQL)


def test_sqlite_needs_no_row_locks() -> None:
    assert not SQLiteWrapper.features_class.has_select_for_update_skip_locked
    assert dialects._kind(connections.create_connection("default")) is not None
