"""Workers, a reaper and an enqueuer on one address, for as long as a case lasts."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.failover import enqueuer
from tests.failover.enqueuer import Ack
from tests.failover.judge import Rows
from tests.lab import effects
from tests.lab.effects import Effect
from tests.support import Manage, poll

DRAIN = 60.0


class Fleet:
    """Worker ``A`` has the jobs that last; the others are for ``B``, or several at ``urls``."""

    def __init__(self, folder: Path, url: str, urls: Sequence[str] = ()) -> None:
        self.folder = folder
        self._url, self._urls = url, urls or [url]
        self.effects, self._acks = folder / "effects", folder / "acks"
        self.until = folder / "until"
        self.processes: dict[str, Manage] = {}

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            process.stop()

    def start(self) -> None:
        """All of it; returns when the jobs that last have begun and the stream flows."""
        self._manage("A", "runworker", "--worker-id=A", "--queue=a", "--concurrency=6")
        self.start_workers()
        self._manage("R", "reap_timeouts", "--loop")
        self.start_load()
        poll(lambda: self._flows() or not self.processes["enqueuer"].running, 90, every=0.1)
        self.all_running()

    def start_workers(self) -> None:
        """Those that are for jobs that do not last."""
        for number, url in enumerate(self._urls):
            name = f"B{number or ''}"
            given = ("runworker", f"--worker-id={name}", "--queue=b", "--concurrency=3")
            self._manage(name, *given, url=url)

    def start_load(self, name: str = "enqueuer", url: str | None = None, **load: object) -> None:
        """What enqueues."""
        given = [f"--{option}={value}" for option, value in load.items()]
        self.processes[name] = Manage(
            (f"--acks={self._acks}", f"--until={self.until}", *given),
            self.folder / name,
            self._environment(url),
            program=("-m", "tests.failover.enqueuer"),
        )

    def _flows(self) -> bool:
        kinds = [ack.kind for ack in self.acks()]
        begun = {effect.job for effect in self.done() if effect.what == "start"}
        living = {ack.job for ack in self.acks() if ack.kind == "live"}
        return kinds.count("quick") >= 3 and living <= begun

    def _environment(self, url: str | None) -> dict[str, str]:
        return {
            "DJANGO_SETTINGS_MODULE": "tests.lab.settings",
            "DATABASE_URL": url or self._url,
            effects.VARIABLE: str(self.effects),
        }

    def _manage(self, name: str, *arguments: str, url: str | None = None) -> None:
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
            f"--- {name}\n{process.stdout[-1000:]}{_notable(process.stderr)[-6000:]}"
            for name, process in self.processes.items()
        )


def _notable(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if " completed: queue " not in line)
