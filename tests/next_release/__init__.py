"""A release after this one, as far as a database notices: what its migrations may do."""

from __future__ import annotations

MODULES = {"django_ojs": "tests.next_release.migrations"}
"""``MIGRATION_MODULES`` of that release."""
