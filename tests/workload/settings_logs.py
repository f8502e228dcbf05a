"""The settings of the tests, with logs of attempts, in a project that configures the root logger."""

from __future__ import annotations

import json
import os

from tests.settings import *  # noqa: F403
from tests.settings import OJS

OJS = {**OJS, "LOGS": os.environ.get("OJS_TEST_LOGS", "INFO")}
LOGGING = json.loads(os.environ.get("OJS_TEST_LOGGING", "{}"))
