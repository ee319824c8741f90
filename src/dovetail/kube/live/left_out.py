"""Objects of a list that cannot be read: the first are named, the others counted. One rule for all commands."""

from __future__ import annotations

from collections import Counter
from itertools import islice

from dovetail.kube.api.typed import Unreadable

MOST_LEFT_OUT_NAMED = 5  # lines on stderr; a cluster may have thousands of such objects


class LeftOutObjects:
    """Collects them in any order. What is kept and what is said is bounded."""

    def __init__(self) -> None:
        self._named: dict[str, list[str]] = {}  # kind -> the first of its objects, with what is wrong
        self._numbers = Counter[str]()  # kind -> how many

    def add(self, kind: str, one: Unreadable) -> None:
        self._numbers[kind] += 1
        if self._numbers[kind] <= MOST_LEFT_OUT_NAMED:
            line = f"{kind} {one.ref} cannot be read and is left out: {one.message}"
            self._named.setdefault(kind, []).append(line)

    def lines(self) -> list[str]:
        """By kind: a line for each of the first objects, and one for all others."""
        named = [(kind, line) for kind in sorted(self._named) for line in self._named[kind]]
        said = list(islice(named, MOST_LEFT_OUT_NAMED))
        others = self._numbers - Counter(kind for kind, _ in said)
        lines = [line for _, line in said]
        if others:
            kinds = ", ".join(f"{number:,} {kind}" for kind, number in sorted(others.items()))
            lines.append(
                f"and {others.total():,} more cannot be read and are left out ({kinds}); "
                "`dovetail doctor` names all nodes and pods"
            )
        return lines
