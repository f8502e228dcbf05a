"""Readings, pictures, mail and a report: jobs that behave, and some that do not."""

from __future__ import annotations
