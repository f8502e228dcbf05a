"""One soak from the first process to the judgement."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import django
from django.core.management import call_command
from django.db import Error, connections
from django.db.models import Count

from tests.clusters.clusters import free_port
from tests.soak import ledger, oracle, plan, remains, servers, workflow_oracle

STARTS_IN = 60.0
DRAINS_IN = 60.0
ENDS_IN = 15.0
LAST_JOBS = 8.0
"""How long there are faults only: what is left of the jobs has less to do after the last of them."""
PROGRESS = 10.0
ENQUEUERS = ("enqueuer", "workflows")
SLACK = timedelta(seconds=5)


class Soak:
    """The fleet on its database, and the clock of the run."""

    def __init__(
        self,
        chosen: argparse.Namespace,
        folder: Path,
        database: servers.Database,
        *,
        run: str,
        alone: bool,
    ) -> None:
        self._chosen, self._folder, self._database = chosen, folder, database
        self._run, self._alone = run, alone
        self._ledger = folder / "ledger"
        django.setup()
        call_command("migrate", verbosity=0)
        from django_ojs.services import tokens
        from tests.soak.injecting import Injector
        from tests.soak.processes import Fleet, roles

        self._port = free_port()
        # Each has its own: a bare report of one must not end an attempt of the other.
        for name in plan.HTTP_WORKERS:
            _, token = tokens.create(name, scopes=("work",), queues=("*",))
            os.environ[plan.token_variable(name)] = token
        places = roles(
            workers=chosen.workers,
            slots=chosen.slots,
            seed=chosen.seed,
            rate=chosen.rate,
            port=self._port,
        )
        environment = {"DJANGO_SETTINGS_MODULE": os.environ["DJANGO_SETTINGS_MODULE"]}
        self._fleet = Fleet(folder, environment, places)
        self._injector = Injector(self._fleet, database, ledger.Reader(self._ledger))
        self._began = time.monotonic()
        self._said = 0.0

    def run(self) -> oracle.Verdict:
        """Load and faults, then only work, then nothing, then the judgement."""
        self._fleet.start_all()
        self._wait_for_work()
        self._say("the fleet works")
        chosen = self._chosen
        self._injector.begin(
            plan.faults(chosen.seed, chosen.seconds, database=chosen.db, workers=chosen.workers)
        )
        late: list[str] = []
        for until in (chosen.seconds - LAST_JOBS, chosen.seconds):
            while self._injector.run() < until:
                self._tend()
                time.sleep(0.05)
            if until < chosen.seconds:
                late += self._fleet.finish(ENQUEUERS, ENDS_IN)
        self._injector.finish()
        self._say("faults are over")
        self._drain()
        names = [name for name in self._fleet.roles if name not in ENQUEUERS]
        late += self._fleet.finish(names, plan.SHUTDOWN + ENDS_IN)
        orphans = self._orphans()
        self._say("everything has ended")
        verdict = self._judge()
        verdict.wrong["not ended by SIGTERM"] = late
        verdict.wrong["orphan processes"] = orphans
        for line in self._injector.news:
            print(f"  {line.splitlines()[0]}")
        return verdict

    def _wait_for_work(self) -> None:
        """Until jobs complete, of both kinds of workers."""
        until = time.monotonic() + STARTS_IN
        while time.monotonic() < until:
            events = Counter(entry.event for entry in ledger.Reader(self._ledger))
            if events["effect"] and events["honoured"]:
                return
            self._fleet.tend()
            time.sleep(0.1)
        raise servers.Missing(f"no work within {STARTS_IN:g} s; see {self._folder}")

    def _drain(self) -> None:
        """Until every job is in its last state, or long enough."""
        until = time.monotonic() + DRAINS_IN
        while time.monotonic() < until:
            states = self._states()
            if states is not None and not sum(states[s] for s in states if s not in oracle.TERMINAL):
                return
            self._tend()
            time.sleep(0.2)

    def _tend(self) -> None:
        """Whatever has ended without our doing is started again, and noted."""
        code = self._database.tend()
        if code is not None:
            ledger.write("left", name="database", code=code)
        self._fleet.tend()
        self._progress()

    def _orphans(self) -> list[str]:
        """Who is still there although everybody was told to go."""
        from tests.support import poll

        def left() -> dict[int, str]:
            return remains.leftovers(self._run, self._database.pids(), alone=self._alone)

        try:
            poll(lambda: not left(), 5, every=0.1)
        except AssertionError:
            return [f"{pid} {command}" for pid, command in left().items()]
        return []

    def _judge(self) -> oracle.Verdict:
        from django_ojs import clock
        from django_ojs.models import Attempt, Job
        from django_ojs.store import invariants
        from tests.soak import workflow_rows

        jobs = [
            oracle.JobRow(
                str(job.id),
                job.type,
                job.state,
                job.result,
                job.error,
                job.queue,
                _promoted_late(job),
                job.workflow_id is not None,
            )
            for job in Job.objects.defer("args", "meta").iterator()
        ]
        attempts = [
            oracle.AttemptRow(
                str(row.job_id),
                row.lease_seq,
                str(row.lease_id),
                row.attempt,
                row.worker_id,
                row.outcome,
                row.started_at,
                row.ended_at,
                row.error,
                row.late_report is not None,
            )
            for row in Attempt.objects.iterator()
        ]
        workflows, members, steps = workflow_rows.read()
        with (self._folder / "rows").open("w") as file:
            file.writelines(
                json.dumps(row, default=str) + "\n"
                for row in [*jobs, *attempts, *workflows, *members, *steps]
            )
        verdict = oracle.judge(
            ledger.Reader(self._ledger),
            jobs,
            attempts,
            backoff=plan.BACKOFF,
            origin=time.time() - ledger.now_ns() / 1e9,
            one_writer=self._chosen.db == "sqlite",
            lasts_at_most=plan.lasts_at_most,
        )
        workflow_oracle.judge(verdict, ledger.Reader(self._ledger), workflows, members, steps)
        findings = invariants.check(now=clock.now("default"), slack=SLACK, using="default")
        verdict.wrong["invariants"] = [f"{f.name} {f.rule}: {', '.join(f.examples)}" for f in findings]
        return verdict

    def _states(self) -> Counter[str] | None:
        """Jobs by state; nothing while the database is away."""
        from django_ojs.models import Job

        try:
            counted = Job.objects.values_list("state").annotate(n=Count("id")).order_by()
            return Counter(dict(counted))
        except Error:
            return None
        finally:
            connections["default"].close()

    def _progress(self) -> None:
        if time.monotonic() - self._said < PROGRESS:
            return
        states = self._states()
        if states is None:
            self._say("the database is away")
            return
        total = sum(states.values())
        done = sum(states[state] for state in oracle.TERMINAL)
        faults = self._injector.injected
        self._say(f"{total} jobs, {done} finished, {total - done} live, {faults} faults")

    def _say(self, text: str) -> None:
        self._said = time.monotonic()
        print(f"  {self._said - self._began:5.0f} s  {text}", flush=True)


def _promoted_late(job: Any) -> bool:
    """Whether a job that never started became available after its time to start."""
    if job.attempt or job.enqueue_ttl_ms is None or job.enqueued_at is None:
        return False
    return bool(job.enqueued_at >= job.limits_from + timedelta(milliseconds=job.enqueue_ttl_ms))
