"""Ownership of a process tree on Linux: subreapers, parent-death signals, ``/proc``.

Other systems only kill the process group; descendants that left it are not found.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterator

LINUX = sys.platform == "linux"
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def _prctl(option: int, value: int) -> None:
    if LINUX:
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def become_subreaper() -> None:
    """Adopt orphaned descendants of this process as its children."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """Have this process killed when its parent ends, or end now if it has ended already."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def stop_with_parent() -> None:
    """Send this process SIGTERM when its parent ends."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def continue_with_parents_end() -> None:
    """Send this process SIGCONT when its parent ends, in case a handler has stopped it."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)


def is_stopped(pid: int) -> bool:
    """Whether a signal has stopped the process."""
    try:
        # Three system calls, where a file object takes nine: every second, for every monitor.
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(descriptor, 1024).rpartition(b")")[2].split()[0] in (b"T", b"t")
        finally:
            os.close(descriptor)
    except (OSError, IndexError):
        return False


def prefer_for_oom_kill() -> None:
    """Let the kernel kill this process, not the supervisor, when memory runs out."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")


def _children(pid: int) -> Iterator[int]:
    """Direct children of ``pid``, of all its threads."""
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return
    for task in tasks:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/children") as file:
            for child in file.read().split():
                yield int(child)


def children(pid: int) -> set[int]:
    """The direct children of ``pid``."""
    return set(_children(pid))


def descendants(pid: int) -> list[int]:
    """All processes below ``pid``, parents before children."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        for child in _children(waiting.pop()):
            found.append(child)
            waiting.append(child)
    return found


def has_children() -> bool:
    """Whether this process has a child, running or a zombie. Reaps none."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def thread_count() -> int:
    """Count the threads of this process, including those that Python did not start."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        import threading

        return threading.active_count()


def rss_mib(pid: int) -> float:
    """The resident memory of a process in MiB; 0 where it is unknown."""
    return rss_bytes(pid) / (1 << 20)


def rss_bytes(pid: int) -> int:
    """The resident memory of a process in bytes; 0 where it is unknown."""
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def send_signal(pid: int, number: signal.Signals) -> bool:
    """Send a signal; return False if the process is gone or belongs to another user: a handler may have
    replaced it by a program that does.
    """
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def kill_below(pid: int, *, spare: frozenset[int] = frozenset(), patience: float = 5.0) -> int:
    """Kill everything below ``pid``, which is this process, and wait until it is gone.

    Children in ``spare`` are left alone with all that is below them. Returns the number of processes
    killed. Repeats the scan, since a process may fork while it is being killed.
    """
    killed: set[int] = set()
    until = time.monotonic() + patience
    pause = 0.0005
    while True:
        reap_children()
        targets = [
            target
            for child in _children(pid)
            if child not in spare
            for target in (child, *descendants(child))
        ]
        if not targets or time.monotonic() > until:
            return len(killed)
        for target in targets:
            if send_signal(target, signal.SIGKILL):
                killed.add(target)
        time.sleep(pause)
        pause = min(0.02, pause * 2)


def watch_children() -> tuple[int, int]:
    """Make a pipe that becomes readable when a child ends; return both of its ends.

    A process that is forked closes them, and ends the watch: ``signal.set_wakeup_fd(-1)``.
    """
    readable, wakeup = os.pipe()
    os.set_blocking(wakeup, False)
    signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    return readable, wakeup


def reap_children() -> dict[int, int]:
    """Reap the children that have ended; return their wait statuses by pid."""
    statuses = {}
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            statuses[pid] = status
    return statuses
