"""What was used last is remembered, up to a number."""

from __future__ import annotations

from django_ojs.domain.lru import LRU


def test_the_one_that_was_used_longest_ago_makes_room() -> None:
    kept: LRU[str, int] = LRU(2)
    assert kept.put("a", 1) is None
    assert kept.put("b", 2) is None
    assert kept.get("a") == 1
    assert kept.put("c", 3) == 2
    assert [kept.get(key) for key in "abc"] == [1, None, 3]
    assert kept.put("a", 4) is None, "a new value of a known key takes no room"
    assert kept.put("d", 5) == 3
    assert len(kept) == 2


def test_what_is_forgotten_on_purpose_is_gone() -> None:
    kept: LRU[str, int] = LRU(2)
    kept.put("a", 1)
    kept.pop("a")
    kept.pop("never")
    assert kept.get("a") is None
    kept.put("b", 2)
    kept.clear()
    assert len(kept) == 0
