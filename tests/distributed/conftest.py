"""These tests are for one engine only: elsewhere they are not even collected."""

from __future__ import annotations

import pytest
from django.conf import settings

from tests.process.conftest import diary, flag, manage, python, worker  # noqa: F401

_ENGINE = "tests.distributed.engine"
collect_ignore_glob = [] if settings.DATABASES["default"]["ENGINE"] == _ENGINE else ["test_*.py"]


@pytest.fixture
def overlooking(ojs_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Claims overlook a third of the free rows."""
    from tests.distributed.engine.base import Behaviour

    monkeypatch.setattr(Behaviour, "overlooks", 0.3)
