"""Handlers that do what no handler should: each hurts its process, the worker or the job behind it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sqlite3
import sys
import threading
import time
from typing import Any

from django.db import connection

from django_ojs import api
from django_ojs.api import JobContext, SoftStop, job
from django_ojs.handlers import registry
from django_ojs.worker.prefork.frames import pack, pack_texts
from tests.workload.tools import AT_ONCE, DEAF, LATER, SOFT, note, wait_for


def _forever() -> None:
    while True:
        time.sleep(0.01)


# Deaf to the soft signal, or not.


@job("bad.swallow-exception", **SOFT)
def swallow_exception(diary: str) -> None:
    """Catches every ``Exception``, which the soft signal is not."""
    note(diary, "started", os.getpid())
    while True:
        try:
            time.sleep(0.01)
            raise ValueError
        except Exception:
            continue


@job("bad.ignore-bell", **DEAF)
def ignore_bell(diary: str) -> None:
    """Ignores the soft signal, in every thread."""
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    note(diary, "started", os.getpid())
    _forever()


@job("bad.pause", **DEAF)
def pause(diary: str) -> None:
    """A C call that waits for a signal with the interpreter lock held, and lets none in."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    note(diary, "started", os.getpid())
    ctypes.PyDLL(None).pause()


@job("bad.query", **DEAF)
def query(diary: str) -> None:
    """A query that takes for ever, in C code that lets go of the interpreter lock."""
    note(diary, "started", os.getpid())
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
        ).fetchall()


# Not as it found it.


@job("bad.disturb-signals", retry=LATER)
def disturb_signals(diary: str) -> int:
    """Leaves an alarm that kills, a bell that nobody hears, and a mask over all signals."""
    note(diary, "disturbed", os.getpid())
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.valid_signals()) - {signal.SIGALRM})
    return os.getpid()


@job("bad.told-in-time", **SOFT)
def told_in_time() -> list[Any]:
    """How long one sleep is until the soft signal interrupts it, and in which process."""
    began = time.monotonic()
    try:
        time.sleep(50)
    except SoftStop:
        return [os.getpid(), time.monotonic() - began]
    return [os.getpid(), None]


@job("bad.change-process", retry=LATER)
def change_process() -> list[Any]:
    """What the process is like; then it is changed, as only Python can tell."""
    found = [os.getpid(), os.environ.get("CHANGED"), "/nowhere" in sys.path]
    os.environ["CHANGED"] = "yes"
    sys.path.insert(0, "/nowhere")
    return found


@job("bad.look-around", retry=LATER)
def look() -> list[Any]:
    """What the process is like."""
    mask = os.umask(0)
    os.umask(mask)
    limits = list(resource.getrlimit(resource.RLIMIT_FSIZE))
    deaf = signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
    return [os.getpid(), {"limits": limits, "folder": os.getcwd(), "umask": mask, "deaf": deaf}]


@job("bad.descriptors", retry=LATER)
def descriptors() -> list[str]:
    """What is open beside the standard streams, without what reading the list itself takes."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            target = os.readlink(f"/proc/self/fd/{name}")
            if int(name) > 2:
                found.append(target.partition(":")[0])
    return sorted(found)


@job("bad.leave-changed", retry=LATER)
def leave_changed(what: str) -> int:
    """Changes the process for good."""
    match what:
        case "resource limits":
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
        case "working folder":
            os.chdir("/")
        case "umask":
            os.umask(0o007)
        case "signal handlers":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return os.getpid()


@job("bad.sql", retry=LATER)
def run_sql(statement: str) -> list[Any]:
    """The answer of the database, and the session that gave it."""
    with connection.cursor() as cursor:
        cursor.execute(statement)
        row = cursor.fetchone() if cursor.description else None
    return [os.getpid(), id(connection.connection), str(row and row[0])]


@job("bad.last-words", retry=LATER)
def last_words(ctx: JobContext, diary: str, until: str, count: int) -> None:
    """Says more than is read at once, but no more than waits unread, and ends."""
    note(diary, "started", os.getpid())
    wait_for(until)
    for word in range(count):
        ctx.progress(word / count, data={"word": word, "text": "x" * 1500})
    os._exit(3)


@job("bad.stop-monitor", timeout=1, grace_period=0, retry=LATER)
def stop_keeper(diary: str, how: str) -> None:
    """Stops the process that watches over this one."""
    if how == "a child holds the line" and not os.fork():
        os.setsid()
        time.sleep(300)
    note(diary, "stopped", os.getppid(), os.getpid())
    os.kill(os.getppid(), signal.SIGSTOP)
    if how != "it runs over":
        os._exit(3)
    _forever()


@job("bad.thread", retry=LATER)
def leave_foreground_thread() -> int:
    """Leaves a thread for which an interpreter waits at its exit."""
    threading.Thread(target=time.sleep, args=(300,), daemon=False).start()
    return os.getpid()


@job("bad.unregister", retry=LATER)
def unregister(job_type: str) -> int:
    """Makes its process forget a handler that the worker knows."""
    del registry._handlers[job_type]
    return os.getpid()


@job("bad.unregistered", retry=AT_ONCE)
def unregistered() -> int:
    return os.getpid()


# Endings.


@job("bad.abort", retry=LATER)
def abort() -> None:
    import faulthandler

    faulthandler.disable()
    os.abort()


@job("bad.overflow", retry=LATER)
def overflow() -> None:
    """Recursion through C code, without the interpreter's limit."""
    import faulthandler

    faulthandler.disable()

    class Endless:
        def __getattr__(self, name: str) -> Any:
            return getattr(self, name)

    sys.setrecursionlimit(1 << 30)
    Endless().anything  # noqa: B018


@job("bad.memory", retry=LATER)
def use_all_memory() -> None:
    """Allocates until there is no more, within a limit of its own."""
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), hard))
    kept = []
    while True:
        kept.append(bytearray(1 << 20))


# What cannot be stored or shown.


@job("bad.result", retry=LATER)
def result(kind: str) -> Any:
    deep: Any = None
    for _ in range(40):
        deep = [deep]
    results: dict[str, Any] = {
        "nul": {"a": ["b\x00"]},
        "surrogate": "\ud800",
        "deep": deep,
        "digits": 10**5000,
        "infinity": float("inf"),
        "set": {1},
        "huge": "x" * 50_000_000 if kind == "huge" else "",
    }
    return results[kind]


class Mute(Exception):
    """Cannot say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


class Endless(Exception):
    """Takes for ever to say what it is."""

    def __str__(self) -> str:
        return str(self)

    __repr__ = __str__


class Long(Exception):
    """Has 100 MB to say."""

    def __str__(self) -> str:
        return "no end " * (100_000_000 // 7)


class Guarded(Exception):
    """Lets nobody look at it."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)


UNSPEAKABLE = {kind.__name__: kind for kind in (Mute, Endless, Long, Guarded)}


@job("bad.raise", retry=LATER)
def raise_it(kind: str) -> None:
    raise UNSPEAKABLE[kind]("x")


# On a line that is not its own.


def _write_to_sockets(data: bytes) -> None:
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                os.write(int(name), data)


@job("bad.forge", timeout=20, grace_period=0, retry=LATER)
def forge(ctx: JobContext, kind: str) -> str:
    """Frames that no executor sends: well packed, but of another lease, cut off, or without sense."""
    other = "0" * 32
    own = ctx._supervisor._current  # type: ignore[attr-defined]
    whole = {"op": "done", "took": 0.1, "ok": True, "result": '"forged"'}
    packet = pack({**whole, "lease": other})
    _write_to_sockets(
        {
            "other lease": packet,
            "cut off": packet[:-5],
            "wrong checksum": packet[:-5] + b"01234",
            "without sense": pack({"op": "done", "lease": own}),
            "of wrong types": pack({**whole, "lease": own, "took": "soon"}),
            "endless": pack({**whole, "lease": own, "took": float("inf")}),
            "too large": pack({**whole, "lease": own, "took": 10**400}),
            "too deep": pack_texts(["[" * 100_000 + "]" * 100_000]),
            "no strings": pack({"op": ["done"], "lease": {}}),
            "progress": pack({"op": "progress", "lease": own}),
            "call": pack({"op": "call", "lease": own, "verb": "extend"}),
        }[kind]
    )
    time.sleep(0.5 if kind == "cut off" else 300)
    return "own"


@job("bad.flood", retry=LATER)
def flood() -> str:
    """20 MB on standard output and error."""
    for _ in range(10):
        os.write(1, b"o" * (1 << 20))
        os.write(2, b"e" * (1 << 20))
    return "flooded"


@job("bad.print", retry=LATER)
def print_it() -> str:
    """Writes to standard output, as handlers do."""
    with contextlib.suppress(OSError):
        print("out", flush=True)
    return "printed"


@job("bad.enqueue", retry=AT_ONCE)
def enqueue_and_die(ctx: JobContext, child: str) -> None:
    """Enqueues under an id of its own, each time, and crashes the first two times."""
    api.enqueue("work.echo", ["child"], id=child)
    if ctx.attempt < 3:
        os.kill(os.getpid(), signal.SIGKILL)


@job("bad.spin", retry=LATER)
def spin(seconds: float) -> None:
    """Busy for a moment."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass
