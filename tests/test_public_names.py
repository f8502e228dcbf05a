"""The names of the package, which are loaded on first use."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import django_ojs
from django_ojs import api


def test_a_star_import_has_what_is_public() -> None:
    found: dict[str, Any] = {}
    exec("from django_ojs import *", found)
    assert found.keys() - {"__builtins__"} == set(api.__all__)


def test_dir_names_what_is_public() -> None:
    assert set(api.__all__) < set(dir(django_ojs))
    assert all(hasattr(django_ojs, name) for name in dir(django_ojs))


def test_dir_can_be_asked_before_django_is_set_up() -> None:
    code = "import django_ojs; print('enqueue' in dir(django_ojs), '__version__' in dir(django_ojs))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "True"]
