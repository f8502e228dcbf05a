"""What a case works with: a fleet, jobs that live, probes whose deadlines are watched, a verdict."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from django_ojs import api
from django_ojs.services import claim
from tests.lab import effects, judge, raw
from tests.lab.databases import Database
from tests.lab.judge import HEARTBEAT, Block, Figures, Probe, Watch
from tests.lab.pulse import Pulse
from tests.support import Manage, poll

LIVING = 5
HOLD = 2.5 * HEARTBEAT
"""How long most harms last."""
AFTER = 1.5
"""How long the living go on after it: an unjust end comes then, if it comes."""
BEGINNING = HEARTBEAT + 3.0
"""How long the fleet looks before anything is done to it."""
DRAIN = 60.0
TABLES = ("attempt", "leasebeat", "event", "job")


class Stage:
    """A fleet on a database, for the rounds of a case.

    Worker ``A`` serves the queue ``a``, worker ``C`` serves ``b`` and takes over what ``A`` loses;
    ``R`` is a reaper. All jobs of ``living`` begin on ``A``.
    """

    def __init__(self, database: Database, folder: Path, *, brief: bool = False) -> None:
        self.database = database
        self.folder = folder
        self.brief = brief
        self.effects = folder / "effects"
        self.fleet: dict[str, Manage] = {}
        self.number = 0
        self._generation = 0
        self._reset()

    def _reset(self) -> None:
        self.living: list[str] = []
        self.cancelled: list[str] = []
        self.probes: list[Probe] = []
        self.blocks: list[Block] = []
        self.held_up: list[str] = []
        """Jobs whose deadline somebody stands in the way of: they must be ended, whenever."""
        self.steps: list[float] = []
        """When the server's clock was set: beats move with it, backwards too."""
        self.notes: list[str] = []

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.fleet.values():
            process.stop()

    def start(self, *, reaper: bool = True, **environment: str) -> None:
        """The fleet; the environment is worker ``A``'s own."""
        self._clear()
        self.worker("A", "--queue=a", "--concurrency=6", **environment)
        self.worker("C", "--queue=b", "--queue=a", "--concurrency=4")
        if reaper:
            self.reaper("R")
        # Who has just begun to look counts only what was recorded before it (ADR 15).
        time.sleep(BEGINNING)

    def worker(self, name: str, *arguments: str, **environment: str) -> Manage:
        """A worker of this name."""
        return self._manage(name, "runworker", f"--worker-id={name}", *arguments, **environment)

    def reaper(self, name: str, **environment: str) -> Manage:
        """A reaper of its own."""
        return self._manage(name, "reap_timeouts", "--loop", **environment)

    def replace_reaper(self) -> None:
        """Another process takes the place of ``R``."""
        self.fleet.pop("R").stop()
        self.reaper("R")

    def _manage(self, name: str, *arguments: str, **environment: str) -> Manage:
        self._generation += 1
        made = Manage(
            arguments,
            self.folder / f"{name}.{self._generation}",
            {
                "DJANGO_SETTINGS_MODULE": "tests.lab.settings",
                effects.VARIABLE: str(self.effects),
                **environment,
            },
        )
        self.fleet[name] = made
        poll(lambda: made.stdout or not made.running, 60)
        if not made.running:
            raise RuntimeError(f"{name} has ended: {made.stderr[-2000:]}")
        return made

    # What a round is made of.

    def live(self, count: int = LIVING, **options: Any) -> list[str]:
        """Jobs that begin on ``A``; half of them end with :meth:`end_early`, the others at the end.

        ``C``, which serves their queue too, takes none of them while it is told to claim nothing.
        """
        flags = [self.flag("early" if number < count // 2 else "late") for number in range(count)]
        with self.only_a():
            made = [
                str(api.enqueue("lab.live", [str(flag)], queue="a", **options).id) for flag in flags
            ]
            self.living += made
            self.begun(made)
        return made

    @contextlib.contextmanager
    def only_a(self) -> Iterator[None]:
        """``C`` claims nothing meanwhile."""
        self.fleet["C"].send(signal.SIGTSTP)
        try:
            yield
        finally:
            self.fleet["C"].send(signal.SIGCONT)

    def begun(self, jobs: Sequence[str]) -> None:
        """Wait until their handlers have begun."""

        def look() -> bool:
            return set(jobs) <= {effect.job for effect in effects.read(self.effects)}

        poll(look, 60, every=0.05)

    def ended(self, jobs: Sequence[str]) -> None:
        """Wait until they are in a terminal state."""

        def look() -> bool:
            states, _ = judge.rows(self.database.url)
            return all(states.get(job) in judge.TERMINAL for job in jobs)

        poll(look, 60, every=0.05)

    def end_early(self) -> None:
        """The first half of the living have their effects now."""
        self.flag("early").touch()

    def end_late(self) -> None:
        """All have."""
        self.end_early()
        self.flag("late").touch()

    def probe_ttl(self, after: float) -> None:
        """A waiting job that nobody serves; its TTL is over in so many seconds."""
        begun = effects.now()
        made = api.enqueue("lab.nobody", queue="nobody", enqueue_ttl=timedelta(seconds=after))
        self._probe(str(made.id), "ttl", begun, after)

    def probe_silent(self) -> None:
        """A running job whose holder is never heard."""
        begun = effects.now()
        made = self._claimed(heartbeat_timeout=HEARTBEAT, timeout=900)
        self._probe(made, "silent", begun, HEARTBEAT)

    def probe_overrun(self, after: float) -> None:
        """A running job whose time is over in so many seconds, and whose holder never reports."""
        begun = effects.now()
        made = self._claimed(heartbeat_timeout=60, timeout=timedelta(seconds=after - 1), grace_period=1)
        self._probe(made, "overrun", begun, after)

    def _probe(self, job: str, kind: str, begun: float, after: float) -> None:
        made = effects.now()
        self.probes.append(Probe(job, kind, begun, made + after, made - begun))

    def _claimed(self, **limits: Any) -> str:
        made = api.enqueue("lab.nobody", queue="silent", retry={"max_attempts": 1}, **limits)
        found = claim.claim(
            claim.sources(["silent"], ["lab.nobody"]), limit=1, worker_id="silent", beats=True
        )
        if [job.id for job in found] != [made.id]:
            raise RuntimeError("a probe could not be claimed")
        return str(made.id)

    def probe_all(self) -> None:
        """One of each kind and some more, due while a usual harm lasts."""
        self.probe_silent()
        self.probe_overrun(0.6 * HOLD)
        for share in (0.2, 0.4, 0.6, 0.8):
            self.probe_ttl(share * HOLD)

    def set_clock(self, offset: int) -> None:
        """The server's clock is so many seconds from the real time."""
        self.database.set_clock(offset)
        self.steps.append(effects.now())

    @contextlib.contextmanager
    def blocking(self) -> Iterator[None]:
        """Nobody can write meanwhile: what the rule leaves of deadlines is later."""
        start = effects.now()
        try:
            yield
        finally:
            self.blocks.append(Block(start, effects.now()))

    def blocking_on(self, *databases: str) -> contextlib.AbstractContextManager[None]:
        """:meth:`blocking` where the harm keeps everybody from writing, on these databases."""
        return self.blocking() if self.database.name in databases else contextlib.nullcontext()

    @contextlib.contextmanager
    def held(self, statement: str, *parameters: object) -> Iterator[None]:
        """A transaction of somebody else has run this statement, and stays open meanwhile."""
        with raw.holding(self.database.url, statement, *parameters):
            yield

    def last(self, seconds: float = HOLD) -> None:
        """Let a harm last; in its middle half of the living end."""
        time.sleep(seconds / 2)
        self.end_early()
        time.sleep(seconds / 2)

    def row(self, job: str) -> str:
        """The id of a job as a parameter of SQL."""
        with raw.session(self.database.url) as session:
            return session.id(job)

    def flag(self, name: str) -> Path:
        """A file of this round that does not exist yet."""
        return self.folder / f"{name}-{self.number}"

    # A round, from its beginning to the verdict.

    @contextlib.contextmanager
    def judged(self, figures: Figures) -> Iterator[None]:
        """A round; what came of it is added to ``figures``."""
        self.number += 1
        self._reset()
        watch = Watch(self.database.url, self._watched)
        watch.start()
        pulse = Pulse(self.database.url)
        pulse.start()
        try:
            yield
            time.sleep(AFTER)
            self.end_late()
            self._drain(watch)
        finally:
            self.end_late()
            watch.stop()
            pulse.stop()
        if self.steps:
            watch.backwards.clear()
        states, attempts = judge.rows(self.database.url)
        found = judge.judge(
            states=states,
            attempts=attempts,
            done=effects.read(self.effects),
            living=self.living,
            cancelled=self.cancelled,
            probes=self.probes,
            blocks=self.blocks,
            steps=self.steps,
            stalls=pulse.stalls,
            excuse=self.brief,
            watch=watch,
        )
        never = [job for job in self.held_up if states.get(job) not in judge.TERMINAL]
        found.lost += len(never)
        found.wrong += [f"{job} was never ended" for job in never]
        found.wrong += [*self.notes, *self._left()]
        figures.add(found)
        self._clear()

    def _watched(self) -> list[str]:
        """The jobs whose moments are judged."""
        return [*self.living, *(probe.job for probe in self.probes)]

    def _drain(self, watch: Watch) -> None:
        """Until every job that counts has come to its end, or it took too long."""

        def over() -> bool:
            states, _ = judge.rows(self.database.url)
            known = [*self.living, *self.held_up]
            return all(states.get(job) in judge.TERMINAL for job in known) and all(
                watch.ended(probe) is not None for probe in self.probes
            )

        with contextlib.suppress(AssertionError):
            poll(over, DRAIN, every=0.1)

    def said(self) -> str:
        """The last that the fleet wrote, for whoever looks for a reason."""
        return "\n".join(
            f"--- {name}\n{process.stdout[-500:]}{process.stderr[-1500:]}"
            for name, process in self.fleet.items()
        )

    def _left(self) -> list[str]:
        """Who of the fleet has ended by itself."""
        return [f"{name} has ended" for name, process in self.fleet.items() if not process.running]

    def _clear(self) -> None:
        """No rows are left for the next round, and no effects."""
        with raw.session(self.database.url) as session:
            for table in TABLES:
                session.run(f"DELETE FROM django_ojs_{table}")
        self.effects.unlink(missing_ok=True)
