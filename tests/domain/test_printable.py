"""No text of others ends a line or commands a terminal."""

from __future__ import annotations

import sys
import unicodedata

import pytest

from django_ojs.domain.printable import lines, one_line

CONTROLS = [*map(chr, range(0x20)), "\x7f", *map(chr, range(0x80, 0xA0)), *"\u202e\u2066\u2028\u200f"]


@pytest.mark.parametrize("control", CONTROLS, ids=ascii)
def test_controls_are_escaped(control: str) -> None:
    assert one_line(f"a{control}b") == f"a{control.encode('unicode_escape').decode()}b"
    assert lines(f"a{control}b") == ("a\nb" if control == "\n" else one_line(f"a{control}b"))


@pytest.mark.parametrize("text", ["", "plain", "Größe 10 µs ≤ 日本語 👍🏽", "a\\nb"])
def test_other_text_stays(text: str) -> None:
    assert one_line(text) == lines(text) == text


@pytest.mark.slow
def test_nothing_that_ends_a_line_or_commands_a_terminal_counts_as_printable() -> None:
    """Printable text is passed on unread."""
    unsafe = {character for character in map(chr, range(sys.maxunicode + 1)) if _is_unsafe(character)}
    assert {"\x1b", "\x9b", "\u202e", "\u2028"} <= unsafe
    assert not [character for character in unsafe if character.isprintable()]


def _is_unsafe(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Zl", "Zp") or unicodedata.bidirectional(
        character
    ) in {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
