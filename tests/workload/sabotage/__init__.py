"""An app that breaks the worker from within: for faults that nobody can inject from outside."""

from __future__ import annotations
