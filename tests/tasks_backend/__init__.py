from __future__ import annotations

import pytest

from tests.settings import HAS_TASKS

if not HAS_TASKS:
    pytest.skip("django-tasks is not installed", allow_module_level=True)
