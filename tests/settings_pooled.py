"""The tests' settings behind a pool that hands a session to somebody else after each transaction."""

from __future__ import annotations

from tests.settings import *  # noqa: F403
from tests.settings import DATABASES

DATABASES["default"]["DISABLE_SERVER_SIDE_CURSORS"] = True
