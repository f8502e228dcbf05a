"""A small real application that uses django_ojs; the documentation quotes it."""

from __future__ import annotations
