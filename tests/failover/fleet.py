"""Workers, a reaper and an enqueuer on one address, for as long as a case lasts."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

from tests.failover import enqueuer
from tests.failover.enqueuer import Ack
from tests.failover.judge import Rows
from tests.lab import effects
from tests.lab.effects import Effect
from tests.support import Manage, poll

DRAIN = 60.0


class Fleet:
    """Worker ``A`` has the jobs that last, ``B`` the others. ``urls`` are for A, B and the rest."""

    def __init__(self, folder: Path, *urls: str) -> None:
        self.folder = folder
        self.effects, self._acks = folder / "effects", folder / "acks"
        self._urls = urls
        self.until = folder / "until"
        self.processes: dict[str, Manage] = {}

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            process.stop()

    def start(self, **load: int) -> None:
        """All of it; returns when the jobs that last have begun and the stream flows."""
        for_a, for_b, for_rest = (*self._urls, *self._urls[-1:] * 2)[:3]
        self._manage("A", for_a, "runworker", "--worker-id=A", "--queue=a", "--concurrency=6")
        self._manage("B", for_b, "runworker", "--worker-id=B", "--queue=b", "--concurrency=3")
        self._manage("R", for_rest, "reap_timeouts", "--loop")
        given = [f"--{name}={value}" for name, value in load.items()]
        self.processes["enqueuer"] = Manage(
            (f"--acks={self._acks}", f"--until={self.until}", *given),
            self.folder / "enqueuer",
            self._environment(for_rest),
            program=("-m", "tests.failover.enqueuer"),
        )
        poll(lambda: self._flows() or not self.processes["enqueuer"].running, 90, every=0.1)
        self.all_running()

    def _flows(self) -> bool:
        kinds = [ack.kind for ack in self.acks()]
        begun = {effect.job for effect in self.done() if effect.what == "start"}
        living = {ack.job for ack in self.acks() if ack.kind == "live"}
        return kinds.count("quick") >= 3 and living <= begun

    def _environment(self, url: str) -> dict[str, str]:
        return {
            "DJANGO_SETTINGS_MODULE": "tests.lab.settings",
            "DATABASE_URL": url,
            effects.VARIABLE: str(self.effects),
        }

    def _manage(self, name: str, url: str, *arguments: str) -> None:
        self.processes[name] = Manage(arguments, self.folder / name, self._environment(url))

    def acks(self) -> list[Ack]:
        """What the database has acknowledged."""
        return enqueuer.read(self._acks)

    def done(self) -> list[Effect]:
        """What handlers did."""
        return effects.read(self.effects)

    def stop_load(self) -> None:
        """Nothing more is enqueued, and nothing that runs takes long any more."""
        load = self.processes["enqueuer"]
        load.send(signal.SIGTERM)
        load.wait(20)
        del self.processes["enqueuer"]
        self.until.touch()

    def drain(self, look: Callable[[], Rows]) -> None:
        """Until every acknowledged job has come to its end, or it took too long."""
        wanted = {ack.job for ack in self.acks()}

        def over() -> bool:
            states = look().states
            return all(states[job] in ("completed", "discarded") for job in wanted & states.keys())

        try:
            poll(over, DRAIN, every=0.3)
        except AssertionError:
            return

    def all_running(self) -> None:
        """Nobody has ended by himself; raises ``RuntimeError``."""
        for name, process in self.processes.items():
            if not process.running:
                raise RuntimeError(f"{name} has ended: {process.stdout[-500:]}{process.stderr[-2000:]}")

    def said(self) -> str:
        """The last that it wrote."""
        return "\n".join(
            f"--- {name}\n{process.stdout[-1000:]}{_notable(process.stderr)[-3000:]}"
            for name, process in self.processes.items()
        )


def _notable(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if " completed: queue " not in line)
