"""Development: run the worker as a child and restart it when a source file changes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from django.utils.autoreload import get_child_arguments, iter_all_python_module_files

from django_ojs import clock
from django_ojs.worker.prefork import linux

_EVERY = 1.0
_PARENT = "OJS_RELOADING"


def is_child() -> bool:
    """Whether this process is the worker that :func:`run_reloading` has started. It then stops with
    the process that did. Exits if that has ended already.
    """
    parent = os.environ.pop(_PARENT, None)
    if parent is None:
        return False
    linux.stop_with_parent()
    if parent != str(os.getppid()):
        sys.exit(f"runworker --reload: the process of {_PARENT} is not its parent")
    return True


def run_reloading() -> int:
    """Run until interrupted; return the exit code of the last child."""
    child = _start()
    seen = _modified()
    stopping = threading.Event()

    def forward(number: int, frame: object) -> None:
        stopping.set()
        child.send_signal(number)

    def start() -> subprocess.Popen[bytes]:
        started = _start()
        if stopping.is_set():
            # The signal came meanwhile, and was sent to the worker before.
            started.terminate()
        return started

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, forward)
    while True:
        try:
            code = child.wait(timeout=_EVERY)
        except subprocess.TimeoutExpired:
            now = _modified()
            changed = [path for path, at in now.items() if seen.get(path, at) != at]
            if changed and not stopping.is_set():
                sys.stderr.write(f"{changed[0]} changed, restarting the worker\n")
                child.terminate()
                child.wait()
                child = start()
            seen = now
            continue
        if stopping.is_set() or code == 0:
            return code
        # The worker failed, perhaps on a file being edited: wait for the next change.
        while not stopping.is_set() and _modified() == seen:
            clock.pause(_EVERY)
        if stopping.is_set():
            return code
        seen = _modified()
        child = start()


def _start() -> subprocess.Popen[bytes]:
    environment = {**os.environ, _PARENT: str(os.getpid())}
    return subprocess.Popen(get_child_arguments(), env=environment)


def _modified() -> dict[Path, float]:
    found = {}
    for path in iter_all_python_module_files():
        try:
            found[path] = path.stat().st_mtime
        except OSError:
            continue
    return found
