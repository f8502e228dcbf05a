"""The settings of the tests, with ``tests.workload.sabotage`` and what ``OJS`` a test asks for."""

from __future__ import annotations

import json
import os

from tests.settings import *  # noqa: F403
from tests.settings import INSTALLED_APPS, OJS

INSTALLED_APPS = [*INSTALLED_APPS, "tests.workload.sabotage"]
OJS = {**OJS, **json.loads(os.environ.get("OJS_TEST_SETTINGS", "{}"))}
