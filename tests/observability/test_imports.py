"""What is optional is loaded only where it is used."""

from __future__ import annotations

import subprocess
import sys

from tests.support import ROOT

_EVERYTHING = """
import pkgutil, sys, django
django.setup()
import django_ojs
from importlib import import_module
from django_ojs.management import base
own = {"tracing", "sentry", "sentry_check_ins", "prometheus", "otel_metrics"}
own = {f"observability.{name}" for name in own}
own.add("testing.worker_settings")  # of a process that a test starts
for found in pkgutil.walk_packages(django_ojs.__path__, "django_ojs."):
    if found.name.removeprefix("django_ojs.") not in own:
        if not found.name.endswith("__main__") and ".migrations" not in found.name:
            import_module(found.name)
optional = ("opentelemetry", "sentry_sdk", "structlog", "prometheus_client")
print([name for name in sys.modules if name.partition(".")[0] in optional])
"""


def test_no_optional_library_is_loaded_unasked() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _EVERYTHING], capture_output=True, text=True, cwd=ROOT, timeout=60
    )
    assert done.stdout == "[]\n", done.stderr
