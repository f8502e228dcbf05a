"""System checks: silent where all is well, and each one names its mistake."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.conf import settings
from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from django_ojs import checks, conf, hooks
from django_ojs.api import job
from django_ojs.domain.errors import InvalidRequest
from django_ojs.observability.log_levels import check_levels
from tests.support import ROOT

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
        ({"DEBUG": False, "OJS": {"HTTP": {"DEV_TOKEN": "x"}}}, "ojs.E008"),
        ({"DEBUG": False, "OJS": {"HTTP": {"TEST_DIRECTIVES": True}}}, "ojs.E008"),
        ({"OJS": {"HTTP": {"ENQUEUE_RATE": 0}}}, "ojs.E001"),
        ({"OJS": {"HTTP": {"TOKENS": 1}}}, "ojs.E001"),
        ({"OJS": {"BACKGROUND_THREADS": "Otel"}}, "ojs.E001"),
        ({"OJS": {"HTTP": {"AUTHENTICATION": ["no.such.Class"]}}}, "ojs.E009"),
        ({"DATABASES": {"default": {**SQLITE, "OPTIONS": {}}}}, "ojs.W004"),
        ({"DATABASES": {"default": {**SQLITE, "OPTIONS": {}}}}, "ojs.W005"),
        ({"OJS": {"DEFAULTS": {"heartbeat_timeout": 1}}}, "ojs.W007"),
        ({"DATABASES": {"default": {**SQLITE, "TIME_ZONE": "Asia/Tokyo"}}}, "ojs.E011"),
        ({"DATABASES": {"default": {**SQLITE, "AUTOCOMMIT": False}}}, "ojs.E013"),
    ],
)
def test_each_mistake_is_named(changes: dict[str, Any], identity: str) -> None:
    base = {"OJS": {}, "DATABASES": {"default": SQLITE}, "DEBUG": True}
    with override_settings(**{**base, **changes}):
        messages = checks.check_settings(None) + checks.check_database_settings(None)
        assert identity in {message.id for message in messages}


def test_sqlite_is_named_when_it_is_deployed_and_not_in_every_test_run() -> None:
    with override_settings(OJS={}, DATABASES={"default": SQLITE}, DEBUG=False):
        assert found() == set()
        assert [message.id for message in checks.check_one_host(None)] == ["ojs.W003"]
    postgres = {"ENGINE": "django.db.backends.postgresql", "NAME": "x"}
    with override_settings(OJS={}, DATABASES={"default": postgres}):
        assert checks.check_one_host(None) == []


@pytest.mark.parametrize(
    ("ojs", "words"),
    [
        ({"DEFAULTS": {"queue": "Bad Queue!"}}, "OJS['DEFAULTS']['queue']: must be of a-z"),
        ({"DEFAULTS": {"queue": []}}, "OJS['DEFAULTS']['queue']: must be a string"),
        ({"QUEUES": {"Also Bad!": {}}}, "OJS['QUEUES']['Also Bad!']: must be of a-z"),
        ({"QUEUES": {5: {}}}, "OJS['QUEUES'][5]: must be a string"),
        ({"LISTEN_DATABASE": 5}, "OJS['LISTEN_DATABASE']: must be a non-empty string"),
        ({"LISTEN_DATABASE": ""}, "OJS['LISTEN_DATABASE']: must be a non-empty string"),
        ({"AUTODISCOVER": "jobs"}, "OJS['AUTODISCOVER']: must be a list of module names"),
        ({"AUTODISCOVER": ["my jobs"]}, "OJS['AUTODISCOVER']: must be a list of module names"),
        ({"AUTODISCOVER": 5}, "OJS['AUTODISCOVER']: must be a list of module names"),
        ({"EVENTS": [["job.enqueued"]]}, "OJS['EVENTS']: must be"),
        ({"DEFAULTS": {"timeout": 0}}, "OJS['DEFAULTS']['timeout']: must be more than 0"),
        ({"DEFAULTS": {"timeout": 1.5}}, "OJS['DEFAULTS']['timeout']: must be whole seconds"),
        ({"DEFAULTS": {"priority": 101}}, "OJS['DEFAULTS']['priority']: must be an integer"),
        ({"QUEUES": {"q": {"queue": "r"}}}, "OJS['QUEUES']['q']['queue']: is not a setting"),
        ({"HTTP": {"MAX_BATCH": 0}}, "OJS['HTTP']['MAX_BATCH']: must be an integer of at least 1"),
        ({"ADMIN": {"READ_ONLY": 1}}, "OJS['ADMIN']['READ_ONLY']: must be True or False"),
        ({"RETENTION": {"events": -1}}, "OJS['RETENTION']['events']: must be"),
        (
            {"RETENTION": {"event": 1}},
            "OJS['RETENTION']['event']: is not a setting: did you",
        ),
        ({"COLOUR": 5}, "OJS['COLOUR']: is not a setting: the settings are ADMIN, ASYNC_SLOTS, "),
        ({"DEFAULT": {}}, "OJS['DEFAULT']: is not a setting: did you mean 'DEFAULTS'?"),
        (
            {"DEFAULTS": {"timeout": 60, "total_timeout": 10}},
            "OJS['DEFAULTS']['total_timeout']: must not be below timeout",
        ),
        (
            {"QUEUES": {"q": {"timeout": 60, "total_timeout": 10}}},
            "OJS['QUEUES']['q']['total_timeout']: must not be below timeout",
        ),
        (
            {"DEFAULTS": {"retry": {"max_attempt": 9}}},
            "OJS['DEFAULTS']['retry'].max_attempt: is no field of a retry policy: did you mean "
            "'max_attempts'?",
        ),
    ],
)
def test_what_is_wrong_with_the_settings_is_said(ojs: dict[str, Any], words: str) -> None:
    with override_settings(OJS=ojs):
        (message,) = checks.check_settings(None)
    assert message.id == "ojs.E001"
    assert message.msg.startswith(words)


def test_all_that_is_wrong_is_said_at_once_and_where_the_settings_are_described() -> None:
    """Whoever mends one and starts again should not meet the next."""
    ojs = {
        "DEFAULTS": {"timeout": "soon", "grace_periode": 5, "retry": {"max_attempts": -1}},
        "QUEUES": {"mail": {"timeout": "later"}, "Bad Name": {}},
        "HTTP": {"MAX_BATCH": "many", "STREAMS": 0},
        "NOTIFY": "yes",
    }
    with override_settings(OJS=ojs):
        messages = checks.check_settings(None)
        with pytest.raises(ImproperlyConfigured) as refused:
            conf.current()
    assert {message.msg.partition(": ")[0] for message in messages} == {
        "OJS['DEFAULTS']['timeout']",
        "OJS['DEFAULTS']['grace_periode']",
        "OJS['DEFAULTS']['retry'].max_attempts",
        "OJS['QUEUES']['mail']['timeout']",
        "OJS['QUEUES']['Bad Name']",
        "OJS['HTTP']['MAX_BATCH']",
        "OJS['HTTP']['STREAMS']",
        "OJS['NOTIFY']",
    }
    for message in messages:
        assert message.msg in str(refused.value)
        assert message.hint is not None
        (address,) = re.findall(r"docs/\S+\.md", message.hint)
        assert (ROOT / address).is_file()


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Declare a job type, for the test only."""
    types: dict[str, conf.DefaultsLayer] = {}
    monkeypatch.setattr(hooks, "_job_types", types)

    def declare(name: str, **options: Any) -> None:
        types[name] = conf.job_defaults(options, name)

    return declare


def test_a_total_timeout_below_a_timeout_said_elsewhere(declared: Callable[..., None]) -> None:
    declared("test.long", timeout=100)
    declared("test.mails", timeout=100, queue="mails")
    declared("test.own", timeout=100, total_timeout=200)
    declared("test.short", timeout=10)
    with override_settings(OJS={"DEFAULTS": {"total_timeout": 50}, "QUEUES": {"mails": {}}}):
        found = checks.check_limits(None)
    assert [(message.id, message.msg.split("'")[1]) for message in found] == [
        ("ojs.E010", "test.long"),
        ("ojs.E010", "test.mails"),
    ]
    with override_settings(OJS={"QUEUES": {"mails": {"total_timeout": 50}}}):
        (message,) = checks.check_limits(None)
    assert "'test.mails'" in message.msg


def test_a_queues_timeout_that_no_job_of_it_can_use(declared: Callable[..., None]) -> None:
    queues = {"slow": {"timeout": 70}, "fair": {"timeout": 70, "total_timeout": 80}}
    with override_settings(OJS={"DEFAULTS": {"total_timeout": 60}, "QUEUES": queues}):
        (message,) = checks.check_limits(None)
    assert message.id == "ojs.W009"
    assert "'slow'" in message.msg


def test_a_decorator_that_contradicts_itself_is_refused_at_import() -> None:
    with pytest.raises(
        InvalidRequest, match=r"^@job\('test\.odd'\): total_timeout: must not be below timeout$"
    ):
        job("test.odd", timeout=100, total_timeout=10)
    with pytest.raises(TypeError, match="did you mean 'max_attempts'"):
        job("test.odd", retry={"max_attempt": 9})


def test_an_initial_interval_that_is_capped_is_warned_of(declared: Callable[..., None]) -> None:
    declared("test.capped", retry={"initial_interval": "10m"})
    declared("test.fine", retry={"initial_interval": "10m", "max_interval": "1h"})
    declared("test.silent")
    ojs = {"QUEUES": {"q": {"retry": {"max_interval": "500ms"}}, "r": {"retry": {"jitter": False}}}}
    with override_settings(OJS=ojs):
        found = checks.check_retry_policies(None)
    assert [message.id for message in found] == ["ojs.W010"] * 2
    assert "OJS['QUEUES']['q']" in found[0].msg
    assert "'test.capped': retry.initial_interval: PT10M is above max_interval" in found[1].msg
    with override_settings(OJS={"DEFAULTS": {"retry": {"initial_interval": "6m"}}}):
        assert "OJS['DEFAULTS']" in checks.check_retry_policies(None)[0].msg


def test_attempts_without_end(declared: Any) -> None:
    """Wherever it is said; a total timeout that the jobs get from elsewhere ends them."""
    declared("test.endless", retry={"max_attempts": None})
    declared("test.bounded", retry={"max_attempts": None}, total_timeout="24h")
    declared("test.in.q", retry={"max_attempts": None}, queue="q")
    endless = {"max_attempts": None}
    ojs: dict[str, Any] = {
        "QUEUES": {"q": {"total_timeout": "1h", "retry": endless}, "r": {"retry": endless}}
    }
    with override_settings(OJS=ojs):
        found = checks.check_retry_policies(None)
    assert [message.id for message in found] == ["ojs.W012"] * 2
    assert "OJS['QUEUES']['r']" in found[0].msg
    assert "'test.endless'" in found[1].msg
    with override_settings(OJS={"DEFAULTS": {"retry": endless}}):
        assert "OJS['DEFAULTS']" in checks.check_retry_policies(None)[0].msg
    with override_settings(OJS={"DEFAULTS": {"retry": endless, "total_timeout": "PT168H"}}):
        assert checks.check_retry_policies(None) == []


def test_finished_jobs_that_are_to_count_for_longer_than_they_are_kept(declared: Any) -> None:
    declared("test.rare", throttle="240h")
    declared("test.often", throttle="1h")
    declared("test.waiting", unique={"period": "P30D"})
    (message,) = checks.check_unique_policies(None)
    assert message.id == "ojs.W013"
    assert "'test.rare'" in message.msg
    assert "completed" in message.msg
    with override_settings(OJS={"RETENTION": {"completed": "480h"}}):
        assert checks.check_unique_policies(None) == []


@pytest.mark.parametrize("value", [-1, True, 0.5, "100", None])
def test_a_horizon_of_claims_out_of_bounds(value: object) -> None:
    with override_settings(OJS={"PREFETCH_MS": value}):
        (message,) = checks.check_settings(None)
    assert message.id == "ojs.E001"
    assert message.msg == "OJS['PREFETCH_MS']: must be an integer of at least 0"


@pytest.mark.parametrize("value", ["info", "WARN", 20, True, [], ""])
def test_a_level_of_logs_that_is_none(value: object) -> None:
    with override_settings(OJS={"LOGS": value}):
        (message,) = checks.check_settings(None)
    assert message.id == "ojs.E001"
    assert message.msg == "OJS['LOGS']: must be one of DEBUG, INFO, WARNING, ERROR, CRITICAL"


def test_loggers_that_let_less_through_than_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "level", logging.WARNING)
    monkeypatch.setattr(root, "handlers", [logging.NullHandler()])
    with override_settings(OJS={"LOGS": "INFO"}):
        (message,) = check_levels(None)
        assert message.id == "ojs.W014"
        assert "lets nothing below WARNING through" in message.msg
        for name, heard in (("shop.orders", True), ("django.db.backends", False)):
            with monkeypatch.context() as patch, override_settings(LOGGING={"loggers": {name: {}}}):
                patch.setattr(logging.getLogger(name), "level", logging.DEBUG)
                assert (check_levels(None) == []) == heard
        with monkeypatch.context() as patch:
            patch.setattr(root, "handlers", [])
            assert check_levels(None) == [], "its level is set where nothing else hears it"
        monkeypatch.setattr(root, "level", logging.INFO)
        assert check_levels(None) == []
    for given in ({}, {"LOGS": None}, {"LOGS": "WARNING"}, {"LOGS": "nothing"}):
        with override_settings(OJS=given):
            assert check_levels(None) == []


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
    from django_ojs.services import reaper

    assert [message.id for message in checks.check_reaper(None)] == ["ojs.W008"]
    reaper.scan(cadence=None, ran_by="test")
    assert checks.check_reaper(None) == []


def test_a_database_that_is_not_there_is_named_by_the_check_for_it(ojs_db: None) -> None:
    with override_settings(OJS={"DATABASE": "jbos"}):
        found = {message.id for message in run_checks(tags=["ojs"], include_deployment_checks=True)}
    assert "ojs.E002" in found


class Elsewhere:
    """A router that keeps us out."""

    def allow_migrate(self, db: str, app_label: str, **hints: object) -> bool | None:
        """No for django_ojs."""
        return False if app_label == "django_ojs" else None


def test_the_settings_of_the_tests_are_the_examples() -> None:
    assert settings.OJS["EVENTS"] == "all"
