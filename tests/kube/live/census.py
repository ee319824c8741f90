"""The size of everything that an object holds: lengths of containers and bytes of arrays, by path of attributes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

_CONTAINERS = (dict, list, set, frozenset, tuple)
_OURS = ("dovetail", "collections")  # modules whose objects are walked through; asyncio's and others' are not


def census(root: object) -> dict[str, int]:
    """path -> length. Elements of a container share the path `…[]`, which has the largest length of them."""
    sizes: dict[str, int] = {}
    seen: dict[int, object] = {}  # keeps what was seen alive, so that no other object gets its id
    todo = [(root, "")]
    while todo:
        one, path = todo.pop()
        if id(one) in seen:
            continue
        seen[id(one)] = one
        size = _size(one)
        if size is not None:
            sizes[path] = max(size, sizes.get(path, 0))
        todo += ((part, path + step) for part, step in _parts(one))
    return sizes


def _size(one: object) -> int | None:
    if isinstance(one, np.ndarray):
        return one.nbytes
    return len(one) if isinstance(one, _CONTAINERS) or type(one).__module__ == "collections" else None  # type: ignore[arg-type]


def _parts(one: Any) -> Iterator[tuple[object, str]]:
    if isinstance(one, dict):
        yield from ((value, "[]") for value in list(one.values()))
    elif isinstance(one, _CONTAINERS) or type(one).__module__ == "collections":
        yield from ((value, "[]") for value in list(one))
    if type(one).__module__.startswith(_OURS) and not isinstance(one, type):
        names = {*getattr(one, "__dict__", ())}
        for each in type(one).__mro__:
            slots = each.__dict__.get("__slots__", ())
            names |= {slots} if isinstance(slots, str) else set(slots)
        for name in sorted(names):
            value = getattr(one, name, None)
            if not isinstance(value, (int, float, str, bytes, type(None))):
                yield value, f".{name}"
