"""Values kept by key within a number of bytes: the least recently used make way, so that no client decides how much
memory what it once sent takes."""

from __future__ import annotations

from typing import Generic, TypeVar

Value = TypeVar("Value")
OVERHEAD = 4096  # bytes that an entry counts for, besides those it was made from: a pod's request as Python objects


class Kept(Generic[Value]):
    """Keys are digests: a large key would be kept as long as its value."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._values: dict[bytes, tuple[Value, int]] = {}  # the least recently used first
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: bytes) -> Value | None:
        found = self._values.get(key)
        if found is None:
            return None
        if self.bytes > self._most // 2:  # below, nothing makes way, so that the order does not matter
            self._values[key] = self._values.pop(key)
        return found[0]

    def put(self, key: bytes, value: Value, size: int) -> None:
        """`size`: bytes that the value was made from. A value beyond a sixteenth of the room is not kept."""
        size += OVERHEAD
        if size > self._most // 16:
            return
        self._drop(key)
        while self._values and self.bytes + size > self._most:
            self._drop(next(iter(self._values)))
        self._values[key] = (value, size)
        self.bytes += size

    def _drop(self, key: bytes) -> None:
        found = self._values.pop(key, None)
        if found is not None:
            self.bytes -= found[1]
