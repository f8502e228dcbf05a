"""System checks: silent where all is well, and each one names its mistake."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.test import override_settings

from django_ojs import checks, clock, conf

pytestmark = pytest.mark.filterwarnings("ignore:Overriding setting DATABASES")

SQLITE = {
    "ENGINE": "django.db.backends.sqlite3",
    "NAME": "x",
    "OPTIONS": {"transaction_mode": "IMMEDIATE", "init_command": "PRAGMA journal_mode=WAL"},
}


def found() -> set[str]:
    """The ids of all findings that need no server."""
    messages = checks.check_settings(None) + checks.check_database_settings(None)
    return {str(message.id) for message in messages + checks.check_commands(None)}


@pytest.mark.parametrize(
    "engine", ["django.db.backends.postgresql", "django.db.backends.mysql", "sqlite"]
)
def test_default_settings_give_no_finding(engine: str) -> None:
    database = SQLITE if engine == "sqlite" else {"ENGINE": engine, "NAME": "x"}
    with override_settings(OJS={}, DATABASES={"default": database}, DEBUG=True):
        assert found() == set()


@pytest.mark.parametrize(
    ("changes", "identity"),
    [
        ({"OJS": {"TIMEOUT": 5}}, "ojs.E001"),
        ({"OJS": {"DEFAULTS": {"timeout": -1}}}, "ojs.E001"),
        ({"OJS": {"DATABASE": "other"}}, "ojs.E002"),
        ({"USE_TZ": False}, "ojs.E003"),
        ({"OJS": {"LISTEN_DATABASE": "other"}}, "ojs.E004"),
        pytest.param(
            {"DATABASE_ROUTERS": ["tests.test_checks.Elsewhere"]},
            "ojs.E005",
            marks=pytest.mark.fault("F90"),
        ),
        ({"DEBUG": False}, "ojs.W003"),
        ({"DEBUG": False, "OJS": {"HTTP": {"DEV_TOKEN": "x"}}}, "ojs.E008"),
        ({"DEBUG": False, "OJS": {"HTTP": {"TEST_DIRECTIVES": True}}}, "ojs.E008"),
        ({"OJS": {"HTTP": {"ENQUEUE_RATE": 0}}}, "ojs.E001"),
        ({"OJS": {"HTTP": {"TOKENS": 1}}}, "ojs.E001"),
        ({"OJS": {"BACKGROUND_THREADS": "Otel"}}, "ojs.E001"),
        ({"OJS": {"HTTP": {"AUTHENTICATION": ["no.such.Class"]}}}, "ojs.E009"),
        ({"DATABASES": {"default": {**SQLITE, "OPTIONS": {}}}}, "ojs.W004"),
        ({"DATABASES": {"default": {**SQLITE, "OPTIONS": {}}}}, "ojs.W005"),
        ({"OJS": {"DEFAULTS": {"heartbeat_timeout": 1}}}, "ojs.W007"),
    ],
)
def test_each_mistake_is_named(changes: dict[str, Any], identity: str) -> None:
    base = {"OJS": {}, "DATABASES": {"default": SQLITE}, "DEBUG": True}
    with override_settings(**{**base, **changes}):
        messages = checks.check_settings(None) + checks.check_database_settings(None)
        assert identity in {message.id for message in messages}


@pytest.mark.parametrize("value", [-1, True, 0.5, "100", None])
def test_a_horizon_of_claims_out_of_bounds(value: object) -> None:
    with override_settings(OJS={"PREFETCH_MS": value}):
        (message,) = checks.check_settings(None)
    assert message.id == "ojs.E001"
    assert message.msg == "OJS['PREFETCH_MS']: must be an integer of at least 0"


def test_no_claims_ahead_at_all() -> None:
    with override_settings(OJS={"PREFETCH_MS": 0}):
        assert checks.check_settings(None) == []
        assert conf.current().prefetch_ms == 0


def test_a_mysql_isolation_level_that_deadlocks() -> None:
    database = {
        "ENGINE": "django.db.backends.mysql",
        "NAME": "x",
        "OPTIONS": {"isolation_level": "repeatable read"},
    }
    with override_settings(OJS={}, DATABASES={"default": database}, DEBUG=True):
        assert found() == {"ojs.W006"}


def test_a_shadowed_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "get_commands", lambda: {"runworker": "channels", "ojs": "django_ojs"})
    (message,) = checks.check_commands(None)
    assert message.id == "ojs.W002"
    assert "channels" in message.msg


def test_the_server_of_the_tests_is_new_enough(ojs_db: None) -> None:
    assert checks.check_database(None, databases=["default"]) == []
    assert checks.check_database(None, databases=[]) == []


def test_a_reaper_that_never_ran(ojs_db: None) -> None:
    from django_ojs.services import scan

    assert [message.id for message in checks.check_reaper(None)] == ["ojs.W008"]
    scan.scan(cadence=None, ran_by="test")
    assert checks.check_reaper(None) == []


class Elsewhere:
    """A router that keeps us out."""

    def allow_migrate(self, db: str, app_label: str, **hints: object) -> bool | None:
        """No for django_ojs."""
        return False if app_label == "django_ojs" else None


def test_the_settings_of_the_tests_are_the_examples() -> None:
    assert settings.OJS["EVENTS"] == "all"


def test_a_database_that_cannot_be_asked_for_its_time_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its host's clock is no substitute: deadlines would rest on it."""
    monkeypatch.setattr(type(connections["default"]), "vendor", "oracle")
    assert "ojs.E012" in found()
    with pytest.raises(ImproperlyConfigured, match="'oracle'"):
        clock.DatabaseClock().now("default")


def test_a_backend_built_on_that_of_postgresql_is_asked_like_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    postgresql = pytest.importorskip("django.db.backends.postgresql.base")

    class Wrapper(postgresql.DatabaseWrapper):  # type: ignore[misc, name-defined]
        vendor = "cockroachdb"

    monkeypatch.setattr(clock, "connections", {"default": object.__new__(Wrapper)})
    assert clock.time_query("default") == "SELECT clock_timestamp()"
