"""The cases: what is done to which servers, and what is looked at afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

from tests.clusters.clusters import PostgreSQL
from tests.failover import judge, nodes, price
from tests.failover.fleet import Fleet
from tests.failover.galera import ANOTHER, Galera, Node
from tests.failover.judge import SOON, Attempt, Figures, Rows
from tests.failover.postgres import STANDBY, Pair
from tests.lab import databases
from tests.support import poll

HARMS = ("killed", "suspended", "cut off")


class Servers(Protocol):
    """A replicated database, of which the server that is written to is taken away."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def url(self) -> str:
        """What the application is told, and is never told anew."""

    def urls(self) -> list[str]:
        """What those are told that compete for jobs."""

    def lose(self, how: str) -> float:
        """Take it away; the moment from which jobs have to be claimed soon."""

    def rows(self) -> Rows:
        """What the others show."""

    def come_back(self, how: str) -> list[Attempt]:
        """Let it come back; what it had acknowledged before."""

    def disagreements(self) -> list[str]:
        """What is wrong between the servers in the end."""


@dataclass(frozen=True)
class Case:
    """One row of the table. ``lossy`` where a loss is the price of the set-up, and is only counted."""

    name: str
    engine: str
    play: Callable[[Path, Path], Figures]
    lossy: bool = False
    brief: bool = False
    needs: tuple[Callable[[], str | None], ...] = ()

    def missing(self) -> str | None:
        """Why it cannot be played here."""
        return next(filter(None, (need() for need in self.needs)), None)


def fail_over(folder: Path, servers: Servers, how: str, *, lossy: bool = False) -> Figures:
    """Under load the server that is written to is taken away, another one takes over, it comes back."""
    with ExitStack() as stack:
        stack.enter_context(servers)
        fleet = stack.enter_context(Fleet(folder, servers.url(), servers.urls()))
        try:
            fleet.start()
            moment = servers.lose(how)
            taken = [job for job, state in servers.rows().states.items() if state == "active"]
            before = set(taken)

            def claimed() -> bool:
                return any(e.job not in before and e.moment > moment for e in fleet.done())

            try:
                poll(claimed, 2 * SOON, every=0.05)
            except AssertionError:
                pass  # It is judged.
            time.sleep(1)
            on_old = servers.come_back(how)
            time.sleep(2)
            fleet.stop_load()
            fleet.drain(servers.rows)
            fleet.all_running()
        except BaseException:
            print(fleet.said(), flush=True)
            raise
        found = judge.judge(
            acks=fleet.acks(),
            done=fleet.done(),
            after=servers.rows(),
            on_old=on_old,
            promoted=moment,
            taken=taken,
        )
        found.wrong += servers.disagreements()
        if not found.good(lossy=lossy):
            print(fleet.said(), flush=True)
        return found


def _postgres() -> list[Case]:
    found = []
    for way in ("hosts", "address"):
        needs = (PostgreSQL.missing, *((nodes.missing,) if way == "address" else ()))
        for how in HARMS:
            for offset in (0, 30, -30):

                def play(
                    folder: Path, template: Path, way: str = way, how: str = how, offset: int = offset
                ) -> Figures:
                    return fail_over(folder, Pair(folder, template, way=way, offset=offset), how)

                clock = f", clock {offset:+d} s" if offset else ""
                name = f"PostgreSQL, {way}: {how}{clock}"
                faketime = (_faketime,) if offset else ()
                found.append(Case(name, "postgres", play, brief=name in BRIEF, needs=needs + faketime))
    found.append(_without_standby())
    return found + [_asynchronous(how) for how in HARMS]


def _without_standby() -> Case:
    def play(folder: Path, template: Path) -> Figures:
        return fail_over(folder, Pair(folder, template, way="hosts"), STANDBY)

    return Case(f"PostgreSQL, hosts: {STANDBY}", "postgres", play, needs=(PostgreSQL.missing,))


def _asynchronous(how: str) -> Case:
    def play(folder: Path, template: Path) -> Figures:
        pair = Pair(folder, template, way="hosts", synchronous=False)
        return fail_over(folder, pair, how, lossy=True)

    name = f"PostgreSQL, asynchronous: {how}"
    return Case(name, "postgres", play, lossy=True, needs=(PostgreSQL.missing,))


def _galera() -> list[Case]:
    found = []
    needs = (Node.missing, nodes.missing)
    for writers, words in ((1, "one writer"), (2, "two writers")):
        for how in (*HARMS, "alone", ANOTHER):

            def play(folder: Path, template: Path, how: str = how, writers: int = writers) -> Figures:
                servers = Galera(folder, template, writers=writers, waits=writers > 1)
                return fail_over(folder, servers, how)

            name = f"Galera, {words}: {how}"
            found.append(Case(name, "galera", play, brief=name in BRIEF, needs=needs))
    return [*found, Case("Galera, two writers: price", "galera", price.play, needs=needs)]


def _faketime() -> str | None:
    return None if databases.faketime() else "faketime: not installed"


BRIEF = (
    "PostgreSQL, hosts: suspended, clock +30 s",
    "PostgreSQL, address: killed, clock -30 s",
    "PostgreSQL, address: cut off",
    "Galera, one writer: suspended",
    "Galera, two writers: killed",
)


def every() -> list[Case]:
    """All of them, in the order of the table."""
    return [*_postgres(), *_galera()]
