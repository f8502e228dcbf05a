"""What was used last, up to a number: for what a process remembers of names that others choose."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LRU(Generic[K, V]):
    """A mapping of at most ``most`` keys: the one that was used longest ago makes room. Thread-safe."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: K) -> V | None:
        """The value, which is used now."""
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key]

    def put(self, key: K, value: V) -> V | None:
        """Remember a value; returns the one that had to make room."""
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            return self._values.popitem(last=False)[1] if len(self._values) > self._most else None

    def pop(self, key: K) -> None:
        """Forget a key, if it is there."""
        with self._lock:
            self._values.pop(key, None)

    def clear(self) -> None:
        """Remove all entries."""
        with self._lock:
            self._values.clear()
