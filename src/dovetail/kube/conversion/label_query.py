"""Label selectors as kubectl writes them: `app=web,tier!=db,env in (a,b),!old`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

_TERM = re.compile(
    r"\s*(?:(?P<absent>!)\s*(?P<gone>[^\s,!=()]+)"
    r"|(?P<key>[^\s,!=()]+)\s*(?:(?P<sign>==|=|!=)\s*(?P<value>[^\s,!=()]*)"
    r"|(?P<word>in|notin)\s*\((?P<values>[^()]*)\))?)\s*(?:,|$)"
)
LONGEST_QUERY = 10_000  # characters


class LabelTerm(NamedTuple):
    key: str
    values: frozenset[str] | None  # None = any value
    wanted: bool  # False = the label must not be so

    def matches(self, labels: Mapping[str, str]) -> bool:
        has = self.key in labels and (self.values is None or labels[self.key] in self.values)
        return has is self.wanted


def parse_labels(text: str) -> tuple[LabelTerm, ...]:
    """The terms, all of which must hold. Raises ValueError, which says what is wrong."""
    found: list[LabelTerm] = []
    at, text = 0, text[: LONGEST_QUERY + 1].strip()
    while at < len(text):
        match = _TERM.match(text, at)
        if match is None or len(text) > LONGEST_QUERY:
            raise ValueError(
                f"{text[at : at + 40]!r} is no label selector; write app=web, app!=web, app in (a,b) or !app"
            )
        found.append(_term(match))
        at = match.end()
    return tuple(found)


def _term(match: re.Match[str]) -> LabelTerm:
    if match["absent"]:
        return LabelTerm(match["gone"], None, False)
    if match["sign"]:
        return LabelTerm(match["key"], frozenset((match["value"],)), match["sign"] != "!=")
    if match["word"]:
        return LabelTerm(
            match["key"], frozenset(one.strip() for one in match["values"].split(",")), match["word"] == "in"
        )
    return LabelTerm(match["key"], None, True)
