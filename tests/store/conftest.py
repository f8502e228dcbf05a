"""Workers on the test database, as in the process tests."""

from __future__ import annotations

from tests.process.conftest import diary, flag, manage, python, worker  # noqa: F401
