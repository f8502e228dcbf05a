"""Two players for each race."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from django_ojs import clock
from tests.races.stepping import Player


@pytest.fixture
def players(ojs_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Player, Player]]:
    """Two threads, each with a connection. Nothing is left to chance."""
    monkeypatch.setattr(clock, "jitter", lambda: 0.5)
    two = Player(), Player()
    yield two
    for player in two:
        player.close()
