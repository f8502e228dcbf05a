"""``make faults``: a lab that does one harm at a time to a fleet, with a judge of its own."""

from __future__ import annotations

NAMES = ("pg", "mariadb", "sqlite")
"""The databases."""
