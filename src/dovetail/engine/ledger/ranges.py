"""Where lists of different lengths lie in one array, so that the room of those that are gone serves others."""

from __future__ import annotations

from bisect import bisect_left


class Ranges:
    """Positions of lists of different lengths in one array.

    A list takes the first free range that is long enough. Free neighbours become one range: otherwise clients that
    change the lengths of their lists would make the array grow for ever.
    """

    def __init__(self) -> None:
        self.end = 0
        self._free: list[tuple[int, int]] = []  # first element, end; sorted, no two of them touch

    def take(self, length: int) -> int:
        for n, (first, end) in enumerate(self._free):
            if end - first >= length > 0:
                self._free[n : n + 1] = [(first + length, end)] if first + length < end else []
                return first
        first, self.end = self.end, self.end + length
        return first

    def give_back(self, first: int, length: int) -> None:
        if not length:
            return
        end, at = first + length, bisect_left(self._free, (first, first))
        if at < len(self._free) and self._free[at][0] == end:
            end = self._free.pop(at)[1]
        if at and self._free[at - 1][1] == first:
            at -= 1
            first = self._free.pop(at)[0]
        if end == self.end:
            self.end = first
        else:
            self._free.insert(at, (first, end))
