"""Text of others in terminals and logs: it can end no line and send the terminal no command."""

from __future__ import annotations

import re

_CONTROLS = (
    "\x00-\x1f\x7f-\x9f"  # C0, DEL, C1
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # what changes the direction of text
    "\u2028\u2029"  # line and paragraph separators
)
_UNSAFE = re.compile(f"[{_CONTROLS}]")
_UNSAFE_BUT_NEWLINES = re.compile(f"(?!\n)[{_CONTROLS}]")


def is_plain(text: str) -> bool:
    """Whether there is no control, direction or line character in the text."""
    return _UNSAFE.search(text) is None


def one_line(text: str) -> str:
    """The text with control, direction and line characters written as escapes."""
    return text if text.isprintable() else _UNSAFE.sub(_escape, text)


def lines(text: str) -> str:
    """The same, but newlines stay."""
    return text if text.isprintable() else _UNSAFE_BUT_NEWLINES.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")
