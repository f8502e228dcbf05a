"""What is hidden of arguments, meta and results before they are shown."""

from __future__ import annotations

import json
from typing import Any

from django_ojs import conf

HIDDEN = "••••"


def redacted(value: Any) -> Any:
    """The value, without what stands under a key that sounds secret (``OJS["ADMIN"]["REDACT"]``)."""
    words = conf.current().admin.redact
    if isinstance(value, dict):
        return {
            key: HIDDEN if any(word in key.lower() for word in words) else redacted(item)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [redacted(item) for item in value]
    return value


def pretty(value: Any) -> str:
    """A value as indented JSON."""
    return json.dumps(value, indent=2, ensure_ascii=False)
