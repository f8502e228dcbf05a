"""The machine that is measured on: what it is, and whether it is quiet enough right now."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.servers import Servers

PATIENCE = 5.0
"""Seconds to wait for quiet before a measurement: fifty are to fit into a quarter of an hour."""
_BLOCK = b"x" * 8192
_IDLE = 0.75
"""The part of all processors that must be unused before a measurement begins."""


def fsync_us(folder: Path, tries: int = 15) -> float:
    """The median of a few 8 KiB fdatasync calls, in microseconds: how busy the disk is."""
    took = []
    file = os.open(folder / "probe", os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        for _ in range(tries):
            os.lseek(file, 0, os.SEEK_SET)
            began = time.perf_counter()
            os.write(file, _BLOCK)
            os.fdatasync(file)
            took.append(1e6 * (time.perf_counter() - began))
    finally:
        os.close(file)
    return statistics.median(took)


class Calm:
    """Waits for quiet before a measurement, and says whether it stayed quiet."""

    def __init__(self, folder: Path, patience: float = PATIENCE) -> None:
        self._folder = folder
        self._patience = patience
        self.usual_us = min(fsync_us(folder) for _ in range(5))

    def wait(self) -> bool:
        """Until disk and processors have nothing else to do; False when patience ended first."""
        until = time.monotonic() + self._patience
        while True:
            idle = _idle(0.25)
            if idle >= _IDLE and fsync_us(self._folder, 7) <= 8 * self.usual_us:
                return True
            if time.monotonic() > until:
                return False
            time.sleep(0.5)

    @contextmanager
    def watch(self) -> Iterator[list[float]]:
        """Probes of the disk meanwhile, in microseconds."""
        probes: list[float] = []
        over = threading.Event()

        def probe() -> None:
            while not over.wait(0.5):
                probes.append(fsync_us(self._folder, 3))

        prober = threading.Thread(target=probe)
        prober.start()
        try:
            yield probes
        finally:
            over.set()
            prober.join()

    def disturbed(self, probes: list[float]) -> bool:
        """Whether the disk was far slower than usual for half of the time."""
        return bool(probes) and statistics.median(probes) > max(1500.0, 12 * self.usual_us)


def _idle(seconds: float) -> float:
    """The part of all processors that nobody used for a moment; 1 where nobody knows."""
    try:
        before = _ticks()
        time.sleep(seconds)
        after = _ticks()
    except OSError:
        return 1.0
    spent = [b - a for a, b in zip(before, after, strict=True)]
    return (spent[3] + spent[4]) / max(1, sum(spent))


def _ticks() -> list[int]:
    return [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]


def facts(servers: Servers, folder: Path, calm: Calm) -> dict[str, str]:
    """Everything about the machine that a figure depends on."""
    import django

    from django_ojs import __version__

    found = {
        "processors": f"{os.cpu_count()} x {_processor()}",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "disk": f"8 KiB fdatasync {calm.usual_us:.0f} us",
        "python": platform.python_version(),
        "django": django.get_version(),
        "django-ojs": f"{__version__} {_commit()}".strip(),
        **{name: _installed(name) for name in ("psycopg", "mysqlclient", "PyMySQL")},
        "sqlite": __import__("sqlite3").sqlite_version,
    }
    if "pg" in servers.urls:
        found |= _postgresql(servers.urls["pg"])
    return {name: value for name, value in found.items() if value}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    here = Path(__file__).parent
    try:
        return subprocess.run(
            command, cwd=here, capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _postgresql(url: str) -> dict[str, str]:
    """The settings of the server that matter."""
    import psycopg

    names = ("server_version", "fsync", "synchronous_commit", "shared_buffers", "max_wal_size")
    with psycopg.connect(url) as connection:
        values = {
            name: str(connection.execute(f"SHOW {name}".encode()).fetchone()[0])  # type: ignore[index]
            for name in names
        }
    number = values.pop("server_version").partition(" ")[0]
    told = ", ".join(f"{name}={value}" for name, value in values.items())
    return {"postgresql": f"{number} ({told})"}
