"""Where the jobs put their files."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings


def target(relative: str | Path) -> Path:
    """The path of a file below ``settings.VAR_DIR``, in a folder that exists."""
    path: Path = Path(settings.VAR_DIR) / relative
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
