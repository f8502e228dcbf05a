"""Django's tasks with the database backend, from the backport for Django 5.2."""

from __future__ import annotations

from typing import Any

from benchmarks.harness import adapter, config


class Adapter(adapter.Adapter):
    """A worker process per job at a time."""

    installed_apps = ["django_tasks", "django_tasks_db"]
    has_bulk = False

    def settings(self) -> dict[str, Any]:
        return {"TASKS": {"default": {"BACKEND": "django_tasks_db.DatabaseBackend"}}}

    def table(self) -> str:
        """Where its tasks are."""
        from django_tasks_db.models import DBTaskResult

        return str(DBTaskResult._meta.db_table)

    def reset(self) -> None:
        self.sql(f"TRUNCATE {self.table()}")

    def enqueue(self, number: int) -> None:
        from benchmarks.systems.on_tasks_db.tasks import noop

        noop.enqueue(number, "two")

    def worker_commands(self, concurrency: int) -> list[list[str]]:
        command = adapter.command("db_worker", "--no-startup-delay")
        if config.TUNED:
            command += ["--verbosity", "0", "--interval", "0.1"]
        return [command] * concurrency

    def remaining(self) -> int:
        return self.scalar(f"SELECT count(*) FROM {self.table()} WHERE status IN ('READY', 'RUNNING')")
