"""Functions of ``signal`` that every job needs, without its enums, which take ten times as long."""

from __future__ import annotations

from _signal import getsignal, pthread_sigmask, signal  # type: ignore[import-not-found]

__all__ = ["getsignal", "pthread_sigmask", "signal"]
