"""The cases: what is done to which servers, and what is looked at afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.clusters.clusters import PostgreSQL
from tests.failover import judge, nodes
from tests.failover.fleet import Fleet
from tests.failover.judge import SOON, Figures
from tests.failover.postgres import Pair
from tests.lab import databases
from tests.support import poll

DETECTION = 3.0
"""Seconds until what decides gives the primary up."""
HARMS = ("killed", "suspended", "cut off")


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


def fail_over(
    folder: Path, template: Path, *, way: str, how: str, offset: int = 0, synchronous: bool = True
) -> Figures:
    """PostgreSQL: the primary is harmed, the standby promoted, the old one let go on and ended."""
    with ExitStack() as stack:
        pair = stack.enter_context(
            Pair(folder, template, way=way, offset=offset, synchronous=synchronous)
        )
        fleet = stack.enter_context(Fleet(folder, pair.url()))
        try:
            fleet.start()
            if not synchronous:
                # What has not arrived by now never will.
                pair.hold_back()
                time.sleep(1)
            pair.harm(how)
            pair.without_writer()
            time.sleep(DETECTION)
            promoted = pair.promote()
            taken = [job for job, state in pair.new.rows().states.items() if state == "active"]
            before = set(taken)

            def claimed() -> bool:
                return any(e.job not in before and e.moment > promoted for e in fleet.done())

            try:
                poll(claimed, 2 * SOON, every=0.05)
            except AssertionError:
                pass  # It is judged.
            time.sleep(1)
            pair.let_go_on(how)
            on_old = [] if how == "killed" else pair.old.rows().attempts
            pair.fence()
            time.sleep(2)
            fleet.stop_load()
            fleet.drain(pair.new.rows)
            fleet.all_running()
        except BaseException:
            print(fleet.said(), flush=True)
            raise
        found = judge.judge(
            acks=fleet.acks(),
            done=fleet.done(),
            after=pair.new.rows(),
            on_old=on_old,
            promoted=promoted,
            taken=taken,
        )
        if not found.good(lossy=not synchronous):
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
                    return fail_over(folder, template, way=way, how=how, offset=offset)

                clock = f", clock {offset:+d} s" if offset else ""
                name = f"PostgreSQL, {way}: {how}{clock}"
                faketime = (_faketime,) if offset else ()
                found.append(Case(name, "postgres", play, brief=name in BRIEF, needs=needs + faketime))
    found += [_asynchronous(how) for how in HARMS]
    return found


def _asynchronous(how: str) -> Case:
    def play(folder: Path, template: Path) -> Figures:
        return fail_over(folder, template, way="hosts", how=how, synchronous=False)

    name = f"PostgreSQL, asynchronous: {how}"
    return Case(name, "postgres", play, lossy=True, needs=(PostgreSQL.missing,))


def _faketime() -> str | None:
    return None if databases.faketime() else "faketime: not installed"


BRIEF = (
    "PostgreSQL, hosts: suspended, clock +30 s",
    "PostgreSQL, address: killed, clock -30 s",
    "PostgreSQL, address: cut off",
)


def every() -> list[Case]:
    """All of them, in the order of the table."""
    return _postgres()
