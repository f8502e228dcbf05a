"""Test the jobs of a project in its own tests (docs/howto/testing.md).

What is public is importable from here and loaded on first use: the pytest plugin must cost a test run
without jobs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from django_ojs.testing.assertions import assert_enqueued as assert_enqueued
    from django_ojs.testing.assertions import refute_enqueued as refute_enqueued
    from django_ojs.testing.cases import OJSTestCase as OJSTestCase
    from django_ojs.testing.cases import OJSTestMixin as OJSTestMixin
    from django_ojs.testing.clearing import clear as clear
    from django_ojs.testing.committing import commits as commits
    from django_ojs.testing.draining import Drained as Drained
    from django_ojs.testing.draining import drain as drain
    from django_ojs.testing.draining import run_jobs as run_jobs
    from django_ojs.testing.failing import fail_all as fail_all
    from django_ojs.testing.failing import fail_next as fail_next
    from django_ojs.testing.holding import running as running
    from django_ojs.testing.job_clock import JobClock as JobClock
    from django_ojs.testing.matching import enqueued as enqueued
    from django_ojs.testing.modes import fake as fake
    from django_ojs.testing.modes import inline as inline
    from django_ojs.testing.observing import events as events
    from django_ojs.testing.performing import Performed as Performed
    from django_ojs.testing.performing import perform as perform
    from django_ojs.testing.task_backends import DummyBackend as DummyBackend
    from django_ojs.testing.task_backends import ImmediateBackend as ImmediateBackend
    from django_ojs.testing.worker_process import WorkerProcess as WorkerProcess

_MODULES = {
    "Drained": "draining",
    "DummyBackend": "task_backends",
    "ImmediateBackend": "task_backends",
    "JobClock": "job_clock",
    "OJSTestCase": "cases",
    "OJSTestMixin": "cases",
    "Performed": "performing",
    "WorkerProcess": "worker_process",
    "assert_enqueued": "assertions",
    "clear": "clearing",
    "commits": "committing",
    "drain": "draining",
    "enqueued": "matching",
    "events": "observing",
    "fail_all": "failing",
    "fail_next": "failing",
    "fake": "modes",
    "inline": "modes",
    "perform": "performing",
    "refute_enqueued": "assertions",
    "run_jobs": "draining",
    "running": "holding",
}
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'django_ojs.testing' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"django_ojs.testing.{_MODULES[name]}"), name)
