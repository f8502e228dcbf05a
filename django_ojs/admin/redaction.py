"""What is hidden of arguments, meta and results before they are shown."""

from __future__ import annotations

import json
from typing import Any

from django_ojs import conf

HIDDEN = "••••"


def hides(key: str) -> bool:
    """Whether what stands under the key is not shown."""
    return any(word in key.lower() for word in conf.current().admin.redact)


def redacted(value: Any) -> Any:
    """The value, without what stands under a key that sounds secret (``OJS["ADMIN"]["REDACT"]``)."""
    if isinstance(value, dict):
        return {key: HIDDEN if hides(key) else redacted(item) for key, item in value.items()}
    if isinstance(value, list):
        return [redacted(item) for item in value]
    return value


def pretty(value: Any) -> str:
    """A value as indented JSON."""
    return json.dumps(value, indent=2, ensure_ascii=False)
