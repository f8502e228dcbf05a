"""Random verbs under rate limits by several processes, and a watcher: ``python -m tests.soak.limits``.

A hundred keys with limits of one to three, two queues of which one has a limit of its own. Every
process enqueues, claims, settles, cancels, edits, retries, promotes, pauses and rolls back at random,
while the watcher counts every 10 ms who runs and who has a place. When the verbs stop, nobody may be
held for longer than a second who could be let in; then all that is left is worked off.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import secrets
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

KEYS = 100
PROCESSES = 8
QUEUES = ("open", "limited")
OF_QUEUE = 25
"""The limit of the second queue."""
_LOOK = 0.01
_WITHIN = 1.0


def limit_of(number: int) -> dict[str, Any]:
    """The rate limit of the key of this number."""
    return {"key": f"k{number}", "concurrency": 1 + number % 3}


LIMITS = {f"k{number}": 1 + number % 3 for number in range(KEYS)} | {"queue:limited": OF_QUEUE}


class RolledBack(Exception):
    """On purpose."""


class Verbs:
    """One process: verbs at random, for so long."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.name = f"w{seed}"
        self.mine: list[Any] = []
        self.counts: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()

    def run(self, seconds: float) -> None:
        """Make verbs until the time is over; what is still claimed is given back."""
        from django.db import DatabaseError

        from django_ojs.domain.errors import OJSError
        from django_ojs.store.contention import is_contention

        verbs = [*[self.enqueue] * 4, *[self.claim] * 5, *[self.settle] * 5, self.cancel, self.edit]
        verbs += [
            *[self.enqueue_many] * 3,
            self.promote,
            self.retry,
            self.roll_back,
            self.pause,
            self.admit,
        ]
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            verb = self.random.choice(verbs)
            try:
                verb()
                self.counts[verb.__name__] += 1
            except (OJSError, RolledBack):
                self.counts[f"{verb.__name__} refused"] += 1
            except DatabaseError as error:
                # On SQLite, with eight writers, some wait for longer than they may.
                name = "waited too long" if is_contention(error) else repr(error)[:300]
                self.errors[name] += 1
        while self.mine:
            with suppress(DatabaseError):
                self.settle()

    def options(self) -> dict[str, Any]:
        """Where the next job goes, and what limits it."""
        options: dict[str, Any] = {
            "queue": self.random.choice(QUEUES),
            "priority": self.random.randint(-1, 1),
            "grace_period": 0,
            "retry": {"max_attempts": 2, "initial_interval": 0.05, "jitter": False},
        }
        if self.random.random() < 0.8:
            options["rate_limit"] = limit_of(int(KEYS * self.random.random() ** 3))
        if self.random.random() < 0.1:
            options["delay"] = 0.1
        return options

    def enqueue(self) -> None:
        """One job, unless many wait."""
        from django_ojs import enqueue
        from django_ojs.models import Job

        if Job.objects.filter(state="available").count() < 2000:
            enqueue("test.job", [], **self.options())

    def enqueue_many(self) -> None:
        """Some of one key."""
        from django_ojs import enqueue_many
        from django_ojs.models import Job

        if Job.objects.filter(state="available").count() < 2000:
            enqueue_many("test.job", [[n] for n in range(self.random.randint(2, 8))], **self.options())

    def roll_back(self) -> None:
        """Some verbs that come to nothing."""
        from django.db import transaction

        with transaction.atomic():
            self.enqueue()
            self.cancel()
            raise RolledBack

    def claim(self) -> None:
        """A few jobs, of one queue or of both."""
        from django_ojs.services.claim import claim, sources

        if len(self.mine) >= 20:
            return
        queues = self.random.sample(QUEUES, self.random.randint(1, 2))
        self.mine += claim(
            sources(queues, {"test.job"}),
            limit=self.random.randint(1, 5),
            worker_id=self.name,
            beats=False,
        )

    def settle(self) -> None:
        """Report some of those that this process has."""
        from django_ojs.domain.failures import Failure
        from django_ojs.domain.leases import Lease
        from django_ojs.services.settle import Outcome, Report, settle

        self.random.shuffle(self.mine)
        some = self.mine[: self.random.randint(1, 4)]
        outcomes = []
        for job in some:
            kind = self.random.choice([*[Report.ACK] * 6, Report.FAIL, Report.REQUEUE, Report.RELEASE])
            failure = Failure("test.Error", "no") if kind is Report.FAIL else None
            claimed = job if self.random.random() < 0.5 else None
            outcomes.append(Outcome(Lease(job.id, job.lease_id), kind, None, failure, claimed))
        if outcomes:
            settle(outcomes)
            self.mine = self.mine[len(some) :]

    def cancel(self) -> None:
        """Some job that waits or runs."""
        from django_ojs.services import operate

        if found := self._some("available", "active"):
            operate.cancel(found)

    def edit(self) -> None:
        """Another priority, or another queue."""
        from django_ojs.services import operate

        if found := self._some("available", "scheduled", "retryable"):
            changes: list[dict[str, Any]] = [
                {"priority": self.random.randint(-5, 5)},
                {"queue": self.random.choice(QUEUES)},
            ]
            operate.edit(found, self.random.choice(changes))

    def retry(self) -> None:
        """A discarded job, a new life."""
        from django_ojs.services import operate

        if found := self._some("discarded"):
            operate.retry_dead(found)

    def promote(self) -> None:
        """What is due."""
        from django_ojs.services.promote import promote

        promote(seconds=0.1)

    def pause(self) -> None:
        """A queue, for a moment."""
        from django_ojs.services import queues

        queues.pause(["open"])
        time.sleep(0.01)
        queues.resume(["open"])

    def admit(self) -> None:
        """What workers do five times a second."""
        from django_ojs.services.rate_limits import admission

        admission.admit_due(seconds=0.1, using="default")

    def _some(self, *states: str) -> list[Any]:
        from django_ojs.models import Job

        rows = Job.objects.filter(state=self.random.choice(states)).order_by("id")
        found = list(rows.values_list("pk", flat=True)[:50])
        return self.random.sample(found, min(len(found), self.random.randint(1, 3)))


def too_many() -> Iterator[str]:
    """Keys of which more run, or have a place, than the limit allows; by the jobs themselves."""
    from django.db.models import Count

    from django_ojs.models import Job, RateLimitPlace

    status = RateLimitPlace.Status
    running: Counter[str] = Counter()
    for queue, extra in Job.objects.filter(state="active").values_list("queue", "extra"):
        if (asked := extra.get("rate_limit")) is not None:
            running[asked["key"]] += 1
        if queue == "limited":
            running["queue:limited"] += 1
    for key, count in running.items():
        if count > LIMITS[key]:
            yield f"{count} of {key} run"
    taken = RateLimitPlace.objects.filter(status__in=(status.ADMITTED, status.RUNNING, status.ENDING))
    for key, count in taken.values_list("key").annotate(Count("pk")).order_by():
        if count > LIMITS[key]:
            yield f"{count} of {key} have a place"


def left_waiting() -> list[str]:
    """Keys with room under which somebody waits."""
    from django_ojs import clock
    from django_ojs.models import RateLimitPlace

    status, now = RateLimitPlace.Status, clock.now("default")
    taken: Counter[str] = Counter()
    waiting: Counter[str] = Counter()
    for key, one, until in RateLimitPlace.objects.values_list("key", "status", "until"):
        waiting[key] += one == status.WAITING
        over = until is not None and until < now - timedelta(seconds=_WITHIN / 2)
        taken[key] += one in (status.ADMITTED, status.RUNNING, status.ENDING) and not over
    return [key for key in waiting if waiting[key] and taken[key] < LIMITS[key]]


def watch(seconds: float, seed: int, processes: int) -> dict[str, Any]:
    """Run the processes, look on, judge; what was found, by rule."""
    from django_ojs import clock
    from django_ojs.models import Job
    from django_ojs.services.rate_limits import operate

    operate.override("queue:limited", {"concurrency": OF_QUEUE})
    with tempfile.TemporaryDirectory(prefix="ojs-limits-") as folder:
        verbs = [sys.executable, "-m", "tests.soak.limits", f"--seconds={seconds:g}", "--verbs"]
        paths = [Path(folder, f"{number}.json") for number in range(processes)]
        started = [
            subprocess.Popen([*verbs, f"--seed={seed + number}", f"--json={path}"])
            for number, path in enumerate(paths)
        ]
        wrong: Counter[str] = Counter()
        looks = 0
        while any(process.poll() is None for process in started):
            wrong.update(too_many())
            looks += 1
            clock.pause(_LOOK)
        died = [process.returncode for process in started if process.returncode]
        told = [json.loads(path.read_text()) for path in paths if path.exists()]
    stuck = _settled()
    left = _drained()
    counts, errors = Counter[str](), Counter[str]()
    for one in told:
        counts.update(one["counts"])
        errors.update(one["errors"])
    waits = errors.pop("waited too long", 0)
    return {
        "verbs": dict(counts),
        "looks": looks,
        "waited too long": waits,
        "jobs": Job.objects.count(),
        "wrong": {
            "over the limit": dict(wrong),
            "errors": dict(errors),
            "processes that died": died,
            "left waiting beside room": stuck,
            "not worked off": left,
        },
    }


def _settled() -> list[str]:
    """What is left waiting beside room a second after the last verb, with what workers do meanwhile."""
    from django_ojs.services import queues
    from django_ojs.services.rate_limits import admission

    queues.resume(["open"])
    until = time.monotonic() + _WITHIN
    while time.monotonic() < until:
        admission.admit_due(seconds=0.1, using="default")
        time.sleep(0.1)
    return left_waiting()


def _drained() -> list[str]:
    """Work everything off; what could not be."""
    from django_ojs.models import Job, RateLimitPlace

    worker = Verbs(0)
    steps: list[Callable[[], None]] = [worker.promote, worker.admit, worker.claim, worker.settle]
    until = time.monotonic() + 120
    while time.monotonic() < until:
        for step in steps:
            step()
        open_jobs = Job.objects.exclude(state__in=("completed", "cancelled", "discarded"))
        if not open_jobs.exists():
            break
    places = RateLimitPlace.objects.exclude(status=RateLimitPlace.Status.ENDING)
    found = [f"{job.state} {job.pk}, held: {job.held}" for job in open_jobs.all()[:20]]
    return found + [f"a place of {place.job_id} under {place.key}" for place in places[:20]]


def main() -> int:
    """The watcher with its processes, or one of these."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.limits", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--processes", type=int, default=PROCESSES)
    parser.add_argument("--db", choices=("pg", "mariadb", "sqlite"))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--verbs", action="store_true", help="be one of the processes")
    chosen = parser.parse_args()
    seed = secrets.randbelow(1_000_000) if chosen.seed is None else chosen.seed
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    if chosen.db is None:
        return _in_database(chosen, seed)
    from tests.soak import servers

    with tempfile.TemporaryDirectory(prefix="ojs-soak-") as folder:
        Path(folder).chmod(0o755)
        database = servers.KINDS[chosen.db](Path(folder))
        os.environ["DATABASE_URL"] = database.url
        database.start()
        try:
            subprocess.run(
                [sys.executable, "manage.py", "migrate", "--verbosity=0"],
                check=True,
                env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"},
            )
            return _in_database(chosen, seed)
        finally:
            database.stop()


def _in_database(chosen: argparse.Namespace, seed: int) -> int:
    import django

    django.setup()
    logging.disable(logging.ERROR)
    if chosen.verbs:
        verbs = Verbs(seed)
        verbs.run(chosen.seconds)
        chosen.json.write_text(json.dumps({"counts": verbs.counts, "errors": verbs.errors}))
        return 0
    print(f"limits: {chosen.seconds:g} s, seed {seed}", flush=True)
    found = watch(chosen.seconds, seed, chosen.processes)
    text = json.dumps(found, indent=2)
    print(text, flush=True)
    if chosen.json is not None:
        chosen.json.write_text(text)
    return 1 if any(found["wrong"].values()) else 0


if __name__ == "__main__":
    sys.exit(main())
