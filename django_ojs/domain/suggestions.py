"""Suggestions for a misspelled name."""

from __future__ import annotations

import difflib
from collections.abc import Collection


def did_you_mean(name: str, known: Collection[str], kind: str, also: Collection[str] = ()) -> str:
    """``did you mean 'timeout'?`` where a known name is near, otherwise all of them: ``the options
    are ...``. ``kind`` is what they are, in the plural; ``also`` are names that are not listed.
    """
    near = difflib.get_close_matches(name, sorted({*known, *also}), n=1)
    return f"did you mean {near[0]!r}?" if near else f"the {kind} are {', '.join(known)}"
