"""``OJS["QUEUE_DATABASES"]``: where jobs go, where they are found, and what cannot span databases."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError, connections, transaction
from django.test import override_settings

from django_ojs import api, checks, clock, conf, hooks
from django_ojs.conf import job_defaults
from django_ojs.domain.enqueue_request import EnqueueRequest
from django_ojs.domain.errors import InvalidRequest, NotFound
from django_ojs.management.commands import runworker
from django_ojs.models import AttemptLog, Job, Queue, Schedule
from django_ojs.services import databases, queues, reap, reaper
from django_ojs.services.attempt_logs import LoggedAttempt
from django_ojs.services.middleware import chain as enqueue_middleware
from django_ojs.services.schedules import declared, fire
from django_ojs.worker.supervisor.config import Config
from django_ojs.worker.threads.logs import LogWriter
from tests.services.support import held, take
from tests.settings import HAS_TASKS
from tests.several import FIRST, SECOND, SETTINGS, gone, two_databases

pytestmark = pytest.mark.usefixtures("two")
ONE_TRY = {"max_attempts": 1}


@pytest.fixture
def two(ojs_db: None, tmp_path: Path) -> Iterator[None]:
    """Queues are on two databases."""
    with two_databases(tmp_path):
        yield


def where(job: Any) -> list[str]:
    """The databases that have a job."""
    return [alias for alias in (FIRST, SECOND) if Job.objects.using(alias).filter(pk=job.id).exists()]


def refused(field: str, *words: str) -> Any:
    """An error that names the field and says these words."""
    pattern = "".join(f"(?=.*{word})" for word in words)
    return pytest.raises(InvalidRequest, match=rf"(?s)^{field}: {pattern}")


def declare(monkeypatch: pytest.MonkeyPatch, job_type: str, **options: Any) -> None:
    """A job type with these options."""
    monkeypatch.setitem(hooks._job_types, job_type, job_defaults(options, job_type))


def test_a_job_goes_where_its_queue_is(monkeypatch: pytest.MonkeyPatch) -> None:
    declare(monkeypatch, "test.mail", queue="mail")
    assert where(api.enqueue("test.job")) == [FIRST]
    assert where(api.enqueue("test.job", queue="mail")) == [SECOND]
    assert where(api.enqueue("test.job", queue="mails")) == [FIRST], "a name is no prefix"
    assert where(api.enqueue("test.job", queue="reports.daily")) == [SECOND]
    assert where(api.enqueue("test.mail")) == [SECOND], "by the queue of its type"
    many = api.enqueue_many("test.mail", [[1], [2]])
    assert [where(job) for job in many] == [[SECOND], [SECOND]]
    api.enqueue_on_commit("test.mail", [3])
    assert api.count_jobs(type="test.mail", database=SECOND) == 4
    known = {alias: set(queues.known(using=alias)) for alias in (FIRST, SECOND)}
    assert known == {FIRST: {"default", "mails"}, SECOND: {"mail", "reports.daily"}}
    assert not Job.objects.using("default").exists()


def test_an_exact_name_then_the_longest_prefix() -> None:
    several = {"a": ["report*"], "b": ["report.long*"], "c": ["report.long.one"], "d": []}
    with override_settings(OJS={"QUEUE_DATABASES": several}):
        found = conf.current().databases
        names = ("report", "report.x", "report.long", "report.long.two", "report.long.one", "other")
        assert [found.of(name) for name in names] == ["a", "a", "b", "b", "c", "default"]
        assert found.aliases == ("default", "c", "b", "a")
        assert found.matching("report.long.*") == {"b", "c"}
        assert found.matching("re*") == {"default", "a", "b", "c"}


def test_jobs_are_found_wherever_they_are() -> None:
    one, two = api.enqueue("test.job"), api.enqueue("test.job", queue="mail", retry=ONE_TRY)
    for job in (one, two):
        assert api.get(job).id == job.id
    later = api.enqueue("test.job", queue="mail", delay="1h")
    assert api.reschedule(later, timedelta(0)).id == later.id
    assert api.edit(two, priority=7).priority == 7
    (running,) = take(using=SECOND, queues=("mail",))
    assert api.extend_timeout(running.id, "5m").extended_by_ms == 300_000
    assert api.cancel(one).state == "cancelled"
    assert api.cancel(two).state == "cancelled"
    waiting = api.enqueue("test.job", queue="mail", pending=True)
    assert api.activate(waiting).state == "available"
    with pytest.raises(NotFound):
        api.get(api.new_id())


def test_lists_are_of_one_database() -> None:
    here, there = api.enqueue("test.job"), api.enqueue("test.job", queue="mail")
    assert [job.id for job in api.jobs()] == [here.id]
    assert [job.id for job in api.jobs(queue="mail")] == [there.id]
    assert [job.id for job in api.jobs(queue="report.*")] == []
    assert [job.id for job in api.jobs(database=SECOND)] == [there.id]
    assert api.count_jobs(queue=["mail", "reports.x"]) == 1
    with refused("queue", FIRST, SECOND):
        api.jobs(queue=["default", "mail"])
    with refused("queue", FIRST, SECOND):
        api.count_jobs(queue="m*")


def test_queues_are_paused_where_they_are() -> None:
    assert api.pause_queues(["default", "mail"]) == ["default", "mail"]
    assert [queues.paused(using=alias) for alias in (FIRST, SECOND)] == [["default"], ["mail"]]
    assert api.resume_queues(["mail"]) == ["mail"]
    assert not Queue.objects.using(FIRST).filter(name="mail").exists()


@pytest.mark.parametrize("names", ["mail", None, ["default", 5], ["default", "No queue", "mail"]])
def test_what_is_no_list_of_queues_pauses_none(names: Any) -> None:
    """A single name is not the queues of its letters."""
    for switch in (api.pause_queues, api.resume_queues):
        with pytest.raises(InvalidRequest, match=r"^(names|queue): must be "):
            switch(names)
    assert [queues.paused(using=alias) for alias in (FIRST, SECOND)] == [[], []]


@pytest.mark.fault("F149")
def test_while_one_database_is_gone_the_other_goes_on() -> None:
    here, there = api.enqueue("test.job"), api.enqueue("test.job", queue="mail")
    with gone(FIRST):
        assert api.get(there).id == there.id
        other = api.enqueue("test.job", queue="mail", retry=ONE_TRY)
        assert [job.id for job in take(2, using=SECOND, queues=("mail",))] == [there.id, other.id]
        assert api.cancel(other).state == "cancelled"
        reaper.scan(cadence=None, ran_by="test", using=SECOND)
        reap.reap(using=SECOND)
        with pytest.raises(OperationalError):
            api.enqueue("test.job")
        with pytest.raises(OperationalError):
            api.get(here)  # it may be there
        assert len(api.jobs(queue="mail")) == 2
    databases._silent_since.clear()
    assert api.get(here).id == here.id
    with gone(SECOND):
        assert api.get(here).id == here.id
        assert api.cancel(here).state == "cancelled"
        with pytest.raises(OperationalError):
            api.get(there)


def test_a_database_that_did_not_answer_is_asked_last() -> None:
    there = api.enqueue("test.job", queue="mail")
    with gone(FIRST):
        api.get(there)
        connections[FIRST].close()
        before = databases._silent_since[FIRST]
        api.get(there)
        assert databases._silent_since[FIRST] == before, "it is not asked at all"


def test_an_enqueue_elsewhere_is_not_in_the_transaction() -> None:
    with pytest.raises(RuntimeError), transaction.atomic(using=FIRST):
        here, there = api.enqueue("test.job"), api.enqueue("test.job", queue="mail")
        raise RuntimeError
    assert (where(here), where(there)) == ([], [SECOND])


def test_a_workflow_is_in_one_database() -> None:
    steps = [api.step("test.job", queue="mail"), api.step("test.job", queue="reports.x")]
    made = api.chain(*steps).enqueue()
    assert api.get_workflow(made.id).state == "running"
    assert api.cancel_workflow(made.id).state == "cancelled"
    assert api.resume_workflow(made.id).state == "running"
    assert Job.objects.using(SECOND).filter(workflow_id=made.id).exists()
    with refused(
        r"steps\[1\]\.queue", "'default' is in the database 'jobs1'", "the workflow in 'jobs2'"
    ):
        api.chain(steps[0], api.step("test.job")).enqueue()
    with refused(r"callbacks\.on_success\.queue", "'mail'"):
        api.batch([api.step("test.job")], on_success=steps[0]).enqueue()
    with refused(r"steps\[1\]\.jobs\[0\]\.queue", "'default'"):
        api.chain(steps[0], api.group(api.step("test.job"), steps[1])).enqueue()
    with pytest.raises(NotFound):
        api.get_workflow(api.new_id())


@pytest.mark.parametrize("middleware", [False, True])
def test_a_key_is_in_the_database_of_its_type(
    monkeypatch: pytest.MonkeyPatch, middleware: bool
) -> None:
    if middleware:
        monkeypatch.setattr(enqueue_middleware, "members", lambda: (("as it is", lambda r, n: n(r)),))
    declare(monkeypatch, "test.once", unique=True)
    declare(monkeypatch, "test.limited", rate_limit={"key": "smtp", "concurrency": 1})
    api.enqueue("test.once")
    api.enqueue("test.limited")
    with refused("unique", "'queue' among its keys", "'mail'", FIRST, SECOND):
        api.enqueue("test.once", queue="mail")
    with refused("unique", "'queue' among its keys"):
        api.enqueue_many("test.once", [[1], [2]], queue="mail")
    with refused("unique", "'queue' among its keys"):
        api.enqueue("test.job", queue="mail", throttle="1m")
    with refused(r"rate_limit\.key", "'mail'", FIRST, SECOND):
        api.enqueue("test.limited", queue="mail")
    assert not Job.objects.using(SECOND).exists()
    keys = {"keys": ["type", "args", "queue"]}
    assert where(api.enqueue("test.job", queue="mail", unique=keys)) == [SECOND]
    assert where(api.enqueue("test.once", queue="mail", unique=False)) == [SECOND]
    limit = {"concurrency": 1}
    assert where(api.enqueue("test.job", queue="mail", rate_limit=limit)) == [SECOND]


def test_a_job_stays_in_its_database() -> None:
    job = api.enqueue("test.job")
    with refused("queue", "'mail' is in the database 'jobs2'", "the job in 'jobs1'"):
        api.edit(job, queue="mail")
    assert api.edit(job, queue="other").queue == "other"


def test_middleware_may_choose_the_database(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_tenant(request: EnqueueRequest, following: Any) -> Any:
        return following(request.replace(queue=f"report.{request.meta['tenant']}"))

    monkeypatch.setattr(enqueue_middleware, "members", lambda: (("by tenant", by_tenant),))
    assert where(api.enqueue("test.job", meta={"tenant": "a"})) == [SECOND]
    many = api.enqueue_many("test.job", [[1], [2]], meta={"tenant": "b"})
    assert [where(job) for job in many] == [[SECOND], [SECOND]]


def test_a_schedule_is_where_the_queue_of_its_jobs_is() -> None:
    both = {
        "here": {"every": "1m", "type": "test.job"},
        "there": {"every": "1m", "type": "test.job", "queue": "mail"},
    }
    with override_settings(OJS={**SETTINGS, "CRON": both}):
        for alias, name in ((FIRST, "here"), (SECOND, "there")):
            assert declared.sync(using=alias) == [name]
            past = clock.now(alias) - timedelta(seconds=1)
            Schedule.objects.using(alias).update(due_at=past)
            assert fire.fire_due(using=alias) == 1
        assert [Job.objects.using(alias).count() for alias in (FIRST, SECOND)] == [1, 1]
        moved = Schedule.objects.using(SECOND).get()
        moved.due_at = clock.now(FIRST) - timedelta(seconds=1)
        moved.save(using=FIRST)
        assert fire.fire_due(using=FIRST) == 0, "the other database has its ticks now"


def test_what_the_settings_refuse() -> None:
    wrong: list[tuple[Any, str]] = [
        (["mail"], r"OJS\['QUEUE_DATABASES'\]: must be a dict"),
        ({SECOND: "mail"}, r"\['jobs2'\]: must be a list of queues"),
        ({SECOND: [7]}, r"\['jobs2'\]: must be a list of queues"),
        ({SECOND: ["*"]}, r"\['jobs2'\]: must be of a-z"),
        ({SECOND: ["Mail"]}, r"\['jobs2'\]: must be of a-z"),
        ({SECOND: ["mail"], FIRST: ["mail"]}, r"\['jobs1'\]: has 'mail', and so has 'jobs2'"),
    ]
    for value, said in wrong:
        with override_settings(OJS={"QUEUE_DATABASES": value}):
            (message,) = checks.check_settings(None)
        assert message.id == "ojs.E001" and re.search(said, message.msg), message


def test_checks_of_every_database(monkeypatch: pytest.MonkeyPatch) -> None:
    def found() -> set[Any]:
        return {message.id for message in checks.check_database_settings(None)}

    assert found() == {"ojs.W005"}, "the files are not set to write-ahead logging"
    connections.databases[SECOND]["TIME_ZONE"] = "Asia/Tokyo"
    assert "ojs.E011" in found()
    with override_settings(OJS={"QUEUE_DATABASES": {"elsewhere": ["mail"]}}):
        assert "ojs.E018" in found()
    assert checks.check_keys(None) == []
    limit = {"key": "smtp", "concurrency": 1}
    declare(monkeypatch, "test.one", rate_limit=limit)
    declare(monkeypatch, "test.two", rate_limit=limit, queue="mail")
    declare(monkeypatch, "test.once", unique=True)
    every = {"nightly": {"every": "1m", "type": "test.once", "queue": "mail"}}
    with override_settings(OJS={**SETTINGS, "CRON": every}):
        first, second = checks.check_keys(None)
    assert (first.id, second.id) == ("ojs.E019", "ojs.E019")
    assert "'smtp'" in first.msg and "'test.one' in 'jobs1', 'test.two' in 'jobs2'" in first.msg
    assert "the schedule 'nightly': unique: must have 'queue' among its keys" in second.msg
    with override_settings(OJS={}):
        assert checks.check_keys(None) == []


def test_a_worker_says_which_queues_are_elsewhere() -> None:
    config = Config("w1", queues=("default", "mail", "report.x"), using=FIRST)
    assert list(runworker._elsewhere(config)) == [("mail", SECOND), ("report.x", SECOND)]
    with override_settings(OJS={}):
        assert list(runworker._elsewhere(config)) == []


@pytest.mark.skipif(not HAS_TASKS, reason="django-tasks is not installed")
def test_tasks_go_where_their_queue_is() -> None:
    from tests.workload.django_tasks import add

    made = add.using(queue_name="mail", delay=1).enqueue(1, 2)
    assert Job.objects.using(SECOND).filter(pk=made.id).exists()
    assert add.get_result(made.id).status == "READY"


def output(*arguments: str) -> Any:
    """What ``ojs`` answers."""
    text = StringIO()
    call_command("ojs", *arguments, "--format", "json", stdout=text)
    return json.loads(text.getvalue())


def test_what_was_logged_is_where_the_job_is() -> None:
    api.enqueue("test.job", queue="mail")
    (job,) = take(queues=["mail"], using=SECOND)
    writer = LogWriter(SECOND)
    writer.put(LoggedAttempt(held(job), "one\ntwo", 2, 0))
    writer.close(10)
    counts = [AttemptLog.objects.using(alias).count() for alias in (FIRST, SECOND)]
    assert counts == [0, 1]
    assert output("inspect", str(job.id))["log"]["lines"] == ["one", "two"]


def test_commands_find_the_database() -> None:
    there = api.enqueue("test.job", queue="mail")
    assert output("inspect", str(there.id))["id"] == str(there.id)
    assert [job["id"] for job in output("list", "--queue", "mail")] == [str(there.id)]
    made = output("enqueue", "test.job", "[1]", "--queue", "reports.x")
    assert Job.objects.using(SECOND).filter(pk=made["id"]).exists()
    output("pause", "mail")
    assert queues.paused(using=SECOND) == ["mail"]
    assert output("cancel", str(there.id))[0]["state"] == "cancelled"
    workflow = api.chain(api.step("test.job", queue="mail")).enqueue()
    assert output("workflow", "show", str(workflow.id))["id"] == str(workflow.id)
    with pytest.raises(CommandError, match="in several databases: jobs1, jobs2"):
        output("pause", "default", "mail")
    with gone(FIRST):
        assert output("inspect", str(there.id))["state"] == "cancelled"
        with pytest.raises(CommandError, match=r"not every database is available.* 'jobs1'") as caught:
            output("inspect", str(api.new_id()))
        assert caught.value.returncode == 69
