"""What a list of `get` is: its items as documents, and the columns that show them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from dovetail.cli.board import Board

Item = dict[str, Any]
DASH = "-"


class ListColumn(NamedTuple):
    title: str
    text: Callable[[Item], str]
    wide: bool = False  # only with -o wide
    right: bool = False


@dataclass(frozen=True, slots=True)
class ListView:
    """One thing that `get` lists."""

    kind: str  # of the JSON: GpuList
    items: Callable[[Board], Iterable[Item]]  # in a stable order
    columns: Sequence[ListColumn]
    name: Callable[[Item], str]  # for -o name, and to recognise an item when it changes
    labels: str = ""  # what -l selects by: "node", "pod", "" = no labels
    namespaced: bool = True


def age(seconds: float | None) -> str:
    """`45s`, `12m`, `5h`, `3d`, as kubectl."""
    if seconds is None:
        return DASH
    seconds = max(0, int(seconds))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def of_whole(used: int, total: int | None) -> str:
    return f"{used:,}/{total:,}" if total else f"{used:,}"
