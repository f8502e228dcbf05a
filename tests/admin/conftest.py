"""Users that are gone afterwards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.contrib.auth.models import User


@pytest.fixture
def no_users(ojs_db: None) -> Iterator[None]:
    """No users before and after."""
    User.objects.all().delete()
    yield
    User.objects.all().delete()
