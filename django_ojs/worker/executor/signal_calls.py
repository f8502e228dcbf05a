"""What is asked around every job of the module ``signal``, without its enumerations: those take ten
times as long as the calls themselves.
"""

from __future__ import annotations

from _signal import getsignal, pthread_sigmask, signal  # type: ignore[import-not-found]

__all__ = ["getsignal", "pthread_sigmask", "signal"]
