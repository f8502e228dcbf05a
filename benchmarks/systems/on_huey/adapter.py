"""huey through djhuey, on a SQLite file. It keeps no record of a task that returns nothing."""

from __future__ import annotations

from typing import Any

from benchmarks.harness import adapter, config


class Adapter(adapter.Adapter):
    """Worker processes, as for work that keeps a processor busy."""

    installed_apps = ["huey.contrib.djhuey"]
    database = "none"
    has_bulk = False

    def settings(self) -> dict[str, Any]:
        return {
            "HUEY": {
                "name": "bench",
                "immediate": False,
                "huey_class": "huey.SqliteHuey",
                "connection": {"filename": str(config.scratch() / f"{self.slug}.sqlite3")},
            }
        }

    def install(self) -> None:
        pass  # huey makes its own tables

    def huey(self) -> Any:
        """The queue."""
        from huey.contrib.djhuey import HUEY

        return HUEY

    def reset(self) -> None:
        self.huey().flush()

    def enqueue(self, number: int) -> None:
        from benchmarks.systems.on_huey.tasks import noop

        noop(number, "two")

    def worker_commands(self, concurrency: int) -> list[list[str]]:
        command = adapter.command("run_huey", "-w", str(concurrency), "-k", "process")
        return [[*command, "--quiet"] if config.TUNED else command]

    def remaining(self) -> int:
        return int(self.huey().pending_count())
