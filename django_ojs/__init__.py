"""Background jobs in your own database, with deadlines that are kept (Open Job Spec)."""

from __future__ import annotations

__version__ = "0.1.0"
