"""Volcano's HyperNodes → labels of ours on nodes: `volcano.sh/hypernode-tier-2` names the node's HyperNode of tier 2.

A HyperNode has nodes, or HyperNodes of a lower tier, by name, pattern or labels. Patterns with a repeated group or with
many repeats are not read: Python may need exponential time for them, where Go does not.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from dovetail.kube.conversion.gang_terms import TIER_LABEL, TIER_NAME_LABEL
from dovetail.kube.conversion.relations import object_selector
from dovetail.kube.objects.bounds import HYPER_NODE_MEMBERS, HYPER_NODES
from dovetail.kube.objects.domain_objects import HyperNode, HyperNodeMember
from dovetail.kube.objects.problems import printable
from dovetail.model.node import Node

NODE, HYPER_NODE = "Node", "HyperNode"
LONGEST_PATTERN = 256
HIGHEST_TIER = 16
LONGEST_NAME = 253  # of a node
MOST_WAYS = 20_000_000  # in which Python may try a pattern on one name: tens of milliseconds
_ONE_SIGN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)  # escaped, or one of a class
_REPEATED_GROUP = re.compile(r"\)[*+{]")
_UNUSUAL_GROUP = re.compile(r"\(\?(?!:|i\)|P<)")  # flags that change the syntax, looking ahead, comments
_REPEAT = re.compile(r"[*+]|\{(?![0-9]+\})")
Wrong = Callable[[str, str, str], None]  # takes the HyperNode, the field and what is wrong
Matches = Callable[[str, Mapping[str, str]], bool]  # whether a member has this name and these labels


def labelled(node: Node, hyper_nodes: HyperNodes) -> Node:
    """The node with the labels of its HyperNodes."""
    given = hyper_nodes.labels(node.name, node.labels)
    return replace(node, labels={**node.labels, **given}) if given else node


class _Row(NamedTuple):
    """A HyperNode whose tier is right."""

    name: str
    tier: int
    labels: tuple[str, ...]


class HyperNodes:
    """All HyperNodes, as they were built; a change needs a new one."""

    def __init__(self, sources: Iterable[HyperNode], wrong: Wrong) -> None:
        self._wrong = wrong
        ordered = sorted(sources, key=lambda one: one.metadata.name)
        if len(ordered) > HYPER_NODES.most:
            wrong(ordered[-1].metadata.name, "", f"{HYPER_NODES.exceeded(len(ordered))}; the rest is left out")
        self._rows: dict[str, _Row] = {}
        self._exact: defaultdict[str, list[str]] = defaultdict(list)  # node -> HyperNodes
        self._other: list[tuple[str, Matches]] = []  # HyperNode, and whether a node is in it
        self._above: defaultdict[str, list[str]] = defaultdict(list)  # HyperNode -> those that contain it
        kept = ordered[: HYPER_NODES.most]
        for source in kept:
            if (row := self._row(source)) is not None:
                self._rows[row.name] = row
        for source in kept:
            self._members(source)

    @property
    def levels(self) -> tuple[str, ...]:
        """The labels of all tiers, from the highest to the lowest."""
        tiers = sorted({row.tier for row in self._rows.values()}, reverse=True)
        return tuple(f"{TIER_LABEL}{tier}" for tier in tiers)

    def labels(self, node: str, labels: Mapping[str, str]) -> dict[str, str]:
        """The labels of a node. If a node is in two HyperNodes of one tier, the first by name counts."""
        if not self._rows:
            return {}
        found = {*self._exact.get(node, ()), *(name for name, matches in self._other if matches(node, labels))}
        seen, new = set[str](), found
        while new:
            seen |= new
            new = {above for name in new for above in self._above.get(name, ())} - seen
        given: dict[str, str] = {}
        for name in sorted(seen):
            for label in self._rows[name].labels if name in self._rows else ():
                given.setdefault(label, name)
        return given

    def _row(self, source: HyperNode) -> _Row | None:
        text = str(source.spec.tier)
        if not (text.isascii() and text.isdigit() and len(text) < 4 and 1 <= int(text) <= HIGHEST_TIER):
            self._wrong(
                source.metadata.name, "spec.tier", f"{printable(text, 20)!r} is not between 1 and {HIGHEST_TIER}"
            )
            return None
        labels = [f"{TIER_LABEL}{int(text)}"]
        if source.spec.tier_name:
            labels.append(f"{TIER_NAME_LABEL}{source.spec.tier_name[:200]}")
        return _Row(source.metadata.name, int(text), tuple(labels))

    def _members(self, source: HyperNode) -> None:
        name, members = source.metadata.name, source.spec.members
        if name not in self._rows:
            return
        if len(members) > HYPER_NODE_MEMBERS.most:
            self._wrong(name, "spec.members", f"{HYPER_NODE_MEMBERS.exceeded(len(members))}; the rest is left out")
        for number, member in enumerate(members[: HYPER_NODE_MEMBERS.most]):
            self._member(name, member, f"spec.members[{number}].selector")

    def _member(self, name: str, member: HyperNodeMember, field: str) -> None:
        exact = member.selector.exact_match
        if exact is not None and member.type == NODE:
            self._exact[exact.name].append(name)
            return
        if exact is not None and member.type == HYPER_NODE:
            self._contains(name, exact.name)
            return
        matches = self._matches(name, member, field)
        if matches is not None and member.type == NODE:
            self._other.append((name, matches))
        elif matches is not None and member.type == HYPER_NODE:
            for row in self._rows.values():
                if matches(row.name, {}):
                    self._contains(name, row.name)

    def _contains(self, name: str, inner: str) -> None:
        if inner in self._rows and self._rows[inner].tier < self._rows[name].tier:
            self._above[inner].append(name)

    def _matches(self, name: str, member: HyperNodeMember, field: str) -> Matches | None:
        regex, labels = member.selector.regex_match, member.selector.label_match
        if regex is not None:
            pattern = regex.pattern
            try:
                if len(pattern) > LONGEST_PATTERN or _ways(pattern) > MOST_WAYS:
                    raise re.error("too long, with a repeated group, or with too many repeats and alternatives")
                compiled = re.compile(pattern, re.ASCII)
            except (re.error, RecursionError, OverflowError) as error:
                self._wrong(name, f"{field}.regexMatch.pattern", f"{printable(pattern, 60)!r} is not read: {error}")
                return None
            return lambda node, _: compiled.search(node) is not None
        if labels is not None:
            try:
                selector = object_selector(labels, f"{field}.labelMatch")
            except ValueError as error:
                self._wrong(name, f"{field}.labelMatch", str(error))
                return None
            return None if selector is None else lambda _, given: selector.matches(given)
        return None


def _ways(pattern: str) -> float:
    """In how many ways Python may try the pattern on the longest name, at most. Infinite: it may be exponential."""
    plain = _ONE_SIGN.sub("x", pattern)
    if _REPEATED_GROUP.search(plain) or _UNUSUAL_GROUP.search(plain):
        return math.inf
    plain = plain.replace("(?", "(")
    starts_and_ends = math.comb(LONGEST_NAME + 1, 1 + len(_REPEAT.findall(plain)))  # positions in the name
    bars = plain.count("|")
    groups = max(1, min(bars, plain.count("(") + 1))  # with most ways: equally many alternatives in each
    return starts_and_ends * 2.0 ** plain.count("?") * (bars / groups + 1) ** groups


NO_HYPER_NODES = HyperNodes((), lambda name, field, message: None)
