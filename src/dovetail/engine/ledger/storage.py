"""The ledger's arrays and how they grow: sizes and free lists, without knowledge of nodes and pods."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.engine.kernel.state import (
    ENTRY_FIELDS,
    ENTRY_NEXT,
    FREE_ENTRIES,
    FREE_ENTRY,
    FREE_POD,
    FREE_PODS,
    HEADS,
    JOURNAL_DEPTH,
    JOURNAL_LENGTH,
    KEYS,
    LINE_FIELDS,
    NONE,
    POD_ENTRY,
    POD_FIELDS,
    POD_ROW,
    Book,
    Journal,
    Scratch,
    State,
)
from dovetail.engine.ledger.intern import Interner, grown
from dovetail.engine.ledger.vectors import VectorRoom
from dovetail.policies.rows import (
    CARD_FIELDS,
    CARD_SIGNALS,
    FACTS,
    GATES,
    NOT_MEASURED,
    SCORED,
    SHOWN,
    SIGNALS,
    SIZE_CLASSES,
    SPECS,
    SUMS,
    Ints,
    Rows,
)

PER_NODE = tuple(
    field for field in Rows._fields if field not in ("peers", "enforced", "outlook")
)  # first axis is the node


LINES_FROM = 64  # counted owners; below, a search for owners without pods costs more than it saves


def zeros(*shape: int) -> Any:
    return np.zeros(shape, dtype=np.int64)


class Storage:
    """Every array that the kernel uses. Call `state` again after any method that may grow an array."""

    def __init__(self, interner: Interner) -> None:
        self.intern = interner
        self.size = 0  # rows in use
        self.rows = Rows(
            cap=zeros(4, 8),
            used=zeros(4, 8),
            scored=zeros(4, SCORED),
            card=zeros(4, 1, CARD_FIELDS),
            spec=zeros(4, 1, SPECS),
            held=zeros(4, 1, 3),
            sums=zeros(4, SUMS),
            gate=zeros(4, GATES),
            free=zeros(4, 1, 2),
            left=zeros(4, 1),
            hosts=zeros(4, SIZE_CLASSES),
            fact=zeros(4, FACTS),
            rank=zeros(4),
            link=zeros(4, 1, 1),
            peers=zeros(1, 4),
            enforced=np.ones(8, dtype=np.int64),
            signal=np.full((4, SIGNALS), NOT_MEASURED, dtype=np.int64),
            card_signal=np.full((4, 1, CARD_SIGNALS), NOT_MEASURED, dtype=np.int64),
            shown=zeros(4, SHOWN),
            outlook=zeros(1),
        )
        self.masks = np.zeros((4, 4), dtype=np.uint8)
        self.book = Book(zeros(0, POD_FIELDS), zeros(0, ENTRY_FIELDS), zeros(0))
        self.journal = Journal(
            zeros(0, LINE_FIELDS), zeros(0, 8), zeros(0, SCORED), zeros(0, 1, 3), zeros(0, SUMS), zeros(0, SIZE_CLASSES)
        )
        self.scratch = _scratch(1, 1, 1)
        self.vectors = VectorRoom(4)
        self.heads: Ints = zeros(HEADS)
        self.heads[FREE_POD] = self.heads[FREE_ENTRY] = NONE
        self.current: State | None = None  # the arrays as one value, until one of them is replaced
        self.ranks_stale = False  # rows.rank must be computed again
        self.peers_since: list[int] = []  # by line of rows.peers: a new number for each owner that gets the line
        self._peers_given = 0
        self._free_lines: list[int] = []
        self.lines_limit = LINES_FROM  # more lines than this: search for unused ones

    def gather(self) -> State:
        """The arrays as one value. The ledger keeps it in use until one of them is replaced."""
        self.fit_columns()
        self.fit_scratch(0)
        self.current = State(
            self.rows,
            self.intern.wants,
            self.masks,
            self.book,
            self.vectors.arrays,
            self.journal,
            self.scratch,
            self.heads,
            self.size,
        )
        return self.current

    def add_row(self) -> int:
        row = self.size
        self.size += 1
        if row >= len(self.rows.cap):
            larger = {field: grown(getattr(self.rows, field), 0, row + 1, _fill(field)) for field in PER_NODE}
            self.rows = self.rows._replace(**larger, peers=grown(self.rows.peers, 1, row + 1))
            self.masks = grown(self.masks, 1, row + 1)
        if row >= self.vectors.arrays.score.shape[1]:
            self.vectors.resize(len(self.rows.cap))
        self.current = None
        return row

    def drop_last_row(self) -> None:
        """Remove the last row; everything kept about rows is forgotten."""
        self.size -= 1
        for field in PER_NODE:
            getattr(self.rows, field)[self.size] = _fill(field)
        self.rows.peers[:, self.size] = 0
        self.masks[:, self.size] = 0
        self.vectors.resize(len(self.rows.cap))
        self.current = None

    def add_mask(self, mask: int) -> None:
        self.masks = grown(self.masks, 0, mask + 1)
        self.current = None

    def set_outlook(self, tables: Ints) -> None:
        self.rows = self.rows._replace(outlook=tables)
        self.current = None

    def add_owner(self, owner: int) -> None:
        if owner >= len(self.book.peer_row):
            self.book = self.book._replace(peer_row=grown(self.book.peer_row, 0, owner + 1, fill=NONE))
            self.current = None

    @property
    def lines(self) -> int:
        """The number of lines of rows.peers in use."""
        return len(self.peers_since) - len(self._free_lines)

    def add_peers(self) -> int:
        """A line of pod counts by node, all zero."""
        self._peers_given += 1
        if self._free_lines:
            line = self._free_lines.pop()
            self.peers_since[line] = self._peers_given
            return line
        line = len(self.peers_since)
        self.peers_since.append(self._peers_given)
        self.rows = self.rows._replace(peers=grown(self.rows.peers, 0, line + 1))
        self.current = None
        return line

    def drop_owners(self, owners: list[int]) -> None:
        """Forget owners without pods: their lines are zero already and are used again."""
        self.take_back_lines(owners)
        self.lines_limit = max(LINES_FROM, 2 * self.lines)

    def take_back_lines(self, owners: list[int]) -> None:
        """Stop counting these owners."""
        known = [owner for owner in owners if owner < len(self.book.peer_row)]
        lines = [int(line) for line in self.book.peer_row[known] if line != NONE]
        self.book.peer_row[known] = NONE
        self.rows.peers[lines] = 0
        self._free_lines = sorted((*self._free_lines, *lines), reverse=True)

    def empty_book(self) -> None:
        """Drop everything that pods hold, whatever the book says now. The rows must be written again."""
        pod, entry = np.zeros_like(self.book.pod), np.zeros_like(self.book.entry)
        pod[:, POD_ROW] = NONE
        self.heads[[FREE_POD, FREE_ENTRY]] = NONE
        self.heads[[FREE_PODS, FREE_ENTRIES, JOURNAL_DEPTH, JOURNAL_LENGTH]] = 0
        _chain(pod, 0, POD_ENTRY, self.heads, FREE_POD, FREE_PODS)
        _chain(entry, 0, ENTRY_NEXT, self.heads, FREE_ENTRY, FREE_ENTRIES)
        self.book = self.book._replace(pod=pod, entry=entry)
        self.rows.peers[:] = self.rows.hosts[:] = 0
        self.current = None

    def make_room(self, pods: int, entries: int, lines: int) -> None:
        """Grow what is too short for so many new pods and entries, and for a journal of so many lines."""
        if self.heads.item(FREE_PODS) < pods:
            self._grow_pods(pods)
        if self.heads.item(FREE_ENTRIES) < entries:
            self._grow_entries(entries)
        if len(self.journal.line) < lines:
            self.journal = Journal(*(grown(array, 0, lines) for array in self.journal))
            self.current = None
        self.fit_scratch(entries)

    def fit_columns(self) -> None:
        """Make as many resource columns everywhere as there are names."""
        rows = self.rows
        if len(self.intern.columns) > rows.cap.shape[1]:
            count = len(self.intern.columns)
            self.rows = rows._replace(
                cap=grown(rows.cap, 1, count),
                used=grown(rows.used, 1, count),
                enforced=grown(rows.enforced, 0, count, fill=1),
            )
            self.journal = self.journal._replace(used=grown(self.journal.used, 1, count))
            self.current = None
        if self.intern.wants.need.shape[1] < self.rows.cap.shape[1]:
            self.intern.widen(self.rows.cap.shape[1])

    def fit_cards(self, count: int) -> None:
        """Make room for this many cards on every node."""
        if count > self.rows.card.shape[1]:
            rows = self.rows
            names = ("card", "spec", "held", "free", "left", "card_signal")
            per_card = {name: _widened(getattr(rows, name), count, _fill(name)) for name in names}
            self.rows = rows._replace(**per_card)
            self.journal = self.journal._replace(held=_widened(self.journal.held, count))
            self.current = None

    def fit_links(self, cards: int) -> None:
        """Make room for the pair scores of this many cards: only nodes with pair scores need it (`link_between`)."""
        if cards > self.rows.link.shape[1]:
            link = zeros(len(self.rows.link), cards, cards)
            link[:, : self.rows.link.shape[1], : self.rows.link.shape[2]] = self.rows.link
            self.rows = self.rows._replace(link=link)
            self.current = None

    def fit_scratch(self, entries: int) -> None:
        old, cards, vendors = self.scratch, self.rows.card.shape[1], len(self.intern.vendors)
        if len(old.order) < cards or len(old.left) < vendors or len(old.picked) < entries:
            self.scratch = _scratch(cards, max(vendors, len(old.left)), max(entries, len(old.picked)))
            self.current = None

    def _grow_pods(self, pods: int) -> None:
        first = len(self.book.pod)
        pod = grown(self.book.pod, 0, max(64, first + pods))
        pod[first:, POD_ROW] = NONE
        _chain(pod, first, POD_ENTRY, self.heads, FREE_POD, FREE_PODS)
        self.book = self.book._replace(pod=pod)
        self.current = None

    def _grow_entries(self, entries: int) -> None:
        first = len(self.book.entry)
        entry = grown(self.book.entry, 0, max(64, first + entries))
        _chain(entry, first, ENTRY_NEXT, self.heads, FREE_ENTRY, FREE_ENTRIES)
        self.book = self.book._replace(entry=entry)
        self.current = None


def _fill(field: str) -> int:
    """The value of a row or column without data."""
    return NOT_MEASURED if field in ("signal", "card_signal") else 0


def _widened(array: Any, width: int, fill: int = 0) -> Any:
    larger = np.full((array.shape[0], width, *array.shape[2:]), fill, dtype=array.dtype)
    larger[:, : array.shape[1]] = array
    return larger


def _scratch(cards: int, vendors: int, picked: int) -> Scratch:
    vendors = max(1, vendors)
    return Scratch(
        run=zeros(cards, 3),
        trial=zeros(cards, 3),
        peak=zeros(cards, 3),
        left=zeros(vendors, 2),
        order=zeros(cards),
        fitting=zeros(cards),
        chosen=zeros(cards),
        best=zeros(cards),
        keys=np.zeros((cards, KEYS)),
        picked=zeros(max(16, picked), 3),
        room=zeros(2, cards + 1),
        zone=np.full(1, NONE, dtype=np.int64),
    )


def _chain(table: Any, first: int, link: int, heads: Any, head: int, count: int) -> None:
    """Put the new slots in front of the free list, lowest first."""
    fresh = np.arange(first, len(table))
    if not len(fresh):
        return
    table[fresh, link] = np.append(fresh[1:], heads[head])
    heads[head] = first
    heads[count] += len(fresh)
