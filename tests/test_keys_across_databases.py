"""Rate limits whose jobs are in several databases: refused where a declaration says so, else told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections
from django.test import override_settings

from django_ojs import api, checks, hooks
from django_ojs.conf import job_defaults
from django_ojs.domain.errors import InvalidRequest
from django_ojs.models import Job, RateLimit
from django_ojs.services import spanning
from tests.several import FIRST, SECOND, SETTINGS, beside_default, gone, two_databases

SMTP = {"key": "smtp", "concurrency": 1}


@pytest.fixture
def two(ojs_db: None, tmp_path: Path) -> Iterator[None]:
    """Queues are on two files."""
    with two_databases(tmp_path):
        yield


@pytest.fixture
def beside(ojs_db: None, tmp_path: Path) -> Iterator[None]:
    """Queues are on the database under test, and on a file."""
    with beside_default(tmp_path):
        yield


def declare(monkeypatch: pytest.MonkeyPatch, job_type: str, **options: Any) -> None:
    """A job type with these options."""
    monkeypatch.setitem(hooks._job_types, job_type, job_defaults(options, job_type))


@pytest.fixture
def mail(monkeypatch: pytest.MonkeyPatch) -> None:
    """The type ``test.mail``, whose jobs are in the second database."""
    declare(monkeypatch, "test.mail", queue="mail")


def in_both(limit: Any = SMTP) -> None:
    """A job in each database whose call names the same limit."""
    api.enqueue("test.job", rate_limit=limit)
    api.enqueue("test.mail", rate_limit=limit)


def told(verb: str, *arguments: str) -> list[dict[str, Any]]:
    """What ``ojs status`` or ``ojs check`` says of rate limits in several databases."""
    text = StringIO()
    call_command("ojs", verb, *arguments, "--format", "json", stdout=text)
    troubles = json.loads(text.getvalue())["troubles"]
    return [one for one in troubles if one["code"] == "limits_in_several_databases"]


@pytest.mark.every_database
def test_a_call_may_not_name_what_is_declared_elsewhere(
    beside: None, mail: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(monkeypatch, "test.smtp", rate_limit=SMTP)
    api.enqueue("test.smtp")
    api.enqueue("test.other", rate_limit=SMTP)
    refusal = r"^(steps\[0\]\.)?rate_limit\.key: 'smtp'.*'test.smtp' in the database 'default'.*'jobs2'"
    for enqueue in (
        lambda: api.enqueue("test.mail", rate_limit=SMTP),
        lambda: api.enqueue("test.other", queue="mail", rate_limit=SMTP),
        lambda: api.enqueue_many("test.mail", [[1], [2]], rate_limit=SMTP),
        lambda: api.chain(api.step("test.mail", rate_limit=SMTP)).enqueue(),
    ):
        with pytest.raises(InvalidRequest, match=refusal):
            enqueue()
    assert not Job.objects.using(SECOND).exists()
    assert sorted(Job.objects.values_list("type", flat=True)) == ["test.other", "test.smtp"]


def test_a_key_that_is_declared_in_both_may_be_named_in_both(
    two: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(monkeypatch, "test.smtp", rate_limit=SMTP)
    declare(monkeypatch, "test.mail", queue="mail", rate_limit=SMTP)
    made = [api.enqueue("test.other", rate_limit=SMTP), api.enqueue("test.mail", rate_limit=SMTP)]
    assert [job.queue for job in made] == ["default", "mail"]
    (message,) = checks.check_keys(None)
    assert "'test.mail' in 'jobs2', 'test.smtp' in 'jobs1'" in message.msg


@pytest.mark.fault("F149")
def test_an_enqueue_with_a_key_asks_no_other_database(two: None, mail: None) -> None:
    with gone(FIRST):
        job = api.enqueue("test.mail", rate_limit=SMTP)
    assert Job.objects.using(SECOND).filter(pk=job.id, held=False).exists()


@pytest.mark.slow
@pytest.mark.every_database
def test_what_only_calls_name_is_told(beside: None, mail: None) -> None:
    in_both()
    in_both({"concurrency": 1})
    for job_type in ("test.job", "test.mail"):
        api.enqueue(job_type, rate_limit={"key": f"of.{job_type}", "concurrency": 1})
    assert spanning.counted_twice("default") == {"smtp": ["default", SECOND]}
    assert spanning.counted_twice(SECOND) == {"smtp": ["default", SECOND]}
    for arguments in (("status",), ("check",), ("status", "--database", SECOND)):
        (trouble,) = told(*arguments)
        assert (trouble["count"], trouble["keys"]) == (1, "smtp (default, jobs2)")
        assert "count in several databases" in trouble["problem"]
    text = StringIO()
    call_command("ojs", "status", stdout=text)
    assert "in each for itself: smtp (default, jobs2)." in text.getvalue()


def test_it_is_told_while_it_lasts(two: None, mail: None) -> None:
    in_both()
    assert told("status")
    row = RateLimit.objects.using(SECOND).get(pk="smtp")
    RateLimit.objects.using(SECOND).update(used_at=row.used_at - timedelta(hours=3))
    assert not told("status")
    RateLimit.objects.using(SECOND).update(used_at=row.used_at, policy={}, override={"concurrency": 0})
    assert not told("status"), "no job has brought it there"


@pytest.mark.fault("F149")
def test_a_database_that_is_gone_keeps_nothing_from_being_told(two: None, mail: None) -> None:
    in_both()
    with gone(SECOND):
        assert told("status") == []
    assert told("status")


def test_a_database_without_our_tables_keeps_nothing_from_being_told(two: None, mail: None) -> None:
    in_both()
    with connections[SECOND].cursor() as cursor:
        cursor.execute("DROP TABLE django_ojs_ratelimit")
    assert told("status") == []


def test_with_one_database_nothing_is_asked(ojs_db: None) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("a statement")

    with connections["default"].execute_wrapper(refuse):
        assert spanning.counted_twice("default") == {}


def test_schedules_that_name_one_key(two: None, mail: None, monkeypatch: pytest.MonkeyPatch) -> None:
    both = {
        "here": {"every": "1m", "type": "test.job", "rate_limit": SMTP},
        "there": {"every": "1m", "type": "test.mail", "rate_limit": SMTP},
    }
    with override_settings(OJS={**SETTINGS, "CRON": both}):
        (message,) = checks.check_keys(None)
        assert "the schedule 'here' in 'jobs1', the schedule 'there' in 'jobs2'" in message.msg
        declare(monkeypatch, "test.smtp", rate_limit=SMTP)
        (message,) = checks.check_keys(None)
        assert message.msg.startswith("the schedule 'there': rate_limit.key: 'smtp'")


def test_commands_find_the_database_of_a_key(
    two: None, mail: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overridden(key: str) -> list[str]:
        call_command("ojs", "rate-limit", "set", key, "--concurrency", "0", verbosity=0)
        rows = RateLimit.objects.filter(pk=key, override__isnull=False)
        return [alias for alias in (FIRST, SECOND) if rows.using(alias).exists()]

    api.enqueue("test.mail", rate_limit=SMTP)
    declare(monkeypatch, "test.report", queue="report", rate_limit={"key": "pdf", "concurrency": 1})
    assert overridden("smtp") == [SECOND]
    assert overridden("pdf") == [SECOND], "before its first job too"
    assert overridden("queue:mail") == [SECOND]
    assert overridden("queue:default") == [FIRST]
    assert overridden("never.used") == [FIRST]
