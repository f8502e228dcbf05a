"""``ojs list|enqueue|retry|cancel``, and the second names of the worker and the reaper."""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.core.management.base import BaseCommand

from django_ojs.api import enqueue, get
from django_ojs.clock import FrozenClock
from django_ojs.domain.ids import uuid7
from django_ojs.management.commands import ojs as command
from django_ojs.models import Job
from django_ojs.services import operate
from tests.services.support import fail, make, take

pytestmark = pytest.mark.usefixtures("ojs_db")


def said(*words: str, stderr: StringIO | None = None) -> str:
    """What ``ojs`` prints; on ``stderr`` too, unless that is given."""
    out = StringIO()
    call_command("ojs", *words, stdout=out, stderr=stderr or out)
    return out.getvalue()


def discarded(count: int, **options: Any) -> None:
    """Jobs that have failed for good."""
    make(count, retry={"max_attempts": 1}, **options)
    fail(*take(count, queues=(options.get("queue", "default"),)))


def test_list_shows_a_line_for_each() -> None:
    discarded(1)
    enqueue("mail.send", queue="mail")
    lines = said("list").splitlines()
    assert lines[0].split() == ["ID", "TYPE", "QUEUE", "STATE", "ATTEMPT", "CREATED", "ERROR"]
    assert lines[1].split()[1:5] == ["mail.send", "mail", "available", "0"]
    assert lines[2].endswith("test.Error: no")
    assert said("list", "--queue", "no*") == "no jobs\n"
    assert "more: --after" in said("list", "--limit", "1")
    (job,) = json.loads(said("list", "--state", "discarded", "--format", "json"))
    assert (job["type"], job["state"]) == ("test.job", "discarded")
    assert "lease_id" not in job


def test_list_goes_on_behind_a_job() -> None:
    first, second = make(2)
    (line,) = said("list", "--after", str(second.id)).splitlines()[1:]
    assert line.startswith(str(first.id))


def test_enqueue_inserts_a_job() -> None:
    words = ("mail.send", '["ada"]', "--kwargs", '{"urgent": true}', "--queue", "mail", "--delay", "1h")
    job = json.loads(said("enqueue", *words, "--priority", "5", "--format", "json"))
    stored = get(job["id"])
    assert (stored.queue, stored.state, stored.priority) == ("mail", "scheduled", 5)
    assert (stored.args, stored.kwargs) == (["ada"], {"urgent": True})
    assert said("enqueue", "mail.send").endswith(" mail.send is available\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("mail.send", "{"), "ARGS: must be JSON"),
        (("mail.send", '"ada"'), "ARGS: must be a JSON list"),
        (("mail.send", "[]", "--kwargs", "[]"), "--kwargs: must be a JSON object"),
        (("Mail", "[]"), "type: must be dot-separated lower-case words"),
        (("mail.send", "[]", "--delay", "soon"), "delay"),
    ],
)
def test_enqueue_names_what_is_wrong(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(CommandError, match=message) as caught:
        said("enqueue", *words)
    assert caught.value.returncode == 2
    assert not Job.objects.exists()


def test_retry_by_filter_counts_first_and_wants_a_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    discarded(3)
    discarded(2, queue="mail")
    assert said("retry", "--queue", "default", "--dry-run") == "3 match\n"
    monkeypatch.setattr(sys, "stdin", StringIO())
    with pytest.raises(CommandError, match="retry 3 jobs\\? Say --yes, or --dry-run"):
        said("retry", "--queue", "default")
    assert Job.objects.filter(state="discarded").count() == 5
    assert said("retry", "--queue", "default", "--yes") == "retry: 3 jobs\n"
    assert Job.objects.filter(state="available").count() == 3
    assert said("retry", "--queue", "default", "--yes") == "0 match\n"
    assert json.loads(said("retry", "--error", "test.Error", "--yes", "--format", "json")) == {
        "done": 2,
        "left": 0,
        "why": {},
    }


@pytest.mark.parametrize("verb", ["cancel", "edit"])
def test_a_dry_run_only_counts_the_jobs_that_are_named(verb: str) -> None:
    jobs = make(3)
    operate.cancel([jobs[0].id])
    named = [str(job.id) for job in jobs]
    options = ["--set", "priority=5"] if verb == "edit" else []
    assert said(verb, *named, *options, "--dry-run") == "2 match\n"
    assert Job.objects.filter(state="available", priority=0).count() == 2


@pytest.mark.parametrize("change", ["timeout=soon", "priority=500", "queue=No Queue"])
def test_a_bad_value_is_refused_before_any_job_is_looked_at(change: str) -> None:
    for matching in ("default", "nobody"):
        with pytest.raises(CommandError, match=change.partition("=")[0]) as refused:
            said("edit", "--queue", matching, "--set", change, "--yes")
        assert refused.value.returncode == 2


@pytest.mark.parametrize(("answer", "left"), [("y\n", 0), ("n\n", 2), ("\n", 2), ("", 2)])
def test_a_person_is_asked(monkeypatch: pytest.MonkeyPatch, answer: str, left: int) -> None:
    make(2)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys.stdin, "readline", lambda: answer, raising=False)
    asked = StringIO()
    if left:
        with pytest.raises(CommandError, match="nothing was changed"):
            said("cancel", "--type", "test.job", stderr=asked)
    else:
        assert said("cancel", "--type", "test.job", stderr=asked) == "cancel: 2 jobs\n"
    assert asked.getvalue() == "cancel 2 jobs? [y/N] "
    assert Job.objects.filter(state="available").count() == left


def test_cancel_by_filter_goes_through_many_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_ojs.management.job_verbs._PAGE", 2)
    make(5)
    assert said("cancel", "--queue", "default", "--yes") == "cancel: 5 jobs\n"
    assert Job.objects.filter(state="cancelled").count() == 5


def test_what_has_changed_meanwhile_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    discarded(3)
    plain = operate.retry_dead
    first = Job.objects.order_by("pk").values_list("pk", flat=True)[0]
    meddled: list[Any] = []

    def retried(ids: Any, **more: Any) -> Any:
        if not meddled:
            meddled.append(plain([first], **more))
        return plain(ids, **more)

    monkeypatch.setattr(operate, "retry_dead", retried)
    assert said("retry", "--queue", "default", "--yes").splitlines() == [
        "retry: 2 jobs, 1 left as before",
        f"  {first}: retry needs a job that is discarded: this one is available",
    ]


def test_of_jobs_that_cannot_be_changed_the_reason_is_said() -> None:
    jobs = make(7, timeout="1m")
    told = said("edit", "--queue", "default", "--set", "total_timeout=1s", "--yes").splitlines()
    assert told[0] == "edit: 0 jobs, 7 left as before"
    assert told[1:] == [f"  {job.id}: total_timeout: must not be below timeout" for job in jobs[:5]]


def test_days_are_durations_of_every_option(frozen: FrozenClock) -> None:
    start = frozen.time
    said("enqueue", "test.job", "--delay", "2d")
    said("edit", "--type", "test.job", "--yes", "--set", "total_timeout=3d", "--set", "queue=4d")
    job = Job.objects.get()
    assert job.scheduled_at == start + timedelta(days=2)
    assert (job.total_timeout_ms, job.queue) == (3 * 86_400_000, "4d")
    old = enqueue("test.job", id=uuid7(int(start.timestamp() * 1000), 1))
    frozen.advance(4 * 86400)
    assert str(old.id) in said("list", "--since", "5d")
    assert str(old.id) in said("list", "--until", "3d")
    assert str(old.id) not in said("list", "--since", "3d")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("retry",), "ID: name jobs, or filters such as --queue and --type"),
        (("cancel", "019539a4-b68c-7def-8000-1a2b3c4d5e6f", "--queue", "a"), "not both"),
        (("retry", "--state", "active"), "--state: retry is for discarded, not for active"),
        (
            ("list", "--since", "yesterday"),
            "--since: must be an RFC 3339 time, or how long ago, such as 2d",
        ),
        (
            ("list", "--since", "2026-01-01"),
            "--since: must be an RFC 3339 time, or how long ago",
        ),
        (("enqueue", "ojs.admin.bulk"), "TYPE: must not begin with 'ojs.', which is reserved"),
        (
            ("enqueue", "test.job", "--queue", "ojs-admin"),
            "--queue: ojs-admin is for the work of django_ojs itself",
        ),
        (("list", "--state", "done"), "choose from '?scheduled'?, '?pending'?, "),
        (("workflow", "list", "--state", "done"), "choose from '?running'?, '?completed'?, "),
        (("prune", "--limit", "-5"), "--limit: must be at least 1"),
        (("list", "--limit", "0"), "limit: must be an integer from 1 to 1000"),
    ],
)
def test_what_is_wrong_is_named(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(CommandError, match=message):
        said(*words)
    assert not Job.objects.exists()


@pytest.mark.parametrize(("name", "command_name"), [("worker", "runworker"), ("reap", "reap_timeouts")])
def test_second_names(monkeypatch: pytest.MonkeyPatch, name: str, command_name: str) -> None:
    """They reach our command also where Channels has a ``runworker``."""
    called: list[tuple[str, list[str]]] = []

    def run(self: BaseCommand, argv: list[str]) -> None:
        called.append((type(self).__module__, argv))

    monkeypatch.setattr(BaseCommand, "run_from_argv", run)
    command.Command().run_from_argv(["manage.py", "ojs", name, "--once"])
    module = f"django_ojs.management.commands.{command_name}"
    assert called == [(module, ["manage.py", f"ojs {name}", "--once"])]
    with pytest.raises(CommandError, match=f"call the command {command_name}"):
        said(name)


def test_edit_sets_and_clears() -> None:
    first, second = make(2, total_timeout="1h")
    words = ("--set", "queue=slow", "--set", "priority=7", "--set", 'retry={"max_attempts": 9}')
    assert said("edit", str(first.id), *words, "--clear", "total_timeout").startswith(str(first.id))
    edited = get(first)
    assert (edited.queue, edited.priority, edited.max_attempts) == ("slow", 7, 9)
    assert (edited.total_timeout_ms, get(second).total_timeout_ms) == (None, 3_600_000)
    assert said("edit", "--queue", "default", "--set", "timeout=90", "--yes") == "edit: 1 job\n"
    assert get(second).timeout_ms == 90_000


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "--set"),
        (("--set", "priority"), "--set"),
        (("--set", "colour=red"), "--set"),
        (("--set", "priority=high"), "--set"),
        (("--set", "timeout=5m", "--clear", "timeout"), "--clear: timeout is set too"),
    ],
)
def test_edit_says_what_is_wrong(words: tuple[str, ...], message: str) -> None:
    (job,) = make()
    with pytest.raises(CommandError, match=message):
        said("edit", str(job.id), *words)
    assert get(job).timeout_ms == 1_800_000
