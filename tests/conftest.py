"""Fixtures of all database tests: real commits, emptied tables, a clock that stands still."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.db import connections
from django.test.utils import setup_databases, teardown_databases
from hypothesis import HealthCheck, settings

from django_ojs import clock
from django_ojs.http import waiting
from django_ojs.models import (
    ApiToken,
    Attempt,
    AttemptLog,
    AuditEntry,
    DeployMark,
    Event,
    EventStream,
    FailureStat,
    Incident,
    Job,
    JobSchema,
    LeaseBeat,
    MaintenanceRun,
    MinuteStat,
    Queue,
    QueueSample,
    RateLimit,
    RateLimitDue,
    RateLimitPlace,
    RateLimitStart,
    SavedView,
    Schedule,
    ScheduleRun,
    Total,
    TypeStat,
    UniqueKey,
    Worker,
    Workflow,
    WorkflowStep,
)
from django_ojs.services import enqueue as enqueue_service
from django_ojs.services import reaper, tokens
from django_ojs.services.rate_limits import policies
from tests.faults import tally
from tests.support import family, poll, unjudged

# How long an example takes is the machine's affair.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

OURS = (
    Attempt,
    AttemptLog,
    Event,
    EventStream,
    Job,
    Queue,
    Worker,
    MaintenanceRun,
    ApiToken,
    JobSchema,
    AuditEntry,
    LeaseBeat,
    MinuteStat,
    FailureStat,
    Incident,
    QueueSample,
    DeployMark,
    RateLimit,
    RateLimitDue,
    RateLimitPlace,
    RateLimitStart,
    SavedView,
    Schedule,
    ScheduleRun,
    Total,
    TypeStat,
    Workflow,
    WorkflowStep,
    UniqueKey,
)


def empty_tables() -> None:
    """Delete every row of ours, and what the process remembers of them.

    Most tests leave rows in a few tables: one statement asks in which, one transaction empties them.
    """
    connection = connections["default"]
    tables = [model._meta.db_table for model in OURS]
    with connection.cursor() as cursor:
        cursor.execute("SELECT " + ", ".join(f"EXISTS (SELECT 1 FROM {table})" for table in tables))
        full = [table for table, filled in zip(tables, cursor.fetchone(), strict=True) if filled]
        if full:
            with unjudged():
                for table in full:
                    cursor.execute(f"DELETE FROM {table}")
    enqueue_service._known_queues.clear()
    policies.forget_limited()
    reaper._failed.clear()
    clock.database_clock.forget()
    clock.now("default")


@pytest.fixture(scope="session")
def django_db_setup(django_test_environment: None, django_db_blocker: Any) -> Iterator[None]:
    """The test database, migrated once."""
    with django_db_blocker.unblock(), pytest.MonkeyPatch.context() as patch:
        made = setup_databases(verbosity=0, interactive=False)
        _commit_without_waiting()
        # Measured between tests: a minute that is over within one would cost it three statements.
        patch.setattr(clock, "_REMEASURE_SECONDS", 86_400)
        yield
        for bell in waiting._notifiers.values():
            if bell._notifier is not None:
                bell._notifier.close()
        # A server that was stopped a moment ago may still be there as a session.
        try:
            poll(lambda: not _others(), every=0.1)
        except AssertionError:
            pytest.fail(f"left open: {_others()}")
        finally:
            teardown_databases(made, verbosity=0)


def _commit_without_waiting() -> None:
    """Commits do not wait for the disk, where a database can be told so for itself alone."""
    connection = connections["default"]
    if family() == "postgresql":
        with connection.cursor() as cursor:
            name = connection.ops.quote_name(connection.settings_dict["NAME"])
            cursor.execute(f"ALTER DATABASE {name} SET synchronous_commit TO off")
        connection.close()


def _others() -> list[tuple[Any, ...]]:
    """Who else uses the test database, where PostgreSQL drops it only when nobody does."""
    connection = connections["default"]
    if family() != "postgresql":
        return []
    connection.close()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pid, application_name, state, query FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        return list(cursor.fetchall())


@pytest.fixture(scope="session", autouse=True)
def cheap_tokens() -> Iterator[None]:
    """Token hashes that cost nothing, as for passwords in ``tests.settings``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokens, "COST", 1 << 4)
        yield


@pytest.fixture(scope="module", autouse=True)
def settings_come_back() -> Iterator[None]:
    """No test leaves settings overridden, or without their module, to those that come later."""
    yield
    assert django_settings.SETTINGS_MODULE, "a test of this module has left settings overridden"


@pytest.fixture
def ojs_db(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """The test database with real transactions; our tables are empty before and after."""
    with django_db_blocker.unblock():
        empty_tables()
        yield
        connections["default"].close()
        empty_tables()


@pytest.fixture
def frozen() -> Iterator[clock.FrozenClock]:
    """Database time that moves only when told to."""
    with clock.using_clock(clock.FrozenClock()) as stopped:
        assert isinstance(stopped, clock.FrozenClock)
        yield stopped


@pytest.fixture
def vendor(ojs_db: None) -> str:
    """``sqlite``, ``postgresql`` or ``mysql``."""
    return str(family())


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A passing test has injected the faults that it is marked with."""
    if report.when == "call" and report.passed:
        rows = [value for name, value in report.user_properties if name == "fault"]
        tally.injected(*map(str, rows))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what uses the database; hand the rows of the marks ``fault`` to the reports."""
    for item in items:
        if "django_db_setup" in getattr(item, "fixturenames", ()):
            item.add_marker("database")
        for mark in item.iter_markers("fault"):
            item.user_properties += [("fault", row) for row in mark.args]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how many faults and invariants, and leave the counts where ``tests.run`` wants them."""
    if not tally.faults and not tally.invariants:
        return
    terminalreporter.write_line(tally.line(tally.faults, tally.invariants))
    if folder := os.environ.get("OJS_TEST_TALLIES"):
        tally.write(Path(folder) / f"{os.getpid()}.json")
