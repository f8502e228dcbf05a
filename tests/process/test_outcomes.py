"""Whatever a handler does, the job gets an outcome and the worker goes on."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from django.contrib.auth.models import User

from django_ojs import api, clock
from django_ojs.domain.job import Actor
from django_ojs.domain.job_record import JobRecord
from django_ojs.models import Job, Queue
from django_ojs.services import bulk
from tests.faults import tally
from tests.process.tools import (
    Diary,
    StartWorker,
    failed,
    in_state,
    outcomes,
    sabotaged,
)
from tests.support import Manage, alive
from tests.workload import jobs, misbehaving
from tests.workload.tools import LATER

pytestmark = pytest.mark.process

FORGED = (
    "other lease",
    "cut off",
    "wrong checksum",
    "without sense",
    "of wrong types",
    "endless",
    "too large",
    "too deep",
    "no strings",
    "progress",
    "call",
)


def goes_on(runner: Manage) -> None:
    """The worker still runs jobs."""
    following = jobs.echo.enqueue("next")
    assert in_state(following, "completed").result == "next"
    assert runner.running


def peak_kib(pid: int) -> int:
    """The most memory that a process ever had."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))


@pytest.mark.fault("F19", "F20", "F21", "F37", "F38", "F44", "F45")
def test_handlers_that_end_or_corrupt_their_process(worker: StartWorker, diary: Diary) -> None:
    made: dict[str, JobRecord] = {
        "exit 0": jobs.exit_now.enqueue(0),
        "exit 3": jobs.exit_now.enqueue(3),
        "segfault": jobs.segfault.enqueue(),
        "abort": misbehaving.abort.enqueue(),
        "kill": jobs.kill_self.enqueue(),
        "descriptors": jobs.close_descriptors.enqueue(),
        "garbage": jobs.garbage.enqueue(diary.path),
        **{kind: misbehaving.forge.enqueue(kind) for kind in FORGED},
    }
    either = {
        "overflow": misbehaving.overflow.enqueue(),
        "memory": misbehaving.use_all_memory.enqueue(),
    }
    runner = worker("--concurrency=4")
    errors = {name: failed(job, timeout=60) for name, job in made.items()}
    assert {name: error["type"] for name, error in errors.items()} == dict.fromkeys(
        made, "worker_crash"
    )
    details = {name: errors[name]["details"] for name in list(made)[:5]}
    assert details == {
        "exit 0": {"exit_status": 0},
        "exit 3": {"exit_status": 3},
        "segfault": {"signal": signal.SIGSEGV},
        "abort": {"signal": signal.SIGABRT},
        "kill": {"signal": signal.SIGKILL},
    }
    types = {name: failed(job, timeout=60)["type"] for name, job in either.items()}
    assert types["overflow"] in ("worker_crash", "builtins.RecursionError")
    assert types["memory"] in ("worker_crash", "builtins.MemoryError")
    for name, job in {**made, **either}.items():
        assert len(outcomes(job)) == 1, name
        assert "completed" not in outcomes(job), name
    assert not alive(int(diary.lines("wrote")[0][0]))
    goes_on(runner)
    assert runner.stderr.count("Traceback") <= len(either), "those that a handler has raised"
    tally.injected("F38", times=len(FORGED) - 1)


@pytest.mark.fault("F36", "F39")
def test_handlers_whose_result_counts_all_the_same(worker: StartWorker, diary: Diary) -> None:
    forked, flooding = jobs.fork.enqueue(diary.path), misbehaving.flood.enqueue()
    value = {"a": [1, 2.5, None, "ü"]}
    coroutine = jobs.echo_async.enqueue(value)
    runner = worker("--concurrency=2")
    expected = ((forked, "parent"), (flooding, "flooded"), (coroutine, value))
    for job, result in expected:
        assert in_state(job, "completed", "retryable").result == result
        assert outcomes(job) == ["completed"]
    assert runner.stdout_file.stat().st_size > 10 << 20
    goes_on(runner)


@pytest.mark.fault("F22", "F43", "F44")
def test_every_exception_is_a_failure_in_the_same_process(worker: StartWorker, diary: Diary) -> None:
    names = [
        "SystemExit",
        "KeyboardInterrupt",
        "GeneratorExit",
        "CancelledError",
        "Strange",
        "StopIteration",
        "RecursionError",
        "MemoryError",
    ]
    before = jobs.pid.enqueue(diary.path)
    raised = [jobs.raise_it.enqueue(name) for name in names]
    unspeakable = {name: misbehaving.raise_it.enqueue(name) for name in misbehaving.UNSPEAKABLE}
    deep, long = jobs.recurse.enqueue(), jobs.raise_text.enqueue(10_000)
    after = jobs.pid.enqueue(diary.path)
    runner = worker()
    first, last = in_state(before, "completed"), in_state(after, "completed")
    assert first.result == last.result
    assert [failed(job)["type"].rpartition(".")[2] for job in raised] == names
    assert failed(deep)["type"] == "builtins.RecursionError"
    errors = {name: failed(job) for name, job in unspeakable.items()}
    assert {name: error["type"].rpartition(".")[2] for name, error in errors.items()} == {
        name: name for name in errors
    }
    for name in ("Mute", "Endless", "Guarded"):
        assert errors[name]["message"] == f"<unprintable {name}>"
    for message in (errors["Long"]["message"], failed(long)["message"]):
        assert 8000 < len(message.encode()) <= 8192
        assert "\x00" not in message
    goes_on(runner)


@pytest.mark.every_database
@pytest.mark.fault("F40", "F41", "F42")
def test_results_that_cannot_be_stored_fail_their_jobs(worker: StartWorker) -> None:
    """The acknowledgement of none of them is tried: each job fails for good, once, and says why."""
    kinds = ("object", "bytes", "nul", "nan", "surrogate", "key", "cycle")
    odd = {kind: jobs.result.enqueue(kind) for kind in kinds}
    more = ("nul", "surrogate", "deep", "digits", "infinity", "set")
    odd |= {f"{kind}, too": misbehaving.result.enqueue(kind) for kind in more}
    large, first = jobs.result.enqueue("large"), jobs.echo.enqueue(1)
    runner = worker()
    in_state(first, "completed")
    errors = {kind: failed(job, "discarded") for kind, job in odd.items()}
    assert {error["type"] for error in errors.values()} == {"result_unserialisable"}
    assert all(error["message"].startswith("result") for error in errors.values()), errors
    assert "result.a[0]" in errors["nul, too"]["message"]
    assert failed(large, "discarded")["type"] == "result_too_large"
    peak = peak_kib(runner.pid)
    huge = misbehaving.result.enqueue("huge")
    assert failed(huge, "discarded")["type"] == "result_too_large"
    assert peak_kib(runner.pid) - peak < 20 << 10, "50 MB never came to the worker"
    assert {kind: outcomes(job) for kind, job in odd.items()} == {kind: ["failed"] for kind in odd}
    assert outcomes(large) == outcomes(huge) == ["failed"]
    goes_on(runner)
    assert "refused" not in runner.stderr


@pytest.mark.fault("F35")
def test_what_is_left_behind_ends_with_its_process(worker: StartWorker, diary: Diary) -> None:
    made = [
        jobs.leave_thread.enqueue(),
        misbehaving.leave_foreground_thread.enqueue(),
        jobs.leave_children.enqueue(diary.path),
        jobs.pid.enqueue(diary.path),
    ]
    runner = worker()
    pids = [in_state(job, "completed").result for job in made]
    assert len(set(pids)) == len(pids)
    children = [int(number) for number in diary.lines("children")[0]]
    assert not [number for number in [*pids[:-1], *children] if alive(number)]
    goes_on(runner)


@pytest.mark.fault("F47")
def test_transaction_left_open_is_rolled_back(worker: StartWorker) -> None:
    made = []
    for number, handler in enumerate((jobs.open_transaction, jobs.open_atomic)):
        made += [handler.enqueue(f"left-open-{number}"), jobs.write.enqueue(f"written-{number}")]
    worker()
    ended = [in_state(job, "completed", "retryable") for job in made]
    assert [(job.state, job.error) for job in ended] == [("completed", None)] * 4
    (pid,) = {job.result for job in ended}
    assert pid != os.getpid()
    names = set(Queue.objects.values_list("name", flat=True)) - {"default"}
    assert names == {"written-0", "written-1"}


@pytest.mark.fault("F29")
def test_signals_are_as_they_should_be_for_the_next_job(worker: StartWorker, diary: Diary) -> None:
    disturbing = misbehaving.disturb_signals.enqueue(diary.path)
    sleeping = misbehaving.told_in_time.enqueue()
    worker()
    first = in_state(disturbing, "completed").result
    second, slept = in_state(sleeping, "completed", "retryable").result
    assert first == second, "in the same process"
    assert slept is not None, "the soft signal was heard"


@pytest.mark.fault("F46")
def test_changed_process_is_replaced_after_so_many_jobs(worker: StartWorker) -> None:
    made = [misbehaving.change_process.enqueue() for _ in range(4)]
    assert worker("--drain", **sabotaged("", EXECUTOR_MAX_JOBS=2)).wait(60) == 0
    found = [api.get(job).result for job in made]
    assert [changed for _, *changed in found] == [[None, False], ["yes", True]] * 2
    pids = [pid for pid, *_ in found]
    assert pids[0] == pids[1] != pids[2] == pids[3]


@pytest.mark.fault("F48")
def test_type_without_a_handler(worker: StartWorker) -> None:
    """Is not claimed; if it loses its handler after the claim, the job can be retried."""
    foreign = api.enqueue("nobody.knows", [1])
    job = misbehaving.unregister.enqueue("bad.unregistered")
    lost = misbehaving.unregistered.using(retry=LATER).enqueue()
    runner = worker()
    in_state(job, "completed")
    error = failed(lost)
    assert (error["type"], error["retryable"]) == ("handler_not_found", True)
    assert api.get(lost).attempt == 1
    goes_on(runner)
    assert (api.get(foreign).state, api.get(foreign).attempt) == ("available", 0)


@pytest.mark.every_database
@pytest.mark.fault("F51")
def test_what_a_handler_enqueues_is_not_tied_to_its_outcome(worker: StartWorker) -> None:
    child = clock.new_id()
    parent = misbehaving.enqueue_and_die.enqueue(str(child))
    worker()
    in_state(parent, "completed")
    assert outcomes(parent) == ["worker_crash", "worker_crash", "completed"]
    assert in_state(api.get(child), "completed").attempt == 1
    assert Job.objects.count() == 2


@pytest.mark.fault("F20", "F52")
@pytest.mark.parametrize(
    "many", [30, pytest.param(300, marks=[pytest.mark.long, pytest.mark.timeout(300)])]
)
def test_poison_in_front_of_good_jobs(worker: StartWorker, many: int) -> None:
    policy = {"max_attempts": 2, "initial_interval": "PT0.01S", "jitter": False}
    crashers = [jobs.segfault.using(retry=policy).enqueue() for _ in range(many)]
    good = [jobs.echo.enqueue(number) for number in range(many)]
    runner = worker("--concurrency=4")
    for job in [*crashers, *good]:
        in_state(job, "discarded", "completed", timeout=30 + many)
    assert {tuple(outcomes(job)) for job in crashers} == {("worker_crash", "worker_crash")}
    assert {(api.get(job).state, api.get(job).attempt) for job in good} == {("completed", 1)}
    assert runner.running
    tally.injected("F52", times=2 * many - 1)


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
    assert ended.result == {"done": 60, "skipped": 0}
    assert ended.checkpoint["of"] == 60
    assert (ended.progress, ended.progress_message) == (1.0, "60 done, 0 left as they are, of 60")
    assert {api.get(job).state for job in many} == {"cancelled"}
    assert api.get(aside).state == "available"


def test_a_result_that_django_writes_as_json(drained: StartWorker) -> None:
    job = jobs.result.enqueue("django")
    drained()
    found = api.get(job)
    assert found.state == "completed", found.error
    assert found.result == {"id": "00000000-0000-0000-0000-000000000001", "price": "1.10"}
