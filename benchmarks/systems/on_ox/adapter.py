"""django-ox on PostgreSQL, under Django's own tasks framework."""

from __future__ import annotations

from typing import Any

from benchmarks.harness import adapter, config


class Adapter(adapter.Adapter):
    """Worker processes under its supervisor."""

    installed_apps = ["django_ox"]

    def settings(self) -> dict[str, Any]:
        return {"TASKS": {"default": {"BACKEND": "django_ox.backend.OxBackend"}}}

    def reset(self) -> None:
        from django_ox.models import OxTask

        self.sql(f"TRUNCATE {OxTask._meta.db_table} CASCADE")

    def enqueue(self, number: int) -> None:
        from benchmarks.systems.on_ox.tasks import noop

        noop.enqueue(number, "two")

    def enqueue_batch(self, numbers: range) -> None:
        from django_ox.bulk import enqueue_many

        from benchmarks.systems.on_ox.tasks import noop

        enqueue_many(noop, [((number, "two"), {}) for number in numbers])

    def worker_commands(self, concurrency: int) -> list[list[str]]:
        command = adapter.command("ox_worker", "--processes", str(concurrency))
        return [[*command, "--interval", "0.1"] if config.TUNED else command]

    def remaining(self) -> int:
        from django_ox.models import OxTask

        return self.scalar(
            f"SELECT count(*) FROM {OxTask._meta.db_table} WHERE status IN ('READY', 'RUNNING')"
        )
