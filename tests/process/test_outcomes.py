"""Whatever a handler does, the job gets an outcome and the worker goes on."""

from __future__ import annotations

import os

import pytest
from django.contrib.auth.models import User

from django_ojs import api
from django_ojs.domain.job import Actor
from django_ojs.models import Queue
from django_ojs.services import bulk
from tests.process.tools import Diary, StartWorker, attempts, failed, in_state
from tests.support import alive
from tests.workload import jobs

pytestmark = [pytest.mark.process, pytest.mark.one_database]


def goes_on(runner: object) -> None:
    """The worker still runs jobs."""
    following = jobs.echo.enqueue("next")
    assert in_state(following, "completed").json("result") == "next"
    assert runner.running  # type: ignore[attr-defined]


def test_handlers_that_end_their_process(worker: StartWorker) -> None:
    clean, dirty = jobs.exit_now.enqueue(0), jobs.exit_now.enqueue(3)
    fault, killed = jobs.segfault.enqueue(), jobs.kill_self.enqueue()
    runner = worker()
    details = {}
    for name, job in (("clean", clean), ("dirty", dirty), ("fault", fault), ("killed", killed)):
        error = failed(job)
        assert error["type"] == "worker_crash"
        assert [a.outcome for a in attempts(job)] == ["worker_crash"]
        details[name] = error["details"]
    assert details == {
        "clean": {"exit_status": 0},
        "dirty": {"exit_status": 3},
        "fault": {"signal": 11},
        "killed": {"signal": 9},
    }
    goes_on(runner)


def test_poison_pill_is_bounded_by_max_attempts(worker: StartWorker) -> None:
    policy = {"max_attempts": 3, "initial_interval": "PT0.01S", "jitter": False}
    job = jobs.segfault.using(retry=policy).enqueue()
    runner = worker()
    assert failed(job, "discarded", timeout=20)["type"] == "worker_crash"
    assert [attempt.outcome for attempt in attempts(job)] == ["worker_crash"] * 3
    goes_on(runner)


def test_every_exception_is_a_failure_in_the_same_process(worker: StartWorker, diary: Diary) -> None:
    names = [
        "SystemExit",
        "KeyboardInterrupt",
        "GeneratorExit",
        "CancelledError",
        "Strange",
        "Unspeakable",
        "StopIteration",
        "RecursionError",
        "MemoryError",
    ]
    before = jobs.pid.enqueue(diary.path)
    raised = [jobs.raise_it.enqueue(name) for name in names]
    deep = jobs.recurse.enqueue()
    after = jobs.pid.enqueue(diary.path)
    runner = worker()
    first, last = in_state(before, "completed"), in_state(after, "completed")
    assert first.json("result") == last.json("result")
    types = [failed(job)["type"].rpartition(".")[2] for job in raised]
    assert types == names
    assert failed(deep)["type"] == "builtins.RecursionError"
    assert failed(raised[5])["message"] == "<Unspeakable that cannot be shown>"
    goes_on(runner)


def test_error_text_is_sanitised_and_cut(worker: StartWorker) -> None:
    job = jobs.raise_text.enqueue(10_000)
    worker()
    message = failed(job)["message"]
    assert "\x00" not in message
    assert "text" in message
    assert len(message.encode()) <= 8192


@pytest.mark.parametrize(
    ("kind", "error_type"),
    [
        ("large", "result_too_large"),
        ("object", "result_unserialisable"),
        ("bytes", "result_unserialisable"),
        ("nul", "result_unserialisable"),
        ("nan", "result_unserialisable"),
        ("surrogate", "result_unserialisable"),
        ("key", "result_unserialisable"),
        ("cycle", "result_unserialisable"),
    ],
)
def test_result_that_cannot_be_stored(ojs_db: None, kind: str, error_type: str) -> None:
    """Cheap and exact: the executor's own functions, in this process."""
    from django_ojs.worker.invoke import failure_of, result_text

    with pytest.raises(api.OJSError) as caught:
        result_text(jobs.result(kind))
    failure = failure_of(caught.value, None)
    assert (failure["type"], failure["retryable"]) == (error_type, False)


def test_results_that_cannot_be_stored_fail_their_jobs(worker: StartWorker) -> None:
    large = jobs.result.enqueue("large")
    odd = [jobs.result.enqueue(kind) for kind in ("object", "nul", "nan", "cycle")]
    runner = worker()
    assert failed(large, "discarded")["type"] == "result_too_large"
    assert {failed(job, "discarded")["type"] for job in odd} == {"result_unserialisable"}
    assert {len(attempts(job)) for job in [large, *odd]} == {1}
    goes_on(runner)


def test_fork_that_returns_speaks_for_nobody(worker: StartWorker, diary: Diary) -> None:
    job = jobs.fork.enqueue(diary.path)
    runner = worker()
    assert in_state(job, "completed", "retryable").json("result") == "parent"
    assert [attempt.outcome for attempt in attempts(job)] == ["completed"]
    goes_on(runner)


def test_handler_that_closes_every_descriptor(worker: StartWorker) -> None:
    job = jobs.close_descriptors.enqueue()
    runner = worker()
    assert failed(job)["type"] == "worker_crash"
    goes_on(runner)


def test_garbage_on_the_line_is_no_result(worker: StartWorker, diary: Diary) -> None:
    job = jobs.garbage.enqueue(diary.path)
    runner = worker()
    (pid,) = diary.wait("wrote")
    assert failed(job)["type"] == "worker_crash"
    assert not alive(int(pid))
    goes_on(runner)


def test_threads_left_behind_end_with_their_process(worker: StartWorker, diary: Diary) -> None:
    job = jobs.leave_thread.enqueue()
    following = jobs.pid.enqueue(diary.path)
    worker()
    pid = in_state(job, "completed").json("result")
    assert in_state(following, "completed").json("result") != pid
    assert not alive(pid)


def test_children_left_behind_are_killed(worker: StartWorker, diary: Diary) -> None:
    job = jobs.leave_children.enqueue(diary.path)
    following = jobs.pid.enqueue(diary.path)
    worker()
    pid = in_state(job, "completed").json("result")
    assert in_state(following, "completed").json("result") != pid
    children = [int(number) for number in diary.lines("children")[0]]
    assert not [number for number in [pid, *children] if alive(number)]


@pytest.mark.parametrize("handler", [jobs.open_transaction, jobs.open_atomic])
def test_transaction_left_open_is_rolled_back(worker: StartWorker, handler: object) -> None:
    job = handler.enqueue("left-open")  # type: ignore[attr-defined]
    following = jobs.write.enqueue("written")
    worker()
    first = in_state(job, "completed")
    second = in_state(following, "completed", "retryable")
    assert (second.state, second.json("error")) == ("completed", None)
    assert first.json("result") == second.json("result") != os.getpid()
    names = set(Queue.objects.values_list("name", flat=True))
    assert "written" in names
    assert "left-open" not in names


def test_coroutine_handler(worker: StartWorker) -> None:
    job = jobs.echo_async.enqueue({"a": [1, 2.5, None, "ü"]})
    worker()
    assert in_state(job, "completed", "retryable").json("result") == {"a": [1, 2.5, None, "ü"]}


def test_type_without_a_handler_stays_available(drained: StartWorker) -> None:
    foreign = api.enqueue("nobody.knows", [1])
    job = jobs.echo.enqueue(1)
    drained()
    assert api.get(job).state == "completed"
    assert (api.get(foreign).state, api.get(foreign).attempt) == ("available", 0)


def test_bulk_work_of_the_admin_is_a_job_like_any_other(drained: StartWorker) -> None:
    many = [api.enqueue("nobody.knows", [number], queue="held").id for number in range(60)]
    aside = api.enqueue("nobody.knows", [], queue="free").id
    ada = User.objects.create_superuser("ada")
    try:
        work = bulk.start("cancel", bulk.Filter(queue="held"), {}, Actor("admin", "ada"), user=ada.pk)
        drained()
    finally:
        ada.delete()
    ended = in_state(work, "completed")
    assert ended.json("result") == {"done": 60, "skipped": 0}
    assert ended.json("checkpoint")["of"] == 60
    assert (ended.progress, ended.progress_message) == (1.0, "60 done, 0 left as they are, of 60")
    assert {api.get(job).state for job in many} == {"cancelled"}
    assert api.get(aside).state == "available"
