"""The page about the states is made from the table of transitions."""

from __future__ import annotations

from pathlib import Path

from django_ojs.domain.states import ARROWS, State, Trigger

PAGE = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "states.md"


def table() -> str:
    """The transition table in Markdown, in the order of the triggers."""
    lines = ["| Trigger | From | To |", "|---|---|---|"]
    for trigger in Trigger:
        rows = [arrow for arrow in ARROWS if arrow.trigger == trigger]
        for source in (None, *State):
            targets = [t for t in (*State, None) if any(a[1:] == (source, t) for a in rows)]
            if targets:
                names = ", ".join(f"`{t}`" if t else "gone" for t in targets)
                lines.append(f"| {trigger} | {f'`{source}`' if source else 'new'} | {names} |")
    return "\n".join(lines)


def test_the_page_has_the_table() -> None:
    assert table() in PAGE.read_text()


def test_every_state_is_explained() -> None:
    text = PAGE.read_text().split("## Transitions")[0]
    assert [state for state in State if f"**{state}**" not in text] == []
