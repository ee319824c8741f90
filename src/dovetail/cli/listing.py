"""Chooses what a list shows: the namespace, the labels, the names, and pods without GPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dovetail.cli.board import Board
from dovetail.cli.errors import Refused
from dovetail.cli.output.list_view import Item, ListView
from dovetail.kube.conversion.label_query import LabelTerm, parse_labels


@dataclass(frozen=True, slots=True)
class ListChoice:
    """The options of the command line. An empty value chooses everything."""

    namespace: str = ""  # "" = all
    selector: str = ""
    names: tuple[str, ...] = ()
    only_gpus: bool = False  # leave out pods that neither have nor want GPUs


def chosen(view: ListView, board: Board, choice: ListChoice) -> list[Item]:
    """The items in the order of the view. Raises Refused for an unreadable selector or a name that is missing."""
    matches = _by_labels(view, board, choice.selector)
    found = [
        item
        for item in view.items(board)
        if (not choice.namespace or not view.namespaced or item["namespace"] in (None, choice.namespace))
        and (not choice.only_gpus or item.get("gpus") != 0)
        and matches(item)
    ]
    if not choice.names:
        return found
    picked = [item for item in found if _names(item) & set(choice.names)]
    known = set().union(*(_names(item) for item in found))
    missing = [name for name in choice.names if name not in known]
    if missing:
        where = f" in namespace {choice.namespace}" if choice.namespace and view.namespaced else ""
        raise Refused(f"not found{where}: {', '.join(missing)}; without a name, all are listed")
    return picked


def _names(item: Item) -> set[str]:
    return {item[key] for key in ("name", "node", "uuid") if isinstance(item.get(key), str)}


def _by_labels(view: ListView, board: Board, selector: str) -> Callable[[Item], bool]:
    if not selector:
        return lambda item: True
    if not view.labels:
        raise Refused(f"-l does not choose from {view.kind.removesuffix('List').lower()}s: they have no labels")
    try:
        terms = parse_labels(selector)
    except ValueError as error:
        raise Refused(f"-l: {error}") from error
    if view.labels == "pod":
        return lambda item: _all(terms, item["labels"])
    labels = {use.node.name: use.node.labels for use in board.overview.nodes}
    return lambda item: _all(terms, labels[item.get("node") or item["name"]])


def _all(terms: Sequence[LabelTerm], labels: Mapping[str, str]) -> bool:
    return all(term.matches(labels) for term in terms)
