"""What a soak does, drawn from its seed: the jobs that are enqueued and the faults, with their times.

Pure: the same seed, length and database give the same plan. Which process of a worker or which
session a fault meets depends on what is there when its time comes; ``pick`` says where among those.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

TIMEOUT, GRACE, HEARTBEAT, SHUTDOWN = 3, 1, 4, 2
BACKOFF = 0.2
QUEUES = ("alpha", "beta", "gamma")
HTTP_QUEUE = "remote"
HTTP_WORKERS = ("http-lease", "http-bare")


def token_variable(label: str) -> str:
    """The environment variable with the token of a worker over HTTP: ``http-bare``, ``http-bare.2``."""
    return f"OJS_SOAK_TOKEN_{label.partition('.')[0].removeprefix('http-').upper()}"


REAPERS = ("reaper-0", "reaper-1")
LIMITS: dict[str, Any] = {
    "timeout": TIMEOUT,
    "grace_period": GRACE,
    "heartbeat_timeout": HEARTBEAT,
    "retry": {
        "max_attempts": 3,
        "backoff_strategy": "constant",
        "initial_interval_ms": int(BACKOFF * 1000),
        "jitter": False,
    },
}
PATIENT = {**LIMITS, "timeout": 10}
"""For jobs whose attempts are to end by a silent worker, before their own time is up."""
EXPIRES_IN = 1
"""Seconds until a job of that kind falls due, and at the same moment expires: it never runs."""
LONG_STEPS = 24
"""Seconds that the first attempt of a long job takes: its worker is suspended and comes back to it."""
LONG_AGAIN = 10
"""And each later one: it is to be running while the worker of the earlier one works on."""
LONGER = 2.0
"""Seconds for which a worker that runs one is suspended beside what the plan says: later attempts of
the others are short, and it is to come back while they run."""
LIMITS_OF = {
    "slow": {**PATIENT, "priority": 10},
    "remote": {**PATIENT, "priority": 10},
    "long": {**PATIENT, "timeout": 30, "priority": 10},
    "single": {**LIMITS, "retry": {"max_attempts": 1}},
    "expires": {**LIMITS, "delay": EXPIRES_IN, "enqueue_ttl": EXPIRES_IN},
}
LAST_WORD = 3000
PAUSED = 2.0
MEETING = (("long",), ("quick", "slow", "remote"))
"""Whom a suspension is to meet, if it can."""
AGAIN = 2.5
"""How long later attempts of these take: a late report of an earlier one is to meet them running."""
MIX = {
    "quick": 515,
    "long": 10,
    "single": 95,
    "words": 10,
    "expires": 15,
    "slow": 150,
    "remote": 60,
    "raise": 50,
    "loop": 10,
    "swallow": 10,
    "segfault": 7,
    "exit": 7,
    "kill-self": 6,
    "children": 20,
    "result": 20,
    "sql": 10,
    "fork": 5,
}
"""Jobs by kind, in thousandths."""
CANCELLED, TWICE = 0.01, 0.01

GAP = (2.0, 4.0)
DECK = {
    "kill executor": 5,
    "kill monitor": 3,
    "kill worker": 4,
    "suspend worker": 6,
    "suspend http worker": 3,
    "kill http worker": 1,
    "replace worker": 2,
    "end sessions": 4,
    "kill reaper": 1,
    "kill web": 1,
    "pause queue": 4,
    "hold rows": 3,
    "hold table": 2,
    "freeze database": 2,
}
"""Faults are dealt from shuffled decks, so that a short run meets nearly every kind too."""
ROWS = {
    "kill executor": ("F19",),
    "kill monitor": ("F3",),
    "kill worker": ("F1", "F2"),
    "suspend worker": ("F4",),
    "suspend http worker": ("F63",),
    "kill http worker": ("F67",),
    "replace worker": ("F8", "F9"),
    "end sessions": ("F73",),
    "restart database": ("F72", "F74"),
    "stop database": ("F75",),
}
"""Which rows of the catalogue of faults these are; handlers add some of their own."""
OF_SERVERS = frozenset(
    {"end sessions", "hold rows", "freeze database", "restart database", "stop database"}
)
LASTS = {"pause queue": PAUSED, "hold rows": 1.5 * HEARTBEAT, "hold table": 1.5 * HEARTBEAT}
LASTS["freeze database"] = 2.5 * HEARTBEAT
SLOW_RECEIVER = "worker-1"
"""Whose receiver of signals sleeps for 25 s after every so many jobs."""
SLOW_EVERY, SLOW_SECONDS = 100, 25.0
RESTART_EVERY = 60.0
FIRST_RESTART = 30.0
LONG_RUN = 240.0
"""From this length on the database is also down once for longer than the heartbeat timeout."""


def lasts_at_most(job_type: str) -> float:
    """Seconds after which an attempt of this type is ended, whatever it does."""
    limits = LIMITS_OF.get(job_type.removeprefix("soak."), LIMITS)
    return float(limits["timeout"] + limits["grace_period"])


@dataclass(frozen=True)
class Call:
    """A job to enqueue."""

    kind: str
    queue: str
    args: list[Any]
    twice: bool = False
    cancel_after: float | None = None


@dataclass(frozen=True, order=True)
class Fault:
    """A fault: when, what, whom, for how long."""

    at: float
    kind: str = field(compare=False)
    target: str = field(compare=False, default="")
    pick: float = field(compare=False, default=0.0)
    lasts: float = field(compare=False, default=0.0)


def calls(seed: int) -> Iterator[Call]:
    """Jobs without end. Their first argument is for how many attempts they misbehave."""
    dice = random.Random(f"jobs {seed}")
    kinds, weights = list(MIX), list(MIX.values())
    while True:
        kind = dice.choices(kinds, weights)[0]
        bad = dice.choice((1, 1, 1, 1, 2, 9))
        millis = dice.randint(500, 2000) if kind == "slow" else dice.randint(1, 20)
        if kind == "remote":
            millis = dice.choice((5, 20, 300, 1200))
        queue = HTTP_QUEUE if kind == "remote" else dice.choice(QUEUES)
        cancel_after = None
        if dice.random() < CANCELLED or (kind in ("slow", "loop") and dice.random() < 5 * CANCELLED):
            cancel_after = dice.uniform(0.0, 1.0)
        yield Call(kind, queue, [bad, millis], dice.random() < TWICE, cancel_after)


def faults(seed: int, seconds: float, *, database: str, workers: int) -> list[Fault]:
    """The faults of a run, in order of time; all are over when it ends."""
    dice = random.Random(f"faults {seed}")
    of_server = [] if database == "sqlite" else _of_the_server(dice, seconds)
    busy: dict[str, float] = {}
    found: list[Fault] = []
    deck: list[str] = []
    at = dice.uniform(*GAP)
    while at < seconds - 1:
        if not deck:
            deck = [
                k
                for k, n in DECK.items()
                for _ in range(n)
                if database != "sqlite" or k not in OF_SERVERS
            ]
            dice.shuffle(deck)
        kind, pick = deck.pop(), dice.random()
        # Long enough for the job to run elsewhere, short enough to come back while it does.
        away = HEARTBEAT * dice.uniform(1.25, 1.55)
        lasts = away if kind.startswith("suspend") else LASTS.get(kind, 0.0)
        target = _target(dice, kind, at, busy, workers)
        until = at + lasts + (LONGER if kind == "suspend worker" else 0.0)
        if until < seconds:
            found.append(Fault(at, kind, target, pick, lasts))
            if lasts and target:
                busy[target] = until
        at += dice.uniform(*GAP)
    return sorted(found + of_server)


def _of_the_server(dice: random.Random, seconds: float) -> list[Fault]:
    found = []
    at = FIRST_RESTART
    while at < seconds - 10:
        found.append(Fault(at, "restart database"))
        at += RESTART_EVERY + dice.uniform(0, 10)
    if seconds >= LONG_RUN:
        # Halfway between two restarts.
        down = found[len(found) // 2].at + RESTART_EVERY / 2
        found.append(Fault(down, "stop database", lasts=HEARTBEAT * 3.0))
    return found


def _target(dice: random.Random, kind: str, at: float, busy: dict[str, float], workers: int) -> str:
    """Somebody who is not suspended, if anybody is not."""
    if kind.endswith("http worker"):
        among = list(HTTP_WORKERS)
    elif kind.endswith("reaper"):
        among = list(REAPERS)
    elif kind.endswith(("worker", "executor", "monitor")):
        among = [f"worker-{number}" for number in range(workers)]
    else:
        return ""
    return dice.choice([name for name in among if busy.get(name, 0.0) <= at] or among)
