"""Celery on Redis, with late acknowledgement and without results."""

from __future__ import annotations

from typing import Any

from benchmarks.harness import adapter, config

_KEYS = ("celery", "unacked*", "_kombu.*")
"""What Celery keeps in Redis; nothing else is touched there."""


class Adapter(adapter.Adapter):
    """One worker with a pool of processes; ``tuned`` prefetches more and talks to nobody."""

    database = "none"
    has_bulk = False  # group() publishes one message at a time
    _client: Any = None

    def settings(self) -> dict[str, Any]:
        return {
            "CELERY_BROKER_URL": config.server("redis"),
            "CELERY_TASK_ACKS_LATE": True,
            "CELERY_TASK_IGNORE_RESULT": True,
            "CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP": True,
            **({"CELERY_WORKER_PREFETCH_MULTIPLIER": 128} if config.TUNED else {}),
        }

    def install(self) -> None:
        self.reset()

    def drop_database(self) -> None:
        self.reset()
        super().drop_database()

    def redis(self) -> Any:
        """A client of the same server."""
        import redis

        self._client = self._client or redis.Redis.from_url(config.server("redis"))
        return self._client

    def reset(self) -> None:
        for pattern in _KEYS:
            for key in self.redis().scan_iter(pattern):
                self.redis().delete(key)

    def enqueue(self, number: int) -> None:
        from benchmarks.systems.on_celery.tasks import noop

        noop.delay(number, "two")

    def enqueue_limited(self, number: int, seconds: int) -> None:
        from benchmarks.systems.on_celery.tasks import noop

        noop.apply_async((number, "two"), time_limit=seconds)

    def worker_commands(self, concurrency: int) -> list[list[str]]:
        command = adapter.module(
            "celery", "-A", f"{self.package}.tasks", "worker", "-c", str(concurrency), "-l", "WARNING"
        )
        if config.TUNED:
            command += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
        return [command]

    def remaining(self) -> int:
        return int(self.redis().llen("celery") + self.redis().hlen("unacked"))
