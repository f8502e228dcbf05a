"""Run Django's own tests of ``django.tasks`` against our backend; prints the outcomes as JSON.

``python -m tests.tasks_backend.djangos_own FOLDER``, the folder ``tests`` of Django's source. The files
are used as they are: names in their modules, and the settings, say which backend is meant. On Django
5.2 the names of ``django.tasks`` are those of the package ``django-tasks``.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import unittest
from importlib import import_module
from typing import Any

import django

OURS = "tests.tasks_backend.djangos_own_backend.RecordedBackend"


class Outcomes(unittest.TestResult):
    """The outcome of each test by its name, and why those failed that did."""

    def __init__(self) -> None:
        super().__init__()
        self.by_name: dict[str, str] = {}

    def addSuccess(self, test: unittest.TestCase) -> None:
        self.by_name[_name(test)] = "passed"

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        self.by_name[_name(test)] = self._exc_info_to_string(err, test)  # type: ignore[attr-defined]

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        self.addFailure(test, err)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self.by_name[_name(test)] = f"skipped: {reason}"


def _name(test: unittest.TestCase) -> str:
    return test.id().rpartition("djangos_own.")[2].rpartition("__main__.")[2]


def rebind() -> None:
    """Give the modules of ``django-tasks`` the names that they have in Django 6.0."""
    names = {
        "django.tasks": "django_tasks",
        "django.tasks.base": "django_tasks.base",
        "django.tasks.checks": "django_tasks.checks",
        "django.tasks.exceptions": "django_tasks.exceptions",
        "django.tasks.backends": "django_tasks.backends",
        "django.tasks.backends.base": "django_tasks.backends.base",
        "django.tasks.backends.dummy": "django_tasks.backends.dummy",
        "django.tasks.backends.immediate": "django_tasks.backends.immediate",
        "django.tasks.signals": "django_tasks.signals",
        "django.utils.json": "django_tasks.utils",
    }
    found: dict[str, Any] = {name: import_module(theirs) for name, theirs in names.items()}
    sys.modules.update(found)
    django.tasks = found["django.tasks"]
    exceptions = found["django.tasks.exceptions"]
    for name in ("InvalidTask", "InvalidTaskBackend"):
        if not hasattr(exceptions, name):
            setattr(exceptions, name, getattr(exceptions, f"{name}Error"))
    found["django.tasks.signals"].logger = logging.getLogger("django.tasks")


def suite() -> unittest.TestSuite:
    """The test cases of Django about tasks and about its backend with results."""
    from django.test import TransactionTestCase, override_settings

    theirs: Any = import_module("tasks.test_tasks")
    dummy: Any = import_module("tasks.test_dummy_backend")
    backend: Any = import_module("tests.tasks_backend.djangos_own_backend").RecordedBackend
    theirs.DummyBackend = dummy.DummyBackend = backend
    immediate = "django.tasks.backends.immediate.ImmediateBackend"
    entries = {
        "default": {"BACKEND": OURS, "QUEUES": ["default", "queue_1"]},
        "immediate": {"BACKEND": immediate, "QUEUES": []},
        "missing": {"BACKEND": "does.not.exist"},
    }
    alone = {"default": {"BACKEND": OURS, "QUEUES": []}}

    # What their coroutines do is done in another thread, which sees committed rows only.
    @override_settings(TASKS=entries, USE_TZ=True)
    class Tasks(theirs.TaskTestCase, TransactionTestCase):  # type: ignore[misc]
        databases = {"default"}

    @override_settings(TASKS=alone)
    class Dummy(dummy.DummyBackendTestCase, TransactionTestCase):  # type: ignore[misc]
        databases = {"default"}

    @override_settings(TASKS=alone)
    class Transactions(dummy.DummyBackendTransactionTestCase):  # type: ignore[misc]
        databases = {"default"}

    whole = unittest.TestSuite()
    for case in (Tasks, Dummy, Transactions):
        case.__qualname__ = case.__name__
        whole.addTest(unittest.defaultTestLoader.loadTestsFromTestCase(case))
    return whole


def main(folder: str) -> None:
    """Run them on a test database of their own."""
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    sys.path.insert(0, folder)
    if django.VERSION < (6, 0):
        rebind()
    django.setup()
    from django.test.runner import DiscoverRunner

    runner = DiscoverRunner(verbosity=0, interactive=False)
    runner.setup_test_environment()
    made = runner.setup_databases()
    outcomes = Outcomes()
    try:
        suite().run(outcomes)
    finally:
        runner.teardown_databases(made)
    json.dump({"django": django.__version__, "outcomes": outcomes.by_name}, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
