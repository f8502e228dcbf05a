"""The fleet: who there is, started, ended, suspended and replaced. Only recorded ids are signalled."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.process.tools import suspend
from tests.soak import ledger, plan
from tests.support import Manage, poll


@dataclass
class Role:
    """A place in the fleet, and who fills it."""

    name: str
    program: tuple[str, ...]
    arguments: Callable[[str], Sequence[str]]
    """Of the name of a generation, such as ``worker-0.3``."""
    generation: int = 0
    process: Manage | None = None
    suspended: Manage | None = None
    leaving: list[Manage] = field(default_factory=list)


class Fleet:
    """Every process of a soak but the database."""

    def __init__(self, folder: Path, environment: Mapping[str, str], roles: Sequence[Role]) -> None:
        self._folder = folder
        self._environment = dict(environment)
        self.roles = {role.name: role for role in roles}

    def start(self, name: str) -> None:
        """Fill a place with a new process."""
        role = self.roles[name]
        role.generation += 1
        label = self.label(name)
        role.process = Manage(
            tuple(role.arguments(label)), self._folder / label, self._environment, program=role.program
        )
        ledger.write("spawn", name=name, worker=label, child=role.process.pid)

    def start_all(self) -> None:
        """Fill every place."""
        for name in self.roles:
            self.start(name)

    def tend(self) -> None:
        """Fill places that were left without anybody's doing; it is noted as news."""
        for role in self.roles.values():
            if role.process is not None and not role.process.running:
                ledger.write("left", name=role.name, code=role.process.wait(1))
                self.start(role.name)

    def label(self, name: str) -> str:
        """The name of who fills a place now."""
        return f"{name}.{self.roles[name].generation}"

    def process(self, name: str) -> Manage:
        """Who fills a place."""
        process = self.roles[name].process
        assert process is not None
        return process

    def kill(self, name: str) -> int:
        """SIGKILL; somebody else takes the place. The id of the dead."""
        process = self.process(name)
        process.send(signal.SIGKILL)
        process.wait(10)
        self.start(name)
        return process.pid

    def replace(self, name: str) -> int:
        """SIGTERM, and at once a replacement."""
        role, process = self.roles[name], self.process(name)
        process.send(signal.SIGTERM)
        role.leaving.append(process)
        self.start(name)
        return process.pid

    def suspend(self, name: str, seconds: float) -> bool:
        """SIGSTOP for a while, on SQLite only between two writes; whether it was possible."""
        role, process = self.roles[name], self.process(name)
        try:
            suspend(process.pid)
        except AssertionError:  # somebody is always writing
            return False
        role.suspended = process
        # By a thread: the main one may be waiting for a lock that the suspended process has.
        timer = threading.Timer(seconds, self.resume, [name])
        timer.daemon = True
        timer.start()
        return True

    def resume(self, name: str) -> None:
        """SIGCONT, if who was suspended is still there."""
        role = self.roles[name]
        suspended, role.suspended = role.suspended, None
        if suspended is not None and suspended.running:
            suspended.send(signal.SIGCONT)

    def finish(self, names: Sequence[str], timeout: float) -> list[str]:
        """SIGTERM to some places; who of them had to be killed."""
        going: list[tuple[str, Manage]] = []
        for name in names:
            self.resume(name)
            role, process = self.roles[name], self.process(name)
            role.process = None
            process.send(signal.SIGTERM)
            going += [(name, process), *((f"{name} (replaced)", old) for old in role.leaving)]
        try:
            poll(lambda: not any(process.running for _, process in going), timeout, every=0.05)
        except AssertionError:
            pass
        late = [(name, process) for name, process in going if process.running]
        for _, process in late:
            process.send(signal.SIGKILL)
            process.wait(10)
        return [f"{name} ({process.pid})" for name, process in late]


def roles(*, workers: int, slots: int, seed: int, rate: float, port: int) -> list[Role]:
    """The fleet, in the order of its start."""
    web = (
        "example_project.wsgi:application",
        f"--bind=127.0.0.1:{port}",
        *("--worker-class=gthread", "--workers=1", "--threads=8", "--graceful-timeout=2"),
    )

    def worker(label: str) -> Sequence[str]:
        # Each serves another queue first: none is always last.
        first = int(label.removeprefix("worker-").partition(".")[0]) % len(plan.QUEUES)
        order = plan.QUEUES[first:] + plan.QUEUES[:first]
        queues = [f"--queue={queue}" for queue in order]
        return [
            *("runworker", *queues, f"--concurrency={slots}", f"--worker-id={label}"),
            f"--shutdown-timeout={plan.SHUTDOWN}",
        ]

    def over_http(label: str) -> Sequence[str]:
        bare = ["--bare"] if label.startswith("http-bare") else []
        return [f"--name={label}", f"--port={port}", *bare]

    def enqueuer(label: str) -> Sequence[str]:
        return [f"--seed={seed}", f"--rate={rate}", f"--waiting={2 * workers * slots}"]

    manage = ("manage.py",)
    return [
        Role("web", ("-m", "gunicorn"), lambda label: web),
        *(Role(f"worker-{number}", manage, worker) for number in range(workers)),
        *(Role(name, manage, lambda label: ["reap_timeouts", "--loop"]) for name in plan.REAPERS),
        *(Role(name, ("-m", "tests.soak.httpworker"), over_http) for name in plan.HTTP_WORKERS),
        Role("enqueuer", ("-m", "tests.soak.enqueuer"), enqueuer),
        Role("workflows", ("-m", "tests.soak.workflow_enqueuer"), lambda label: [f"--seed={seed}"]),
    ]
