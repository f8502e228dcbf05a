"""``ojs rate-limit``, and what ``ojs explain`` and ``ojs check`` say of rate limits."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from django_ojs import enqueue, job
from django_ojs.models import AuditEntry, Job, RateLimit
from django_ojs.services.rate_limits import operate
from tests.management.test_commands import run
from tests.services.support import make, take

pytestmark = pytest.mark.usefixtures("ojs_db")
ONE = {"key": "a", "concurrency": 1}


def read(*arguments: str) -> Any:
    return json.loads(run("ojs", "rate-limit", *arguments, "--format", "json"))


def test_the_list_says_what_is_taken_and_who_waits() -> None:
    assert "no rate limits" in run("ojs", "rate-limit", "list")
    make(3, rate_limit=ONE)
    take(1)
    make(1, rate_limit={"key": "b", "rate": {"limit": 5, "period": "1m"}})
    listed = read("list")
    found = [(one["key"], one["running"], one["waiting"]) for one in listed]
    assert found == [("a", 1, 2), ("b", 0, 0)]
    assert [one["key"] for one in read("list", "--waiting")] == ["a"]
    text = run("ojs", "rate-limit", "list")
    assert "1 at once" in text
    assert "5 in PT1M" in text
    with pytest.raises(CommandError, match="--limit: must be from 1 to 1000"):
        call_command("ojs", "rate-limit", "list", "--limit", "0")


def test_an_override_is_set_and_cleared() -> None:
    make(3, rate_limit=ONE)
    value = read("set", "a", "--concurrency", "2", "--until", "1h", "--reason", "more hands")
    assert (value["limits"], value["overridden"]) == ("2 at once", True)
    assert value["override_until"] is not None
    assert len(take(3)) == 2
    assert read("set", "a", "--rate", "100/1m", "--throttle", "5/1s")["limits"] == (
        "1 at once; 100 in PT1M; 5 in PT1S, evenly"
    )
    assert read("set", "a", "--rate", "9/2d", "--until", "3d")["limits"] == ("1 at once; 9 in PT48H")
    assert read("clear", "a")["limits"] == "1 at once"
    noted = AuditEntry.objects.order_by("pk").values_list("action", "target_id", "reason")
    assert list(noted) == [
        ("rate_limit.overridden", "a", "more hands"),
        ("rate_limit.overridden", "a", ""),
        ("rate_limit.overridden", "a", ""),
        ("rate_limit.restored", "a", ""),
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["set", "a", "--rate", "many"], "--rate: must be like 100/1m"),
        (["set", "a"], "needs concurrency, rate or throttle"),
        (["set", "a b", "--concurrency", "1"], "key: must be"),
        (["show", "nobody"], "no job has had the rate limit 'nobody'"),
        (["clear", "nobody"], "no job has had the rate limit 'nobody'"),
    ],
)
def test_what_cannot_be_is_refused(arguments: list[str], said: str) -> None:
    with pytest.raises(CommandError, match=said):
        call_command("ojs", "rate-limit", *arguments)
    assert not RateLimit.objects.exists()


def test_a_key_that_nothing_has_is_set_with_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    """It may be meant for the jobs to come, or be misspelled."""

    @job("test.rated", rate_limit={"key": "of-a-type", "concurrency": 3})
    def rated() -> None: ...

    make(1, queue="mail", rate_limit=ONE)
    for key in ("a", "queue:mail", "of-a-type"):
        run("ojs", "rate-limit", "set", key, "--concurrency", "1")
        assert not capsys.readouterr().err
    for key in ("b", "queue:maill"):
        assert read("set", key, "--concurrency", "1")["key"] == key
        assert capsys.readouterr().err == f"{key}: no job has had this key yet: is it right?\n"


@pytest.mark.slow
def test_a_queue_is_limited_by_its_name() -> None:
    make(2, queue="mail")
    read("set", "queue:mail", "--concurrency", "1")
    assert len(take(2, queues=("mail",))) == 1


def test_explain_says_what_holds_a_job() -> None:
    first, second, third = make(3, rate_limit=ONE)
    take(1)
    said = run("ojs", "explain", str(third.id))
    assert "The rate limit a holds it: 1 at once." in said
    assert f"These jobs have the places: {first.id}." in said
    assert "1 job is before it." in said
    assert "The next place opens when one of them ends." in said
    operate.override("a", {"concurrency": 0})
    assert "An operator has overridden that limit." in run("ojs", "explain", str(second.id))


def test_explain_says_when_a_window_opens() -> None:
    enqueue("test.job", [], rate_limit={"key": "w", "rate": {"limit": 1, "period": "1h"}})
    held = enqueue("test.job", [], rate_limit={"key": "w", "rate": {"limit": 1, "period": "1h"}})
    take(1)
    assert "The next place opens at " in run("ojs", "explain", str(held.id))


def test_check_finds_a_job_that_is_held_for_nothing() -> None:
    (job,) = make(1)
    assert "I22" not in run("ojs", "check")
    Job.objects.filter(pk=job.id).update(held=True)
    with pytest.raises(SystemExit):
        call_command("ojs", "check")
