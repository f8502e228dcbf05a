"""What a type checker says of calls of the Python API: a misspelt option is an error."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from django_ojs.domain import options
from django_ojs.domain.limits import CONFIGURABLE, KEYS, NAMES
from django_ojs.domain.unique import UNIQUE_OPTIONS
from django_ojs.services.query import JobFilters, JobQuery
from django_ojs.tasks_backend.task import OJSTask

ROOT = Path(__file__).parents[2]
SAID = "  # said: "

CALLS = """\
from datetime import timedelta

import django_ojs
from django_ojs import JobContext, job, step
from django_ojs.tasks_backend import limits, task


@job("mail.send", timeout=30, retry={"max_attempts": 3}, on_partition="stop", heartbeat="manual")
def send(ctx: JobContext, to: str, *, urgent: bool = False) -> int:
    return len(to)


@job("mail.sort", timout=30)  # said: "timout"
def sort() -> None: ...


@job("mail.drop", on_partition="halt")  # said: overload
def drop() -> None: ...


@job
def count(ctx: JobContext, n: int) -> int:
    return n


@job("mail.fill")
def fill(ctx: JobContext, template: str, **values: int) -> None: ...


@job
def note(ctx: JobContext, **values: object) -> None: ...


@job("mail.plain")
def plain(ctx: str, **values: int) -> None: ...


@job
async def wait(ctx: JobContext) -> None: ...


@task(timeout="10m", max_attempts=5, queue_name="mail")
def collect(n: int) -> int:
    return n


@task(timeuot=5)  # said: "timeuot"
def lose() -> None: ...


@limits(total_timeout="1h", backoff="10s")
def bounded() -> None: ...


@limits(total_timeuot="1h")  # said: "total_timeuot"
def unbounded() -> None: ...


late = send.using(delay=timedelta(minutes=1), timeout="5m", timeout_ms=5000, meta={"a": 1}, id=None)
late.enqueue("ada", urgent=True)
late.enqueue(1)  # said: incompatible type "int"
late.enqueue("ada", urgnet=True)  # said: "urgnet"
count.enqueue(1)
count.enqueue("one")  # said: incompatible type "str"; expected "int"
fill.enqueue("welcome", year=2026)
fill.enqueue("welcome", year="now")  # said: incompatible type "str"; expected "int"
fill.enqueue(year=2026)  # said: "template"
note.enqueue(a=1)
plain.enqueue("x", a=1)
plain.enqueue(a=1)  # said: "ctx"
wait.enqueue()
send.using(tiemout=5)  # said: "tiemout"
send.using(timeout=[5])  # said: "timeout"
collect.using(delay="5m", priority=3).enqueue(1)
collect.using(dealy="5m")  # said: "dealy"
django_ojs.enqueue("mail.send", ["ada"], kwargs={"urgent": True}, queue="mail", pending=True)
django_ojs.enqueue("mail.send", ["ada"], queu="mail")  # said: "queu"
django_ojs.enqueue_many("mail.send", [["ada"], {"to": "bob"}], priority=3)
django_ojs.enqueue_many("mail.send", [["ada"]], priorty=3)  # said: "priorty"
django_ojs.enqueue_on_commit("mail.send", ["ada"], dleay=3)  # said: "dleay"
step("mail.send", ["ada"], when="ended")
step("mail.send", ["ada"], when="finished")  # said: "when"
django_ojs.chain(step("mail.send", ["ada"])).enqueue_on_commit(nmae="x")  # said: "nmae"
django_ojs.jobs(state="discarded", since="1d", limit=5)
django_ojs.jobs(sinse="1d")  # said: "sinse"


async def more() -> int:
    found = await django_ojs.aenqueue("mail.send", ["ada"], tags=["a"])
    await django_ojs.aenqueue("mail.send", ["ada"], tag=["a"])  # said: "tag"
    return found.attempt
"""


@pytest.mark.long
def test_a_type_checker_refuses_what_a_call_would(tmp_path: Path) -> None:
    file = tmp_path / "calls.py"
    file.write_text(CALLS)
    command = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", str(file)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    found: dict[int, str] = {}
    for line in run.stdout.splitlines():
        # From its cache mypy repeats errors of the same text under the path of the run before.
        if said := re.search(r"calls\.py:(\d+): error: (.*)", line):
            number = int(said[1])
            found[number] = found.get(number, "") + said[2]
    wanted = {
        number: line.partition(SAID)[2]
        for number, line in enumerate(CALLS.splitlines(), 1)
        if SAID in line
    }
    assert found.keys() == wanted.keys(), run.stdout + run.stderr
    for number, word in wanted.items():
        assert word in found[number]


def test_the_types_have_every_name_that_is_known_at_run_time() -> None:
    assert set(options.names(options.LimitOptions)) == set(CONFIGURABLE)
    assert set(options.names(options.UniqueOptions)) == set(UNIQUE_OPTIONS)
    assert set(options.names(options.EnqueueOptions)) >= set(KEYS)
    assert set(options.names(options.TaskLimits)) >= set(CONFIGURABLE)
    assert set(options.names(JobFilters)) == {field.name for field in fields(JobQuery)}
    task = {field.name for field in fields(OJSTask)}
    fixed = {"func", "run_after", "id"}
    assert set(options.names(options.TaskOptions)) == task - fixed
    fixed = {"func", "type", "takes_context", "heartbeat", "soft", "isolate", "on_partition"}
    assert set(options.names(options.TaskUsingOptions)) - {"delay"} == task - fixed
    assert set(NAMES) <= set(options.names(options.StepOptions))
