"""What ``ps`` and ``top`` show for the processes of a worker, where ``setproctitle`` is installed."""

from __future__ import annotations

from importlib.util import find_spec

NAME = "django-ojs"
_AVAILABLE = find_spec("setproctitle") is not None


def set_title(role: str) -> None:
    """Show this process as ``django-ojs: ROLE``."""
    if _AVAILABLE:
        from setproctitle import setproctitle

        setproctitle(f"{NAME}: {role}")
