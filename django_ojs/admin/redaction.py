"""Redaction of arguments, meta and results."""

from __future__ import annotations

import json
from typing import Any

from django_ojs import conf

HIDDEN = "••••"


def hides(key: str) -> bool:
    """Whether values under the key are redacted."""
    return any(word in key.lower() for word in conf.current().admin.redact)


def redacted(value: Any) -> Any:
    """The value, redacted under keys that contain a word of ``OJS["ADMIN"]["REDACT"]``."""
    if isinstance(value, dict):
        return {key: HIDDEN if hides(key) else redacted(item) for key, item in value.items()}
    if isinstance(value, list):
        return [redacted(item) for item in value]
    return value


def pretty(value: Any) -> str:
    """A value as indented JSON."""
    return json.dumps(value, indent=2, ensure_ascii=False)
