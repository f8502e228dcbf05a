"""The count of faults is a sum of what was injected, and knows only rows of the catalogue."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.faults import tally


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> tuple[Counter[str], Counter[str]]:
    """Counts of this test's own."""
    own: tuple[Counter[str], Counter[str]] = Counter(), Counter()
    monkeypatch.setattr(tally, "faults", own[0])
    monkeypatch.setattr(tally, "invariants", own[1])
    return own


def test_counts_of_all_processes_are_added_up(
    counts: tuple[Counter[str], Counter[str]], tmp_path: Path
) -> None:
    tally.injected("F1", "F2")
    tally.injected("F1", times=1200)
    tally.checked("I1", "I2", times=3)
    tally.write(tmp_path / "1.json")
    tally.write(tmp_path / "2.json")
    added = tally.add_up(tmp_path)
    assert added == (Counter(F1=2402, F2=2), Counter(I1=6, I2=6))
    assert tally.line(*added) == ("faults injected: 2,404 of 2 rows; invariants checked: 12 of 2 kinds")


def test_unknown_row_is_refused(counts: tuple[Counter[str], Counter[str]]) -> None:
    with pytest.raises(ValueError, match="F999 is not in the catalogue"):
        tally.injected("F999")
    assert not counts[0]
