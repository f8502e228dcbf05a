"""The settings of the tests, for a project in which nobody has written a handler yet."""

from __future__ import annotations

from tests.settings import *  # noqa: F403
from tests.settings import INSTALLED_APPS

INSTALLED_APPS = [app for app in INSTALLED_APPS if "workload" not in app and "showcase" not in app]
