"""``ojs`` and ``reap_timeouts``: what they print, refuse and exit with."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command, load_command_class
from django.core.management.base import CommandError, OutputWrapper
from django.db import connection
from django.db.backends.signals import connection_created
from django.test.utils import CaptureQueriesContext

from django_ojs import clock, get_workflow, group, step
from django_ojs.api import enqueue
from django_ojs.clock import FrozenClock
from django_ojs.domain.durations import format_instant
from django_ojs.domain.failures import Failure
from django_ojs.domain.job import Actor, JobRow
from django_ojs.domain.states import State
from django_ojs.models import Event, Job, Queue
from django_ojs.services import attempt_logs, leases, prune, queues, reaper, tokens, workers
from django_ojs.services.attempt_logs import LoggedAttempt
from django_ojs.services.settle import Outcome, Report, settle
from django_ojs.services.workers import WorkerInfo
from tests.services.support import ack, fail, held, make, now_stored, take

pytestmark = pytest.mark.usefixtures("ojs_db")


def run(*words: str) -> str:
    """What a command prints; it must exit 0."""
    out = StringIO()
    call_command(*words, stdout=out)
    return out.getvalue()


def refused(*words: str) -> tuple[int, str]:
    """How a command ends that does not exit 0."""
    out = StringIO()
    try:
        call_command(*words, stdout=out)
    except CommandError as error:
        return error.returncode, str(error)
    except SystemExit as stop:
        return int(stop.code or 0), out.getvalue()
    raise AssertionError("it exited 0")


def as_json(*words: str) -> Any:
    """The JSON that a command prints."""
    return json.loads(run(*words, "--format", "json"))


class TestReapTimeouts:
    """Cron, loops and health checks."""

    def _overdue(self, frozen: FrozenClock) -> JobRow:
        (job,) = make(enqueue_ttl=2)
        frozen.advance(3)
        return job

    def test_once_ends_what_is_overdue(self, frozen: FrozenClock) -> None:
        job = self._overdue(frozen)
        assert run("reap_timeouts") == "1 reaped (enqueue_ttl 1; at most 1.00 s late)\n"
        assert now_stored(job).state == "discarded"
        assert run("reap_timeouts") == "0 reaped\n"
        assert run("reap_timeouts", "-v0") == ""

    def test_a_process_that_calls_it_keeps_its_connections_as_they_are(self) -> None:
        receivers = list(connection_created.receivers)
        options = dict(connection.settings_dict["OPTIONS"])
        for _ in range(2):
            connection.close()
            run("reap_timeouts")
            assert connection.connection is None
        assert connection_created.receivers == receivers
        assert connection.settings_dict["OPTIONS"] == options

    def test_json(self, frozen: FrozenClock) -> None:
        job = self._overdue(frozen)
        assert as_json("reap_timeouts") == {
            "reaped": 1,
            "by_kind": {"enqueue_ttl": 1},
            "latest_ms": 1000,
            "jobs": [str(job.id)],
        }

    def test_check_and_dry_run_end_nothing(self, frozen: FrozenClock) -> None:
        assert run("reap_timeouts", "--check") == "0 overdue\n"
        job = self._overdue(frozen)
        assert "1 overdue" in run("reap_timeouts", "--dry-run")
        code, said = refused("reap_timeouts", "--check")
        assert (code, "1 overdue" in said) == (3, True)
        assert now_stored(job).state == "available"

    def test_what_is_overdue_is_named_up_to_a_screenful(self, frozen: FrozenClock) -> None:
        """Who asks what would be ended wants to look at it."""
        jobs = [*make(2, enqueue_ttl=2), *make(1, total_timeout=2, timeout=1)]
        frozen.advance(3)
        first, *named = run("reap_timeouts", "--dry-run").splitlines()
        assert first.startswith("3 overdue (enqueue_ttl 2, total 1; ")
        assert sorted(named) == sorted(
            f"  {job.id} {kind}"
            for job, kind in zip(jobs, ("enqueue_ttl", "enqueue_ttl", "total"), strict=True)
        )
        assert refused("reap_timeouts", "--check")[1].splitlines()[1:] == named
        make(30, enqueue_ttl=1)
        frozen.advance(3)
        said = run("reap_timeouts", "--dry-run").splitlines()
        assert (len(said), said[-1]) == (22, "  and 13 more: --format json names all")
        assert len(as_json("reap_timeouts", "--dry-run")["jobs"]) == 33

    def test_due_jobs_are_promoted(self, frozen: FrozenClock) -> None:
        job = enqueue("test.job", delay=5)
        frozen.advance(5)
        run("reap_timeouts")
        assert now_stored(job).state == "available"

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (["--limit", "0"], "--limit"),
            (["--interval", "0"], "--interval"),
            (["--interval", "soon"], "--interval"),
            (["--database", "nowhere"], "--database: there is no database 'nowhere'"),
        ],
    )
    def test_bad_values_name_the_option(self, words: list[str], said: str) -> None:
        loop = ["--loop"] if "--interval" in words else []
        code, message = refused("reap_timeouts", *loop, *words)
        assert code == 2
        assert said in message


class TestOjs:
    """The umbrella."""

    def test_status(self) -> None:
        make(3)
        take(1)
        workers.register(WorkerInfo("w1", clock.new_lease(), concurrency=2))
        report = as_json("ojs", "status")
        assert (report["jobs"]["available"], report["jobs"]["active"]) == (2, 1)
        assert report["workers"][0]["id"] == "w1"
        assert report["troubles"][0]["code"] == "reaper_never_ran"
        assert "never run" in run("ojs", "status")
        reaper.scan(cadence=None, ran_by="test")
        codes = [trouble["code"] for trouble in as_json("ojs", "status")["troubles"]]
        assert "reaper_never_ran" not in codes
        said = run("ojs", "status")
        assert "jobs: available 2, active 1" in said
        assert re.search(r"^reap last ran at [\d-]+ [\d:]+ UTC \([\d.]+ s ago\)$", said, re.MULTILINE)

    def test_status_says_which_workers_are_silent(self, frozen: FrozenClock) -> None:
        workers.register(WorkerInfo("w1", clock.new_lease(), concurrency=2))
        assert "worker w1: running, 0 jobs of 2 at a time, heard 0 s ago" in run("ojs", "status")
        frozen.advance(300)
        assert "worker w1: silent, 0 jobs of 2 at a time, heard 300 s ago" in run("ojs", "status")

    def test_status_tells_of_workflows(self, frozen: FrozenClock) -> None:
        assert "workflows" not in run("ojs", "status")
        once = {"max_attempts": 1}
        running, failed = (group(step("test.job", retry=once)).enqueue() for _ in range(2))
        fail(*(job for job in take(2) if job.workflow_id == failed.id))
        assert "workflows: 1 running, 1 failed in the last hour" in run("ojs", "status")
        frozen.advance(3700)
        assert get_workflow(running).state == "running"
        assert as_json("ojs", "status")["workflows"] == {"running": 1, "failed_last_hour": 0}

    @pytest.mark.slow
    def test_status_counts_many_queues_in_few_statements(self) -> None:
        """Whoever may enqueue can make thousands; with one statement each it took eight seconds."""
        Queue.objects.bulk_create(Queue(name=f"q{number:03}", paused=False) for number in range(450))
        make(3, queue="q007")
        ack(*take(1, queues=("q007",)))
        make(queue="q449")
        queues.pause(["q449"])
        with CaptureQueriesContext(connection) as asked:
            report = as_json("ojs", "status")
        assert len(asked) <= 30
        found = {queue["name"]: queue for queue in report["queues"]}
        assert list(found) == sorted(found)
        assert len(found) == 450
        busy = found["q007"]
        assert (busy["available"], busy["completed"], busy["active"], busy["paused"]) == (
            2,
            1,
            0,
            False,
        )
        assert (found["q449"]["available"], found["q449"]["paused"]) == (1, True)
        assert set(found["q001"]) == {"name", "paused", *map(str, State)}

    def test_inspect_tells_the_story_but_not_the_lease(self) -> None:
        make(retry={"max_attempts": 2})
        (job,) = take()
        fail(job)
        story = as_json("ojs", "inspect", str(job.id))
        assert (story["state"], story["attempts"][0]["outcome"]) == ("retryable", "failed")
        assert story["errors"][0]["type"] == "test.Error"
        assert str(job.lease_id) not in json.dumps(story)

    def test_inspect_is_made_for_people(self) -> None:
        make(
            retry={"max_attempts": 2},
            meta={"of": "x" * 400},
            total_timeout="2h",
            timeout="90s",
            scheduled_at="2020-01-01T00:00:00Z",
        )
        (job,) = take()
        fail(job, backtrace=['  File "shop.py", line 3, in handle\n    raise NoStock\n'])
        lines = run("ojs", "inspect", str(job.id)).splitlines()
        assert lines[0] == f"test.job {job.id}"
        assert lines[1] == "state       retryable, attempt 1 of 2, queue default, priority 0"
        assert any(line.startswith("created     20") and line.endswith(" UTC") for line in lines)
        (later,) = make(delay="1h")
        waits = run("ojs", "inspect", str(later.id))
        assert "\nenqueued    20" in waits
        assert "\navailable " not in waits
        limits = "limits      timeout 90 s, grace 30 s, heartbeat 1 min, total 2 h"
        assert limits in lines
        assert "args        [0]" in lines
        assert any(line.endswith("… (410 characters)") for line in lines)
        assert lines[-4:-1] == [
            "error       test.Error: no",
            '    File "shop.py", line 3, in handle',
            "      raise NoStock",
        ]
        assert lines[-1].startswith("attempt 1   failed after 0")
        assert lines[-1].endswith(" on w1: test.Error: no")
        assert "_ms" not in "".join(lines)

    def test_inspect_has_what_attempts_have_logged(self) -> None:
        make(retry={"max_attempts": 2, "initial_interval": "PT1S"})
        (job,) = take()
        logged = LoggedAttempt(held(job), "one\n    \x1b[31mtwo", 2, 7)
        attempt_logs.write([logged], using="default")
        lines = run("ojs", "inspect", str(job.id)).splitlines()
        shown = ["  ... 7 earlier lines are not kept", "  one", "      \\x1b[31mtwo"]
        assert lines[-4:] == ["log         attempt 1, which runs", *shown]
        kept = {"lines": ["one", "    \x1b[31mtwo"], "dropped": 7}
        assert as_json("ojs", "inspect", str(job.id))["log"] == kept
        fail(job)
        lines = run("ojs", "inspect", str(job.id)).splitlines()
        assert lines[-4].startswith("attempt 1   failed after 0")
        assert lines[-3:] == shown
        story = as_json("ojs", "inspect", str(job.id))
        assert story["attempts"][0]["log"] == kept
        assert "log" not in story

    def test_explain_names_every_reason(self) -> None:
        (job,) = make()
        said = run("ojs", "explain", str(job.id))
        assert "No worker is alive." in said
        queues.pause(["default"])
        workers.register(WorkerInfo("w", clock.new_lease(), queues=["default"], types=["other"]))
        reasons = as_json("ojs", "explain", str(job.id))["reasons"]
        assert any("paused" in reason for reason in reasons)
        assert any("has a handler for test.job" in reason for reason in reasons)
        workers.register(
            WorkerInfo("w", clock.new_lease(), concurrency=1, queues=["default"], types=["test.job"])
        )
        queues.resume(["default"])
        assert as_json("ojs", "explain", str(job.id))["reasons"] == []

    @pytest.mark.parametrize(
        "words",
        [
            ("prune", "-v0"),
            ("-v0", "prune"),
            ("prune", "--verbosity", "0", "--dry-run"),
            ("resume", "default", "-v", "0", "--no-color", "--skip-checks", "--traceback"),
            ("resume", "default", "-v0", "--settings", "tests.settings", "--pythonpath", "."),
        ],
    )
    def test_options_of_every_command_stand_behind_a_verb_too(self, words: tuple[str, ...]) -> None:
        command = load_command_class("django_ojs", "ojs")
        out = StringIO()
        parsed = vars(command.create_parser("manage.py", "ojs").parse_args(list(words)))
        command.stdout = OutputWrapper(out)
        command.execute(**{**parsed, "skip_checks": True})
        assert parsed["verbosity"] == 0
        assert out.getvalue() == ""

    def test_a_token_verb_takes_them_too(self) -> None:
        parser = load_command_class("django_ojs", "ojs").create_parser("manage.py", "ojs")
        assert parser.parse_args(["token", "list", "-v", "2"]).verbosity == 2
        assert parser.parse_args(["-v", "2", "token", "list"]).verbosity == 2
        assert parser.parse_args(["token", "list"]).verbosity == 1

    @pytest.mark.slow
    def test_stored_text_forges_no_line_and_commands_no_terminal(self) -> None:
        evil = "\x1b]0;pwned\x07\x1b[2J\x9b1m\u202e\nforged: completed after 0.1 s on good-worker"
        made = make(3)
        running, failed = take(2, worker="w1")
        leases.progress([leases.Progress(held(running), 0.5, evil, None, running)])
        settle([Outcome(held(failed), Report.FAIL, failure=Failure(evil, evil))])
        queues.pause(["default"], actor=Actor("http", "x", reason=evil))
        about = [(verb, str(job.id)) for verb in ("inspect", "explain") for job in made]
        said = [run("ojs", *words) for words in (*about, ("status",))]
        for text in said:
            assert not set(text) & {"\x1b", "\x07", "\x9b", "\u202e"}
            assert not [line for line in text.splitlines() if line.startswith("forged")]
        assert sum("pwned" in text for text in said) >= 3

    def test_explain_every_state(self, frozen: FrozenClock) -> None:
        later = enqueue("test.job", delay=60)
        pending = enqueue("test.job", pending=True)
        make(2, retry={"max_attempts": 1})
        running, failed = take(2)
        fail(failed)
        for job, word in (
            (later, "scheduled for"),
            (pending, "activated"),
            (running, "runs on w1"),
            (failed, "discarded at"),
        ):
            assert word in as_json("ojs", "explain", str(job.id))["summary"]

    def test_explain_shows_the_cause_before_the_look_ahead(self, frozen: FrozenClock) -> None:
        """No time was left for another attempt: what failed is what matters."""
        make(timeout=60, total_timeout=70, retry={"jitter": False})
        (job,) = take()
        frozen.advance(10)
        fail(job)
        first, second, *_ = as_json("ojs", "explain", str(job.id))["reasons"]
        assert first == "The last error was test.Error: no"
        assert second.startswith("It was given up: the next attempt could not finish")

    def test_retry_cancel_extend(self) -> None:
        make(2, retry={"max_attempts": 1})
        first, second = take(2)
        fail(first)
        assert "is available" in run("ojs", "retry", str(first.id), "--reason", "fixed")
        assert Event.objects.get(kind="job.retried").data["reason"] == "fixed"
        before = second.deadline_at
        assert "extended by 300000 ms" in run("ojs", "extend", str(second.id), "5m")
        assert before is not None
        assert (now_stored(second).deadline_at - before).total_seconds() == 300  # type: ignore[operator]
        assert "is cancelled" in run("ojs", "cancel", str(first.id), str(second.id))

    def test_what_cannot_be_done_is_said_in_a_sentence(self) -> None:
        make()
        (job,) = take()
        ack(job)
        code, said = refused("ojs", "retry", str(job.id))
        assert code == 1
        assert said == "retry needs a job that is discarded: this one is completed"
        assert refused("ojs", "inspect", str(clock.new_id()))[0] == 1
        assert refused("ojs", "inspect", "nonsense") == (2, "ID: 'nonsense' is not a job id")
        assert refused("ojs", "pause", "No Good")[0] == 2

    def test_an_expiry_can_be_cleared_or_replaced(self, frozen: FrozenClock) -> None:
        job = enqueue("test.job", expires_at="1s")
        frozen.advance(2)
        run("reap_timeouts")
        assert "expires_at" in refused("ojs", "retry", str(job.id))[1]
        assert "- Its absolute expiry has passed: a retry needs" in run("ojs", "explain", str(job.id))
        run("ojs", "retry", str(job.id), "--expires-at", "PT1H")
        stored = now_stored(job)
        assert stored.expires_at is not None
        assert (stored.expires_at - frozen.time).total_seconds() == 3600

    def test_pause_and_resume(self) -> None:
        assert run("ojs", "pause", "mail", "--reason", "moving") == "mail paused\n"
        assert run("ojs", "pause", "mail") == "mail was already paused\n"
        assert as_json("ojs", "resume", "mail") == {"resumed": ["mail"]}

    def test_a_queue_that_nobody_has_used_is_paused_with_a_word(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """It may be meant for the jobs to come, or be a misspelled one that goes on."""
        make(1, queue="mail")
        said = run("ojs", "pause", "mail", "maill")
        assert said == "mail paused\nmaill paused\n"
        warned = capsys.readouterr().err
        assert warned == "maill: nobody has used this queue yet: is the name right?\n"
        assert list(queues.paused()) == ["mail", "maill"]
        assert as_json("ojs", "pause", "other") == {"paused": ["other"]}
        assert "other" in capsys.readouterr().err

    @pytest.mark.fault("S34")
    def test_prune(self, frozen: FrozenClock) -> None:
        make()
        (job,) = take()
        ack(job)
        frozen.advance(8 * 86_400)
        assert as_json("ojs", "prune", "--dry-run")["completed"] == 1
        assert "completed 1" in run("ojs", "prune")
        assert not Job.objects.exists()

    def test_what_a_dry_run_of_prune_has_not_counted_is_marked(
        self, frozen: FrozenClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(prune, "MOST_COUNTED", 2)
        make(3)
        ack(*take(3))
        frozen.advance(8 * 86_400)
        said = run("ojs", "prune", "--dry-run")
        assert "completed 2+," in said and "cancelled 0," in said and "unique_keys" not in said
        assert "completed 2," in run("ojs", "prune", "--dry-run", "--limit", "2")
        assert "completed 3," in run("ojs", "prune")

    @pytest.mark.slow
    def test_check(self) -> None:
        make()
        take()
        assert "invariants hold" in run("ojs", "check")
        Job.objects.update(lease_seq=5)
        code, said = refused("ojs", "check")
        assert code == 3
        assert "I5 broken" in said
        assert "I5" in refused("ojs", "check", "--format", "json")[1]


def test_leases_are_held_under_the_name_of_the_worker() -> None:
    make()
    (job,) = take(worker="w9")
    assert held(job).lease_id == job.lease_id
    assert as_json("ojs", "inspect", str(job.id))["worker_id"] == "w9"


class TestToken:
    """API tokens from a shell."""

    def test_a_token_is_made_listed_rotated_and_revoked(self) -> None:
        words = ("--scope", "work", "--queue", "mail*")
        text = run("ojs", "token", "create", "mailer", *words).strip()
        made = tokens.verify(text)
        assert made is not None
        assert (made.name, made.scopes, made.queues) == ("mailer", ["work"], ["mail*"])
        shown = run("ojs", "token", "list")
        head, row = shown.splitlines()
        assert head.split() == ["CLIENT", "PREFIX", "STATE", "SCOPES", "QUEUES", "EXPIRES"]
        assert row.split() == ["mailer", made.prefix, "live", "work", "mail*", "never"]
        rotated = as_json("ojs", "token", "rotate", "mailer")["token"]
        assert tokens.verify(text)
        assert tokens.verify(rotated)
        assert run("ojs", "token", "revoke", "mailer").strip() == "2 revoked"
        assert tokens.verify(text) is None
        first, second = as_json("ojs", "token", "list")
        assert (first["live"], second["live"]) == (False, False)
        assert first["revoked_at"].endswith("Z")
        assert second["last_used_at"].endswith("Z")
        assert text.partition(".")[2] not in shown + run("ojs", "token", "list", "--format", "json")

    @pytest.mark.parametrize(
        ("words", "code"),
        [
            (["create", "a b", "--scope", "work"], 2),
            (["create", "a", "--scope", "work", "--queue", "Mail"], 2),
            (["create", "a", "--scope", "work", "--expires-at", "yesterday"], 2),
            (["rotate", "nobody"], 1),
            (["revoke", "nobody"], 1),
        ],
    )
    def test_what_is_refused(self, words: list[str], code: int) -> None:
        assert refused("ojs", "token", *words)[0] == code
        assert not tokens.listed()

    def test_the_columns_of_the_list_stand_below_each_other(self, frozen: FrozenClock) -> None:
        assert run("ojs", "token", "list") == "no tokens\n"
        run("ojs", "token", "create", "a", "--scope", "work")
        wide = ("--scope", "produce", "--scope", "inspect", "--queue", "mail*", "--queue", "default")
        run("ojs", "token", "create", "a-client-with-a-name", *wide, "--expires-at", "12h")
        head, *rows = run("ojs", "token", "list").splitlines()
        assert [row.split()[0] for row in rows] == ["a", "a-client-with-a-name"]
        for column, texts in (
            ("SCOPES", ("work", "produce,inspect")),
            ("QUEUES", ("*", "mail*,default")),
            ("EXPIRES", ("never", format_instant(frozen.time + timedelta(hours=12)))),
        ):
            at = head.index(column)
            assert [row[at:].split()[0] for row in rows] == list(texts)
        assert not [line for line in (head, *rows) if line != line.rstrip()]
