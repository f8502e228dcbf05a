"""The tests' settings on an engine that does to its clients what distributed SQL does."""

from __future__ import annotations

from tests.settings import *  # noqa: F403
from tests.settings import DATABASES

DATABASES["default"]["ENGINE"] = "tests.distributed.engine"
