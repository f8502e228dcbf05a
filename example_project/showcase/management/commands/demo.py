"""``demo``: every kind of job on a real worker, and what became of each."""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from django_ojs import (
    JobHandler,
    State,
    cancel,
    cancel_workflow,
    clock,
    get_workflow,
    resume_workflow,
)
from django_ojs.models import Job, Workflow
from example_project.showcase import incident, jobs, misbehave, outcome, readings
from example_project.showcase.models import Reading, Thumbnail
from example_project.showcase.outcome import Planned
from example_project.showcase.overview import PICTURE
from example_project.showcase.processes import Processes, poll

FINISHED = (State.COMPLETED, State.CANCELLED, State.DISCARDED)
FOLDERS = ("mail", "thumbnails", "reports", "demo")
REPAIRED = "demo/repaired"
"""The file that a step of the workflow waits for, in vain at first."""


class Command(BaseCommand):
    """Exit 0 when all went as it should, 1 otherwise, with what was wrong."""

    help = "Run the example's jobs, good and bad, on a worker and a reaper; ends with a table."

    def add_arguments(self, parser: CommandParser) -> None:
        """How long to wait."""
        parser.add_argument(
            "--seconds", type=float, default=45, help="longest wait for all jobs (default 45)"
        )
        parser.add_argument(
            "--incident",
            action="store_true",
            help="a bad deploy instead, for a look at the admin: it leaves what it did",
        )
        parser.add_argument(
            "--failures", type=int, default=30_000, help="jobs that fail in it (default 30,000)"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Prepare, run, look."""
        if options["failures"] < 3:
            raise CommandError("--failures: must be at least 3, one for each reason")
        began = clock.boottime()
        self.var = Path(settings.VAR_DIR)
        self._prepare()
        self.processes = Processes(f"{clock.now('default'):%Y%m%dT%H%M%S.%f}", self.var / "demo")
        if options["incident"]:
            self._incident(options["failures"], options["seconds"], began)
            return
        found: list[str] = []
        try:
            planned = self._enqueue()
            found += self._run(planned, options["seconds"])
        finally:
            found += self.processes.stop()
        if not poll(lambda: not self.processes.alive(), 5):
            found += [f"still running: {line}" for line in self.processes.alive()]
        rows = outcome.lines(planned)
        self.stdout.write("\n" + outcome.table(rows) + "\n")
        for item in outcome.fired(planned):
            self.stdout.write(str(item))
        found += outcome.wrong(planned, rows) + list(self._wrong_files())
        seconds = clock.boottime() - began
        for sentence in found:
            self.stdout.write(self.style.ERROR(f"wrong: {sentence}"))
        if found:
            self.stdout.write(f"demo finished: {len(found)} things went wrong, {seconds:.1f} s")
            self.stdout.write(f"the logs are in {self.var / 'demo'}")
            sys.exit(1)
        self.stdout.write(
            f"demo finished: {len(rows)} jobs, a workflow and five timeouts as expected, "
            f"{Reading.objects.count():,} readings imported, no process left, {seconds:.1f} s"
        )

    def _incident(self, failures: int, patience: float, began: float) -> None:
        """What an operator finds in the admin; leaves it there."""
        try:
            deploy = incident.Deploy(failures, failures // 10)
            found = incident.happen(deploy, self.processes, self.stdout.write, patience)
        finally:
            left = self.processes.stop()
        for sentence in found + left:
            self.stdout.write(self.style.ERROR(f"wrong: {sentence}"))
        seconds = clock.boottime() - began
        self.stdout.write(f"incident finished in {seconds:.1f} s: look at it with make serve")
        if found + left:
            sys.exit(1)

    def _prepare(self) -> None:
        """Forget what an earlier demo made, and cancel what one that was broken off left."""
        running = Workflow.objects.filter(name="overview", state="running")
        for workflow_id in running.values_list("id", flat=True):
            cancel_workflow(workflow_id, reason="left by an earlier demo", by="demo")
        left = Job.objects.filter(queue__startswith="example.").exclude(state__in=FINISHED)
        for job_id in left.values_list("id", flat=True):
            cancel(str(job_id), reason="left by an earlier demo", by="demo")
        Reading.objects.all().delete()
        Thumbnail.objects.all().delete()
        for folder in FOLDERS:
            shutil.rmtree(self.var / folder, ignore_errors=True)

    def _enqueue(self) -> list[Planned]:
        """Start with the import, so that there is something to kill it in the middle of."""
        self.workflow = jobs.overview(REPAIRED).enqueue()
        members = Job.objects.filter(workflow_id=self.workflow.id).order_by("workflow_step")
        self.imports = [Planned(job.id, f"import {job.args[0]}") for job in members]
        planned = [*self.imports, self._plan("report", jobs.report)]
        planned += [
            self._plan(f"thumbnail {path.name}", jobs.thumbnail, path.name)
            for path in sorted(jobs.PICTURES.glob("*.jpg"))
        ]
        planned += [
            self._plan(
                "mail",
                jobs.send_mail,
                "you@example.com",
                "The demo is running",
                "This message was sent by a job.",
            ),
            self._plan("loop", misbehave.loop, error="timeout", timeout="execution"),
            self._plan("swallow", misbehave.swallow, error="timeout", timeout="execution, hard"),
            self._plan("c-call", misbehave.c_call, error="timeout"),
            self._plan("too-long", misbehave.too_long, error="total_timeout", timeout="total"),
            self._plan(
                "unserved", misbehave.unserved, error="enqueue_ttl_expired", timeout="enqueue TTL"
            ),
            self._plan("silent", misbehave.silent, error="stalled", timeout="heartbeat"),
            self._plan("children", misbehave.children),
            self._plan("crash exit", misbehave.crash, "exit", error="worker_crash"),
            self._plan("crash segfault", misbehave.crash, "segfault", error="worker_crash"),
        ]
        self.stdout.write(f"{len(planned)} jobs enqueued, {self.workflow.open - 2} wait in a workflow")
        return planned

    def _plan(
        self,
        label: str,
        handler: JobHandler[Any, Any],
        *arguments: Any,
        error: str | None = None,
        timeout: str | None = None,
    ) -> Planned:
        return Planned(handler.enqueue(*arguments).id, label, error, timeout)

    def _run(self, planned: list[Planned], seconds: float) -> list[str]:
        """Start the workers and wait until every job has ended; what went wrong on the way."""
        importer = ("runworker", "--queue", "example.imports", "--shutdown-timeout", "5")
        self.processes.start("reaper", "reap_timeouts", "--loop")
        first = self.processes.start("importer-1", *importer)
        self.processes.start(
            "worker", "runworker", "--queue", "example.work", "--queue", misbehave.QUEUE,
            "--concurrency", "4", "--shutdown-timeout", "5",
        )  # fmt: skip
        found = []
        self.stdout.write(
            "a reaper and two workers started; waiting for the imports to be on their way"
        )
        if poll(self._half_way, 20, 0.02):
            first.send_signal(signal.SIGKILL)
            first.wait()
            self.stdout.write("killed the importing worker with SIGKILL, started another")
        else:
            found.append("the import had not begun after 20 s")
        self.processes.start("importer-2", *importer)
        found += self._resume(seconds)
        planned += self._later_steps()
        ids = [plan.id for plan in planned]
        if not poll(lambda: not _unfinished(ids), seconds):
            found.append(f"{_unfinished(ids)} jobs had not ended after {seconds:g} s")
        ended = [name for name in self.processes.ended() if name != "importer-1"]
        found += [f"{name} ended by itself, see its log" for name in ended]
        if not poll(lambda: not self.processes.alive("sleep "), 3):
            found.append("processes that a job started outlived it")
        found += self._not_resumed()
        return found

    def _resume(self, seconds: float) -> Iterator[str]:
        """Wait until a step of the workflow has timed out, mend what it waited for, resume it."""
        if not poll(lambda: get_workflow(self.workflow).finished_at, seconds):
            yield f"the workflow had not ended after {seconds:g} s"
            return
        ended = get_workflow(self.workflow)
        codes = [error["code"] for error in ended.errors]
        if (ended.state, ended.completed, ended.cancelled, codes) != ("failed", 3, 1, ["timeout"]):
            yield f"the workflow is {ended}, not failed by the timeout of its fourth step"
            return
        self.stdout.write("a step of the workflow has timed out and the last one did not start")
        (self.var / REPAIRED).touch()
        resume_workflow(ended, reason="what it waited for is there", by="demo")
        self.stdout.write("resumed the workflow")
        if not poll(lambda: get_workflow(self.workflow).finished_at, seconds):
            yield f"the resumed workflow had not ended after {seconds:g} s"
        ended = get_workflow(self.workflow)
        if (ended.state, ended.completed, ended.runs) != ("completed", 5, 2):
            yield f"the resumed workflow is {ended}, not completed"

    def _later_steps(self) -> list[Planned]:
        """The jobs of the workflow that were enqueued when those before them had ended."""
        imports = [plan.id for plan in self.imports]
        later = Job.objects.filter(workflow_id=self.workflow.id).exclude(id__in=imports)
        return [Planned(job.id, _label(job)) for job in later.order_by("created_at")]

    def _half_way(self) -> bool:
        ids = [plan.id for plan in self.imports]
        rows = [(saved or {}).get("rows", 0) for saved in _checkpoints(ids)]
        return min(rows) >= 1200 and _unfinished(ids) == len(ids)

    def _not_resumed(self) -> Iterator[str]:
        """The result of an import is what its last attempt still had to do."""
        for plan in self.imports:
            job = Job.objects.get(id=plan.id)
            rows = (job.checkpoint or {}).get("rows", 0)
            if job.attempt < 2 or (job.result or 0) > rows - 1200:
                yield f"{plan.label} was not resumed from its checkpoint after the kill"

    def _wrong_files(self) -> Iterator[str]:
        count, expected = Reading.objects.count(), readings.expected()
        if count != expected:
            yield f"{count} readings in the database, {expected} in the files"
        for path in jobs.PICTURES.glob("*.jpg"):
            made = Thumbnail.objects.filter(picture=path.name).first()
            if made is None or not (self.var / made.path).is_file():
                yield f"{path.name} has no thumbnail"
        mails = [path for path in (self.var / "mail").glob("*") if path.is_file()]
        if not any("This message was sent by a job." in path.read_text() for path in mails):
            yield "no mail was sent"
        if not (self.var / PICTURE).is_file():
            yield "the overview was not drawn"
        said = "".join(path.read_text() for path in mails)
        for subject in ("The overview failed", "The overview is ready"):
            if said.count(f"Subject: {subject}") != 1:
                yield f"no mail or several say {subject!r}"
        report = self.var / "reports" / "temperatures.md"
        if not report.is_file() or report.read_text(encoding="utf-8").count("| January |") != 2:
            yield "the report is missing or incomplete"


def _label(job: Job) -> str:
    is_callback = (job.workflow_step or 0) < 0
    return "overview failed" if is_callback else job.type.removeprefix("example.")


def _unfinished(ids: list[UUID]) -> int:
    return Job.objects.filter(id__in=ids).exclude(state__in=FINISHED).count()


def _checkpoints(ids: list[UUID]) -> list[Any]:
    return list(Job.objects.filter(id__in=ids).values_list("checkpoint", flat=True))
