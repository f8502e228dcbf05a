"""The transactions of extensions, which do not see the store: run again when they lost a race."""

from __future__ import annotations

from django_ojs.store.contention import in_transaction

__all__ = ["in_transaction"]
