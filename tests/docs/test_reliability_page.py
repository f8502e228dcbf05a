"""What the page about reliability says is tested, is tested."""

from __future__ import annotations

from tests.faults.catalogue import ROWS
from tests.faults.page import PAGE, filled, where_tested


def test_the_table_is_that_of_the_catalogue() -> None:
    text = PAGE.read_text()
    assert filled(text) == text, "run: python -m tests.faults.page"


def test_every_urgent_fault_is_injected_somewhere() -> None:
    files = where_tested()
    assert [name for name, row in ROWS.items() if row.priority == 1 and not files[name]] == []
