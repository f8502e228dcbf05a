"""Procrastinate's Django app on PostgreSQL."""

from __future__ import annotations

from benchmarks.harness import adapter


class Adapter(adapter.Adapter):
    """A process per job at a time, as its documentation has it."""

    installed_apps = ["procrastinate.contrib.django"]

    def reset(self) -> None:
        self.sql("TRUNCATE procrastinate_jobs, procrastinate_events, procrastinate_workers CASCADE")

    def enqueue(self, number: int) -> None:
        from benchmarks.systems.on_procrastinate.tasks import noop

        noop.defer(number=number, label="two")

    def enqueue_batch(self, numbers: range) -> None:
        from benchmarks.systems.on_procrastinate.tasks import noop

        noop.batch_defer(*({"number": number, "label": "two"} for number in numbers))

    def worker_commands(self, concurrency: int) -> list[list[str]]:
        return [adapter.command("procrastinate", "worker")] * concurrency

    def remaining(self) -> int:
        return self.scalar("SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')")
