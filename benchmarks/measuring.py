"""Measurements: what is asked for, how it is run, and the figures that came out."""

from __future__ import annotations

import fcntl
import json
import os
import statistics
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import IO, Any

from benchmarks import venvs
from benchmarks.child import Child
from benchmarks.machine import Calm
from benchmarks.own_server import OwnServer
from benchmarks.servers import Servers
from benchmarks.systems import SYSTEMS

ROOT = Path(__file__).resolve().parent.parent
_TRIES = 2
_SHORT = 60.0
"""What took longer, in seconds, is not tried again when the machine was disturbed."""
_QUICK = 3.0
"""What takes no longer, in seconds, has all of its turns in the first round."""
_TURN = 35.0
"""After so many seconds the next measurement asks for the lock anew."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One workload of one system. ``once`` is for what need not be repeated.

    ``options`` go to the workload, ``ojs`` are settings of ours; ``RETENTION.completed`` is one within
    another. ``seconds`` is how long it may take. One that ``waits`` does little else, and is measured
    at the same time as the same of other systems.
    """

    system: str
    workload: str
    profile: str = "default"
    options: tuple[tuple[str, Any], ...] = ()
    ojs: tuple[tuple[str, Any], ...] = ()
    once: bool = False
    seconds: float = 600.0
    waits: bool = False

    @property
    def key(self) -> str:
        """Its name in the JSON."""
        told = [f"{name}={value}" for name, value in (*self.options, *self.ojs)]
        return " ".join([self.system, self.workload, self.profile, *told])


@dataclass(slots=True)
class Figures:
    """What was measured, by measure; ``missing`` says why a system was not."""

    samples: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def add(self, measure: Measure, sample: dict[str, Any]) -> None:
        """One more sample."""
        self.samples.setdefault(measure.key, []).append(sample)

    def has(self, measure: Measure, number: int) -> bool:
        """Whether it was measured in this round, and did not fail."""
        samples = self.samples.get(measure.key, [])
        return len(samples) >= number and "error" not in samples[number - 1]

    def is_quick(self, measure: Measure) -> bool:
        """Whether it has taken a few seconds at most, and did not fail."""
        samples = self.samples.get(measure.key, [])
        return bool(samples) and "error" not in samples[-1] and samples[-1].get("took_s", inf) <= _QUICK

    def good(self, measure: Measure) -> list[dict[str, Any]]:
        """The samples without an error; those of a disturbed machine only if there are no others."""
        fine = [sample for sample in self.samples.get(measure.key, []) if "error" not in sample]
        return [sample for sample in fine if not sample.get("disturbed")] or fine

    def median(self, measure: Measure, name: str) -> float | None:
        """The median of a figure over the repetitions, ``None`` if there is none."""
        values = [sample[name] for sample in self.good(measure) if sample.get(name) is not None]
        return statistics.median(values) if values else None

    def why_not(self, measure: Measure) -> str:
        """Why a measure has no figures."""
        if measure.system in self.missing:
            return self.missing[measure.system]
        samples = self.samples.get(measure.key, [])
        for sample in samples:
            if why := sample.get("missing"):
                return str(why)
        for sample in samples:
            if "error" in sample:
                return f"{measure.system} {measure.workload} failed: {sample['error']}"
        return f"{measure.system} {measure.workload} was not run"

    def quiet(self) -> str:
        """How many measurements began on a busy machine, or were disturbed; empty if none were."""
        every = [sample for found in self.samples.values() for sample in found]
        told = [
            f"{count} {what}"
            for count, what in (
                (
                    sum(sample.get("quiet_before") is False for sample in every),
                    "began on a busy machine",
                ),
                (sum(bool(sample.get("disturbed")) for sample in every), "met a slow disk"),
            )
            if count
        ]
        return f"Of {len(every)} measurements {' and '.join(told)}." if told else ""

    def problems(self) -> list[str]:
        """Measurements that failed, jobs that were lost, jobs that ran twice."""
        found = []
        for key, samples in self.samples.items():
            for number, sample in enumerate(samples, start=1):
                where = f"{key}, round {number}"
                if "error" in sample:
                    found.append(f"{where}: {sample['error']}")
                found += [
                    f"{where}: {sample[name]} jobs {name.replace('_', ' ')}"
                    for name in ("lost", "ran_twice")
                    if sample.get(name)
                ]
        return found


@dataclass(slots=True)
class Bench:
    """Runs measures, each in a process of its own in the environment of its system."""

    servers: Servers
    calm: Calm
    venvs: Path
    scratch: Path
    prefix: str = "ojs_bench"
    lock: Path | None = None
    root: Path | None = None
    """Another tree to run; its packages come before the installed ones."""
    settings: dict[str, Any] = field(default_factory=dict)
    figures: Figures = field(default_factory=Figures)
    made: list[str] = field(default_factory=list)
    _own: dict[str, OwnServer] = field(default_factory=dict, init=False)
    _held: IO[str] | None = None
    _since: float = 0.0

    def prepare(self, systems: Iterable[str]) -> None:
        """Environments and databases. What cannot be is noted as missing."""
        for name in systems:
            system = SYSTEMS[name]
            absent = [
                self.servers.missing[kind] for kind in system.needs if kind in self.servers.missing
            ]
            why = absent[0] if absent else self._own_server(name) if system.alone else ""
            if not why and system.venv:
                why = venvs.ensure(self.venvs, system.venv)
            if not why:
                print(f"preparing {name}: {system.what}", flush=True)
                setup = Measure(name, "setup")
                with self._alone():
                    self.made.append(name)
                    made = self._invoke(setup, 1)
                if why := made.get("error", ""):
                    self.figures.add(setup, made)  # what should have worked is a problem
            if why:
                self.figures.missing[name] = why
                print(f"not measured: {name}: {why}", flush=True)

    def run(self, measure: Measure, number: int) -> None:
        """Measure once, on a quiet machine if that can be had; again when it was disturbed."""
        if measure.system in self.figures.missing:
            return
        sample: dict[str, Any] = {}
        waited = 0.0
        for attempt in range(_TRIES):
            with self._alone():
                asked = time.monotonic()
                quiet, began = self.calm.wait(), time.monotonic()
                with self.calm.watch() as probes:
                    sample = self._invoke(measure, number)
                sample["took_s"] = round(time.monotonic() - began, 1)
                waited += began - asked
                sample["waited_s"] = round(waited, 1)
                sample["quiet_before"] = quiet
                sample["disturbed"] = self.calm.disturbed(probes)
            fine = not sample["disturbed"] or sample["took_s"] > _SHORT
            if fine or "error" in sample or attempt + 1 == _TRIES:
                break
        self._note(measure, sample)

    def run_together(self, measures: Sequence[Measure], number: int) -> None:
        """The same of some that do little but wait, all at once, and not again."""
        wanted = [measure for measure in measures if measure.system not in self.figures.missing]
        children: list[Child] = []
        with self._alone():
            asked = time.monotonic()
            quiet, began = self.calm.wait(), time.monotonic()
            try:
                children += (self._start(measure, number) for measure in wanted)
                samples = [
                    child.result(measure.seconds)
                    for child, measure in zip(children, wanted, strict=True)
                ]
            except BaseException:
                for child in children:
                    child.end()
                raise
            took = round((time.monotonic() - began) / max(1, len(wanted)), 1)
        waited = round((began - asked) / max(1, len(wanted)), 1)
        about = {"took_s": took, "waited_s": waited, "quiet_before": quiet}
        for measure, sample in zip(wanted, samples, strict=True):
            self._note(measure, {**sample, **about})

    def _note(self, measure: Measure, sample: dict[str, Any]) -> None:
        self.figures.add(measure, sample)
        print(f"  {measure.key}: {_short(sample)}", flush=True)

    def clean(self) -> None:
        """Drop every database that was made, and the servers."""
        for name in self.made:
            self._invoke(Measure(name, "teardown"), 1)
        for server in self._own.values():
            server.end()
        self._own.clear()

    def _own_server(self, name: str) -> str:
        """Start a server for a system; why that failed, or ``""``."""
        if why := OwnServer.missing():
            return f"a PostgreSQL server of its own: {why}"
        try:
            self._own[name] = OwnServer.started(self.scratch / f"{name.replace('.', '_')}.server")
        except (OSError, RuntimeError) as error:
            return f"a PostgreSQL server of its own: {error}"[:300]
        return ""

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the lock that others who measure on this machine take too; give it up now and then."""
        if self.lock is not None and self._held is None:
            self._held = self.lock.open("w")
            fcntl.flock(self._held, fcntl.LOCK_EX)
            self._since = time.monotonic()
        try:
            yield
        finally:
            if self._held is not None and time.monotonic() - self._since > _TURN:
                self._held.close()
                self._held = None

    def _invoke(self, measure: Measure, number: int) -> dict[str, Any]:
        return self._start(measure, number).result(measure.seconds)

    def _start(self, measure: Measure, number: int) -> Child:
        pairs = [f"{name}={json.dumps(value)}" for name, value in measure.options]
        python = venvs.python_in(self.venvs, SYSTEMS[measure.system].venv)
        environment = {
            **os.environ,
            **self.servers.environment(),
            **({"BENCH_PG_URL": own.address} if (own := self._own.get(measure.system)) else {}),
            "BENCH_SYSTEM": measure.system,
            "BENCH_PROFILE": measure.profile,
            "BENCH_WORKLOAD": measure.workload,
            "BENCH_ROUND": str(number),
            "BENCH_PREFIX": self.prefix,
            "BENCH_SCRATCH": str(self.scratch),
            "BENCH_OJS": json.dumps(nested({**self.settings, **dict(measure.ojs)})),
        }
        for name in ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "DJANGO_SETTINGS_MODULE"):
            environment.pop(name, None)
        if self.root is not None:
            environment["PYTHONPATH"] = str(self.root)
        return Child(
            [python, "-m", "benchmarks.harness", measure.workload, *pairs],
            environment,
            folder=self.root or ROOT,
            log=self.scratch / f"{measure.system.replace('.', '_')}.log",
        )


def nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings whose names may have dots: ``{"A.b": 1}`` is ``{"A": {"b": 1}}``."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        *sections, last = name.split(".")
        place = found
        for section in sections:
            place = place.setdefault(section, {})
        place[last] = value
    return found


def _short(sample: dict[str, Any]) -> str:
    """A sample on one line."""
    told = []
    for name, value in sample.items():
        if isinstance(value, float):
            told.append(f"{name} {value:,.1f}")
        elif (
            not isinstance(value, list | dict)
            and value not in (False, None, 0)
            and name not in ("quiet_before", "waited_s")
        ):
            told.append(f"{name} {value}")
    return ", ".join(told)
