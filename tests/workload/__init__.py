"""Handlers that behave and misbehave, for tests with real workers."""

from __future__ import annotations
