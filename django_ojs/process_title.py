"""What ``ps`` and ``top`` show for the processes of a worker, where ``setproctitle`` is installed."""

from __future__ import annotations

from collections.abc import Callable

NAME = "django-ojs"
_set: Callable[[str], None] | None
try:
    # Now, so that processes that are forked later share what it occupies.
    from setproctitle import setproctitle as _set
except ImportError:
    _set = None


def set_title(role: str) -> None:
    """Show this process as ``django-ojs: ROLE``."""
    if _set is not None:
        _set(f"{NAME}: {role}")
