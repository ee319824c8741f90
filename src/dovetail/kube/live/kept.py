"""A cache with a limit on bytes and one on entries: the least recently used values are dropped.

So no client decides how much memory its old objects take.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from dovetail.engine.ledger.remembered import size_of

Value = TypeVar("Value")
OVERHEAD = 256  # bytes of an entry beside its value: the digest, and its place in the table


class Kept(Generic[Value]):
    """The cache. Keys are digests: a large key would be kept as long as its value."""

    def __init__(self, most_bytes: int, most: Callable[[], int]) -> None:
        """`most`: how many entries it may have now."""
        self._most_bytes, self._most = most_bytes, most
        self._values: dict[bytes, tuple[Value, int]] = {}  # least recently used first
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: bytes) -> Value | None:
        found = self._values.get(key)
        if found is None:
            return None
        self._values[key] = self._values.pop(key)
        return found[0]

    def put(self, key: bytes, value: Value) -> None:
        """Keep a value. A value beyond a sixteenth of the capacity is not kept."""
        size = size_of(value) + OVERHEAD
        if size > self._most_bytes // 16:
            return
        self._drop(key)
        most = self._most()
        while self._values and (self.bytes + size > self._most_bytes or len(self._values) >= most):
            self._drop(next(iter(self._values)))
        self._values[key] = (value, size)
        self.bytes += size

    def _drop(self, key: bytes) -> None:
        found = self._values.pop(key, None)
        if found is not None:
            self.bytes -= found[1]
