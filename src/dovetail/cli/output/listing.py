"""The lists of `get` and `top` by name, as tables and as documents."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.cli.output import table
from dovetail.cli.output.list_view import Item, ListView
from dovetail.cli.output.listing_groups import LIST_OF_GANGS, LIST_OF_QUOTAS
from dovetail.cli.output.listing_nodes import LIST_OF_GPUS, LIST_OF_NODES
from dovetail.cli.output.listing_pods import LIST_OF_PODS, LIST_OF_QUEUES

VIEWS = {
    "gpus": LIST_OF_GPUS,
    "nodes": LIST_OF_NODES,
    "pods": LIST_OF_PODS,
    "queue": LIST_OF_QUEUES,
    "gangs": LIST_OF_GANGS,
    "quotas": LIST_OF_QUOTAS,
}


def rows(view: ListView, items: Sequence[Item], wide: bool) -> tuple[list[str], list[list[str]], list[int]]:
    """Titles, rows, and the positions of columns that are aligned to the right."""
    shown = [column for column in view.columns if wide or not column.wide]
    right = [at for at, column in enumerate(shown) if column.right]
    return [column.title for column in shown], [[column.text(item) for column in shown] for item in items], right


def lines(view: ListView, items: Sequence[Item], wide: bool, header: bool = True) -> list[str]:
    titles, cells, right = rows(view, items, wide)
    text = table.render(titles, cells, right=right).splitlines()
    return text if header else text[1:]


def document(view: ListView, items: Sequence[Item]) -> Item:
    return {"apiVersion": "dovetail.dev/v1", "kind": view.kind, "items": list(items)}
