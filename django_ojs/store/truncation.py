"""Moments cut to their minute or hour, in statements that group many rows."""

from __future__ import annotations

from typing import Any

from django.db.models.functions import TruncHour, TruncMinute

_HOUR, _MINUTE = len("2026-11-25 22"), len("2026-11-25 22:41")


class _CutText:
    """On SQLite, where a moment is text, a part of that: Django would call Python for each row."""

    kept: int

    def as_sqlite(self: Any, compiler: Any, connection: Any, **context: Any) -> tuple[str, Any]:
        statement, parameters = compiler.compile(self.lhs)
        rest = "2026-11-25 00:00:00"[self.kept :]
        return f"substr({statement}, 1, {self.kept}) || '{rest}'", parameters


class CutToHour(_CutText, TruncHour):
    """The hour in UTC in which a moment is."""

    kept = _HOUR


class CutToMinute(_CutText, TruncMinute):
    """The minute in UTC in which a moment is."""

    kept = _MINUTE
