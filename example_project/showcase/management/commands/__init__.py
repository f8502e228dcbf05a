"""Commands of the showcase."""

from __future__ import annotations
