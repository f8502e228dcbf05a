"""``serve``: the example's web server, a worker and a reaper, until the server ends."""

from __future__ import annotations

import secrets
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandParser

from example_project.showcase.misbehave import QUEUE
from example_project.showcase.processes import Processes, poll

QUEUES = ("example.work", "example.imports", QUEUE, "ojs-admin")
_FOREVER = 10 * 365 * 86_400.0


class Command(BaseCommand):
    """Starts three processes, each with a log of its own, and stops them with SIGTERM or SIGINT. A
    worker that ends is replaced.
    """

    help = "Run the example project: web server, worker and reaper."

    def add_arguments(self, parser: CommandParser) -> None:
        """Where to listen."""
        parser.add_argument("--port", type=int, default=8000)

    def handle(self, *args: Any, **options: Any) -> None:
        """Exit 0 when told to stop, 1 when the server or the reaper ended on its own."""
        logs = Path(settings.VAR_DIR) / "serve"
        processes = Processes(f"serve {datetime.now(UTC):%H%M%S.%f}", logs)  # noqa: TID251
        told: list[int] = []
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, frame: told.append(number))
        address = f"127.0.0.1:{options['port']}"
        processes.start("web", "runserver", address, "--noreload")
        # Its own queues only: "default" is for workers that come in over HTTP.
        served = [word for queue in QUEUES for word in ("--queue", queue)]
        worker = ("worker", "runworker", "--concurrency", "2", *served)
        processes.start(*worker)
        processes.start("reaper", "reap_timeouts", "--loop")
        self.stdout.write(f"http://{address}/admin/ with a worker and a reaper; logs in {logs}")
        users = get_user_model().objects
        if settings.DEBUG and not users.filter(is_staff=True, is_active=True).exists():
            password = secrets.token_urlsafe(9)
            users.create_superuser("admin", "admin@example.com", password)
            self.stdout.write(f"made a user: log in as admin with the password {password}")
        ended: list[str] = []
        while not told:
            poll(lambda: told or processes.ended(), _FOREVER, 0.2)
            ended = processes.ended() if not told else []
            if ended != ["worker"]:
                break
            # It was stopped in the admin, or crashed: as under systemd, there is another one.
            self.stdout.write("the worker ended; starting another one")
            processes.forget("worker")
            processes.start(*worker)
        found = processes.stop()
        for name in ended:
            self.stderr.write(f"{name} ended, see {logs / name}.log")
        for sentence in found:
            self.stderr.write(sentence)
        if ended:
            sys.exit(1)
