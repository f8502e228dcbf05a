"""System checks of ``TASKS``, and whom the settings concern."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from django.test import override_settings

from django_ojs.tasks_backend.compat import task_backends
from tests.support import ROOT

PATH = "django_ojs.tasks_backend.OJSBackend"


@pytest.mark.parametrize(
    ("entry", "ojs", "found"),
    [
        ({}, {}, []),
        ({"QUEUES": ["default", "low_priority", "a.b-c"]}, {}, []),
        ({"QUEUES": ["default", "Low", "-a", 5]}, {}, ["ojs.E015"] * 3),
        ({"OPTIONS": {"retries": 3, "x": 1}}, {}, ["ojs.E014"] * 2),
        ({}, {"DATABASE": "jobs"}, ["ojs.W011"]),
        ({"QUEUES": ["Low"]}, {"TYPO": 1}, ["ojs.E015"]),
    ],
)
def test_each_mistake_is_found(entry: dict[str, Any], ojs: dict[str, Any], found: list[str]) -> None:
    with override_settings(TASKS={"default": {"BACKEND": PATH, **entry}}, OJS=ojs):
        messages = task_backends["default"].check()
    assert [message.id for message in messages] == found
    assert all(message.hint for message in messages)


@pytest.mark.slow
def test_a_project_without_our_backend_loads_nothing_of_it() -> None:
    """On Django 5.2 it could not be loaded."""
    source = (
        "import sys, django\n"
        "from django.conf import settings\n"
        "settings.configure(INSTALLED_APPS=['django.contrib.contenttypes', 'django.contrib.auth',"
        " 'rest_framework', 'django_ojs'], USE_TZ=True)\n"
        "django.setup()\n"
        "import django_ojs; django_ojs.job\n"
        "print([name for name in sys.modules if 'tasks_backend' in name or name == 'django_tasks'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", source], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
