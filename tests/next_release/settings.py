"""The tests' settings for processes of the next release."""

from __future__ import annotations

from tests.next_release import MODULES
from tests.settings import *  # noqa: F403

MIGRATION_MODULES = MODULES
