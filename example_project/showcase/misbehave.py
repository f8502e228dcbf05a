"""Jobs that do what jobs must not do, and one for every timeout. The worker survives them all."""

from __future__ import annotations

import collections
import ctypes
import itertools
import os
import subprocess
import time

from django_ojs import JobContext, job

ONCE = {"max_attempts": 1}
QUEUE = "example.misbehave"


@job("misbehave.loop", queue=QUEUE, timeout="2s", grace_period="2s", retry=ONCE)
def loop() -> None:
    """Never ends, but can be interrupted: the soft signal at ``timeout`` is enough."""
    while True:
        pass


@job("misbehave.swallow", queue=QUEUE, timeout="1s", grace_period="1s", retry=ONCE)
def swallow() -> None:
    """Ignores the soft signal and has started processes: killed with all of them after the grace."""
    _start_children()
    while True:
        try:
            time.sleep(0.01)  # noqa: TID251
        except BaseException:
            pass


@job("misbehave.c-call", queue=QUEUE, timeout="1s", grace_period="1s", retry=ONCE)
def c_call() -> None:
    """Is inside a C function that returns never and lets no signal through: killed as well."""
    collections.deque(itertools.repeat(None), maxlen=0)


@job("misbehave.children", queue=QUEUE, timeout="10s", retry=ONCE)
def children() -> str:
    """Completes, and leaves processes behind: they do not outlive the job by much."""
    _start_children()
    return "left three processes behind"


@job("misbehave.crash", queue=QUEUE, timeout="10s", retry=ONCE)
def crash(how: str) -> None:
    """Takes its process down, by ``exit`` or by ``segfault``; the worker learns it at once."""
    if how == "exit":
        os._exit(7)
    ctypes.string_at(0)


@job(
    "misbehave.silent",
    queue=QUEUE,
    timeout="20s",
    heartbeat="manual",
    heartbeat_timeout="2s",
    retry=ONCE,
)
def silent(ctx: JobContext) -> None:
    """Beats once and then no more, long before its execution timeout: the heartbeat timeout."""
    ctx.heartbeat()
    while True:
        time.sleep(0.05)  # noqa: TID251


@job(
    "misbehave.too-long",
    queue=QUEUE,
    total_timeout="10s",
    priority=10,
    retry={"max_attempts": 100, "initial_interval": "PT0.5S", "jitter": False},
)
def too_long(ctx: JobContext) -> None:
    """Fails, is tried again and hangs: all attempts together have one total timeout."""
    if ctx.attempt == 1:
        raise RuntimeError("the first attempt fails")
    while True:
        time.sleep(0.05)  # noqa: TID251


@job("misbehave.unserved", queue="example.nobody", enqueue_ttl="2s", retry=ONCE)
def unserved() -> None:
    """Waits in a queue that no worker serves until its enqueue TTL has passed."""


def _start_children() -> None:
    """A child, and a grandchild whose parent leads another session."""
    subprocess.Popen(["sleep", "600"])
    subprocess.Popen(["sh", "-c", "sleep 600 & wait"], start_new_session=True)
