"""django-ojs, on each of the databases."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from benchmarks.harness import adapter, config

OWN = {
    "replay_enqueue": "replay",
    "mixed": "mixed",
    "reap_pass": "upkeep",
    "beats": "upkeep",
    "idle_tick": "upkeep",
    "scaled_drain": "scaled",
    "claim_pairs": "claims",
    "claim_locks": "claims",
    "spread_drain": "claims",
    "large_drain": "claims",
    "mixed_drain": "claims",
    "new_queue": "claims",
    "batch_enqueue": "workflows",
    "batch_drain": "workflows",
    "option_enqueue": "options",
    "limited_drain": "options",
    "slots_drain": "options",
    "task_enqueue": "as_tasks",
    "task_drain": "as_tasks",
    "writers": "writers",
    "writers_pickup": "writers",
    "prune_load": "pruning",
    "crowd": "crowd",
    "http_create": "web_load",
    "http_work": "web_load",
}
"""Workloads of ours only, and the module beside this one that has them."""
TASKS = ("task_enqueue", "task_drain")
"""Those that need a backend of ``django.tasks``: others are measured without what it loads."""
TUNED: dict[str, Any] = {"EXECUTOR_MAX_JOBS": 1_000_000}
"""The settings of the tuned profile, besides kept connections and no line per job."""
_TABLES = tuple(
    f"django_ojs_{name}"
    for name in (
        *("job", "attempt", "event", "minutestat", "uniquekey"),
        *("ratelimit", "ratelimitplace", "ratelimitstart", "ratelimitdue"),
    )
)
_NEVER = 10**12
"""The number of an attempt that no measurement comes to."""
_BEFORE_DONE = ("available", "active", "scheduled", "retryable", "pending")


class Adapter(adapter.Adapter):
    """The project's defaults; ``tuned`` keeps connections and executors, and logs warnings only.

    A second worker on two processors would take a sixth more of them for the same rate.
    """

    installed_apps = [
        "django.contrib.contenttypes",
        "django.contrib.auth",
        "rest_framework",
        "django_ojs",
    ]

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.database = self.variant if self.variant in ("sqlite", "mariadb") else "pg"
        self.keeps_rows = self.variant == "history"
        self.processes = 1

    @property
    def own(self) -> Mapping[str, Callable[..., dict[str, Any]]]:
        """Each is imported when it is asked for."""
        return {name: _Later(f"{self.package}.{module}", name) for name, module in OWN.items()}

    def settings(self) -> dict[str, Any]:
        """What differs from the defaults comes from the goal; a web server keeps connections."""
        settings: dict[str, Any] = {
            "OJS": {**(TUNED if config.TUNED else {}), **config.OJS},
        }
        if config.WORKLOAD in TASKS:
            backend = {"BACKEND": "django_ojs.tasks_backend.OJSBackend", "QUEUES": []}
            settings["TASKS"] = {"default": backend}
        if self.variant == "http":
            settings |= {
                "ROOT_URLCONF": f"{self.package}.web",
                "MIDDLEWARE": ["django.middleware.common.CommonMiddleware"],
                "DATABASES": {"default": {**self.django_database(), "CONN_MAX_AGE": 60}},
                # Counted as ever, but not the limit that is looked for.
                "OJS": {**config.OJS, "HTTP": {"ENQUEUE_RATE": 1_000_000}},
            }
        return settings

    def install(self) -> None:
        """Our tables, and for ``ojs.history`` the rows."""
        adapter.manage("migrate", "--run-syncdb", "--verbosity", "0")
        if self.variant == "history":
            import django

            django.setup()
            import_module(f"{self.package}.filling").fill(self)

    def reset(self) -> None:
        """Nothing has ever happened, but queues are known."""
        from django.db import connection

        with connection.cursor() as cursor:
            if self.database == "pg":
                cursor.execute(f"TRUNCATE {', '.join(_TABLES)} CASCADE")
            else:
                for table in _TABLES:
                    cursor.execute(f"DELETE FROM {table}")

    def enqueue(self, number: int) -> None:
        """As an application does it."""
        from benchmarks.systems.on_ojs.jobs import noop

        noop.enqueue(number, "two")

    def enqueue_limited(self, number: int, seconds: int) -> None:
        """With a second of grace for what ignores its soft timeout."""
        from benchmarks.systems.on_ojs.jobs import noop

        noop.using(timeout=seconds, grace_period=1, retry={"max_attempts": 1}).enqueue(number, "two")

    def enqueue_batch(self, numbers: range) -> None:
        """Validated like single ones."""
        from benchmarks.systems.on_ojs.jobs import noop

        noop.enqueue_many([(number, "two") for number in numbers])

    def worker_commands(self, concurrency: int) -> list[list[str]]:
        """``runworker``; ``BENCH_WORKER`` has more options, for experiments."""
        extra = os.environ.get("BENCH_WORKER", "").split()
        quiet = ["--verbosity", "0"] if config.TUNED else []
        command = adapter.command("runworker", "--concurrency", str(concurrency), *quiet, *extra)
        return [command] * self.processes

    def remaining(self) -> int:
        """Everything that is neither completed nor given up; one probe of an index per state.

        Beside a history and a backlog it is how many attempts are left until :data:`_NEVER`, which one
        probe tells too: to count the jobs keeps both processors busy for a tenth of a drain.
        """
        from django.db import connection

        counts = (
            f"(SELECT count(*) FROM django_ojs_job WHERE state = '{state}')" for state in _BEFORE_DONE
        )
        left = " + ".join(counts)
        if self.variant == "history":
            left = f"{_NEVER} - max(id) FROM django_ojs_attempt"
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT {left}")
            return int(cursor.fetchone()[0])


class _Later:
    """A function of a module that is not imported yet."""

    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name

    def __call__(self, *arguments: Any, **options: Any) -> dict[str, Any]:
        found: dict[str, Any] = getattr(import_module(self._module), self._name)(*arguments, **options)
        return found
