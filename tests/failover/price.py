"""What several writers of a Galera cluster cost: the same jobs through one of them, and through two."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from tests.failover import judge
from tests.failover.fleet import Fleet
from tests.failover.galera import Galera
from tests.failover.judge import Figures

JOBS = 1000
"""How many each of the two that enqueue does."""
_LONGEST = 60


class Run(NamedTuple):
    """A run: jobs a second, transactions that were rolled back for one of another node, and how often
    somebody logged that, or that a lock did not hold, instead of just running it again.
    """

    figures: Figures
    enqueued: float
    worked: float
    rolled_back: int
    said: int


def play(folder: Path, template: Path) -> Figures:
    """The same with one writer, with one that sees to it that it has seen everything, and with two."""
    ways = (
        ("one writer", 1, False),
        ("one writer, wsrep_sync_wait = 7", 1, True),
        ("two writers, wsrep_sync_wait = 7", 2, True),
    )
    found = Figures()
    for number, (name, writers, waits) in enumerate(ways):
        place = folder / str(number)
        place.mkdir(mode=0o755)
        run = _run(place, Galera(place, template, writers=writers, waits=waits))
        notes = [*found.notes, _line(name, run)]
        wrong = [*found.wrong, *run.figures.wrong]
        if not run.figures.good():
            wrong.append(f"{name}: {run.figures.counts()}, {run.figures.said[:5]}")
        found = run.figures
        found.notes, found.wrong = notes, wrong
    return found


def _line(name: str, run: Run) -> str:
    return (
        f"{name}: {run.enqueued:.0f} enqueued and {run.worked:.0f} worked off a second,"
        f" {run.rolled_back} transactions rolled back for another node, {run.said} errors logged"
    )


def _run(folder: Path, servers: Galera) -> Run:
    with ExitStack() as stack:
        stack.enter_context(servers)
        # As many of them with one writer.
        urls = [servers.urls()[number % len(servers.urls())] for number in range(2)]
        fleet = stack.enter_context(Fleet(folder, servers.url(), urls))
        names = [f"enqueuer{number}" for number in range(len(urls))]
        for name, url in zip(names, urls, strict=True):
            fleet.start_load(name, url, small=JOBS)
        load = [fleet.processes.pop(name) for name in names]
        assert [process.wait(_LONGEST) for process in load] == [0] * len(load)
        acks = fleet.acks()
        fleet.start_workers()
        fleet.drain(servers.rows)
        fleet.all_running()
        done = fleet.done()
        figures = judge.judge(acks=acks, done=done, after=servers.rows(), promoted=0.0, taken=())
        # Nothing is taken away here.
        figures.claims_after = 0.0
        figures.wrong += servers.disagreements()
        if not figures.good():
            print(fleet.said(), flush=True)
        said = [process.stdout + process.stderr for process in (*load, *fleet.processes.values())]
        return Run(
            figures,
            _rate([ack.moment for ack in acks]),
            _rate([effect.moment for effect in done if effect.what == "done"]),
            servers.conflicts(),
            sum(text.count(words) for text in said for words in ("Deadlock found", "as decided")),
        )


def _rate(moments: list[float]) -> float:
    return (len(moments) - 1) / (max(moments) - min(moments))
