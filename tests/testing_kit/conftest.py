"""Handlers of these tests, and a database that is like that of a user's ``TestCase``, or committed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import transaction

from django_ojs import hooks
from django_ojs.handlers import registry

pytest_plugins: list[str] = []


@pytest.fixture(autouse=True)
def own_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is unknown to all others."""
    monkeypatch.setattr(registry, "_handlers", dict(registry._handlers))
    monkeypatch.setattr(hooks, "_job_types", dict(hooks._job_types))


@pytest.fixture
def in_test_case(ojs_db: None) -> Iterator[None]:
    """A transaction as ``TestCase`` makes it, rolled back in the end."""
    block: Any = transaction.atomic(using="default")
    block._from_testcase = True
    with block:
        yield
        transaction.set_rollback(True, using="default")


@pytest.fixture(params=["committed", "TestCase"])
def database(request: pytest.FixtureRequest) -> str:
    """A test that commits, and one that runs in the transaction of ``TestCase``."""
    request.getfixturevalue("ojs_db" if request.param == "committed" else "in_test_case")
    return str(request.param)
