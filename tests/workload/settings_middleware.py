"""The tests' settings, with execution middleware."""

from __future__ import annotations

import os

from tests.settings import *  # noqa: F403
from tests.settings import OJS

OJS: dict[str, object] = {  # type: ignore[no-redef]
    **OJS,
    "EXECUTION_MIDDLEWARE": ["tests.workload.middleware.outer", "tests.workload.middleware.inner"],
    "EXECUTOR_MAX_JOBS": int(os.environ.get("OJS_TEST_MAX_JOBS", "5000")),
}
