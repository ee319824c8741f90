"""A cache of answers to what clients write. It has a limit on entries and one on bytes."""

from __future__ import annotations

import gc
from enum import Enum
from itertools import islice
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import TypeVar

Key = TypeVar("Key")
Answer = TypeVar("Answer")
ENTRY_BYTES = 200  # of an entry beside what it keeps
HEADER_BYTES = 16  # of an object, for the garbage collector
LEAST_REMEMBERED = 1_024  # answers about pods that are kept where few pods exist: their templates may come again
_PROGRAM = (type, Enum, FunctionType, BuiltinFunctionType, ModuleType)  # is there once, whatever is kept
_PLAIN = frozenset((str, int, float, bytes))  # most values; they refer to nothing


def size_of(value: object) -> int:
    """The bytes of the value with everything that it refers to. What other values refer to as well is counted too.

    The length of a value's text says little: a label of two characters takes 60 bytes.
    """
    seen, todo, total = set[int](), [value], 0
    while todo:
        one = todo.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if type(one) in _PLAIN:
            total += one.__sizeof__() + HEADER_BYTES
        elif not isinstance(one, _PROGRAM):
            total += one.__sizeof__() + HEADER_BYTES
            todo += gc.get_referents(one)
    return total


def most_for(pods: int, most: int) -> int:
    """How many answers about the requests of pods are kept while so many pods exist; never more than `most`.

    Without this limit, a small cluster whose pods come and go would fill a cache that is made for a large one, over
    hours, with answers about pods that are gone.
    """
    return min(most, LEAST_REMEMBERED + 2 * pods)


class Remembered(dict[Key, Answer]):
    """A dict that drops its oldest entries. Entries are added by `remember` only.

    Requests that clients write differ in size by a factor of a hundred. Without the limit on bytes, one tenant's large
    requests would fill the memory long after its pods are gone.
    """

    def __init__(self, most: int, most_bytes: int) -> None:
        super().__init__()
        self._most, self._most_bytes = most, most_bytes
        self._sizes: dict[Key, int] = {}
        self.bytes = 0

    def remember(self, key: Key, answer: Answer, kept: object) -> Answer:
        """Add an entry as the newest one. `kept`: the values that stay in memory because of it."""
        if key in self:
            self.forget(key)
        size = size_of(kept) + ENTRY_BYTES
        while self and (len(self) >= self._most or self.bytes + size > self._most_bytes):
            self.forget(next(iter(self)))
        self._sizes[key] = size
        self.bytes += size
        self[key] = answer
        return answer

    def fit(self, most: int) -> None:
        """Set the limit on entries, and drop the oldest ones beyond it."""
        self._most = most
        for key in list(islice(self, max(0, len(self) - most))):
            self.forget(key)

    def renew(self, key: Key) -> None:
        """Make the entry the newest one."""
        self[key] = self.pop(key)

    def forget(self, key: Key) -> None:
        """Drop the entry, if it is there."""
        if self.pop(key, None) is not None:
            self.bytes -= self._sizes.pop(key)

    def clear(self) -> None:
        super().clear()
        self._sizes.clear()
        self.bytes = 0
