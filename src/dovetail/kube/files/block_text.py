"""YAML as kubectl prints it → plain values, four times as fast as from libyaml's events.

kubectl prints block mappings and lists with plain or quoted scalars, one entry after the other. Such text can be cut at
its indentation. An entry that has been read once (a label, an image that many nodes have) need not be read again. Text
in another style is read from libyaml's events: a single entry alone, or the whole text (`NotBlockStyle`). The values
are the same either way; only yaml_text.py writes messages.

Why a cut at the indentation is safe: an entry counts as read only if all of it matches, from its key to the end of its
last line. So no scalar or collection is open where the next entry starts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import yaml

from dovetail.kube.files.yaml_text import DEEPEST, lone_value, plain_value

MAX_LEVELS = 30  # of this reader, which recurses; Kubernetes objects have about 20
MAX_KEPT_LENGTH = 1_000  # characters; longer entries are not cached
MAX_KEPT_ENTRIES = 50_000
MAX_ODD_SHARE = 20  # one odd entry in so many, beyond the first thousand; reading one alone takes long

_KEY = r"[A-Za-z0-9_./][A-Za-z0-9_./-]{0,250}+"
_TOKEN = r"[!-9;-~]*+"  # printable ASCII without space and colon
# A plain scalar on one line. `: ` would end a key and ` #` start a comment; neither can match.
_PLAIN = rf"(?:[A-Za-z0-9_/.+~(]|-(?=[0-9])){_TOKEN}(?:(?: (?=[!\"$-~])|:++(?=[!-~])){_TOKEN})*+"
_IN_SINGLE = r"(?:[ -&(-~]++|'')*+"
_BREAK = re.compile(r"\n *+")
_INDENT = re.compile(r" *+")
_STARTS_MAPPING = re.compile(rf" *+- {_KEY}:(?=[ \n]|\Z)")
_STARTS_ENTRY = re.compile(rf"{_KEY}:(?=[ \n]|\Z)")


Reading = Callable[[str, int, int], tuple[Any, ...]]


class NotBlockStyle(ValueError):
    """The text must be read from libyaml's events."""


class Styles(NamedTuple):
    """The patterns of one level of indentation."""

    next_entry: re.Pattern[str]
    next_item: re.Pattern[str]
    entry: re.Pattern[str]  # lastgroup names the kind of the value
    item: re.Pattern[str]


@cache
def _styles(indent: int) -> Styles:
    deeper = rf"\n {{{indent + 1},}}+"
    value = (
        rf"(?P<plain>{_PLAIN}(?:{deeper}(?!-){_PLAIN})*+)"
        rf"|'(?P<single>{_IN_SINGLE}(?:{deeper}(?=[!-~]){_IN_SINGLE})*+)'"
        r'|"(?P<double>[ !#-\[\]-~]*+)"'
        r"|(?P<mapping>\{\})|(?P<list>\[\])"
    )
    return Styles(
        re.compile(rf"\n(?= {{{indent}}}[^ \n-])"),
        re.compile(rf"\n(?= {{{indent}}}- )"),
        re.compile(rf" {{{indent}}}({_KEY}):(?: (?:{value})|(?P<nothing>)|\n(?P<block>(?s:.+)))\Z"),
        re.compile(rf" {{{indent}}}- (?:{value})\Z"),
    )


class BlockDocument(NamedTuple):
    """The value of the text."""

    value: dict[Any, Any]
    is_printable: bool  # all of it is printable ASCII; False = not known


def document(text: str) -> BlockDocument:
    """The one document of the text. Raises NotBlockStyle where the text is not in kubectl's style."""
    if not text.endswith("\n") or not _STARTS_ENTRY.match(text):
        raise NotBlockStyle
    reader = _BlockReader()
    try:
        value = reader.mapping(text[:-1], 0, 1)
    except (ValueError, yaml.YAMLError) as error:  # from an odd entry; the message needs its line in the whole text
        raise NotBlockStyle from error
    return BlockDocument(value, is_printable=not reader.odd)


class _BlockReader:
    """Reads one document."""

    def __init__(self) -> None:
        self.kept: dict[str, tuple[Any, ...]] = {}  # text of an entry or item -> (key, value) or (value,)
        self.entries = 0
        self.odd = 0  # entries read from libyaml's events

    def mapping(self, text: str, indent: int, level: int) -> dict[Any, Any]:
        """The mapping of entries that start with so many spaces.

        Values may be shared with other parts of the document.
        """
        result: dict[Any, Any] = {}
        for key, value in self._each(text, _styles(indent).next_entry, self._entry, (indent, level)):
            if key in result:  # yaml_text.py warns of it and names the line
                raise NotBlockStyle
            result[key] = value
        return result

    def _items(self, text: str, indent: int, level: int) -> list[Any]:
        return [value for (value,) in self._each(text, _styles(indent).next_item, self._item, (indent, level))]

    def _each(self, text: str, start: re.Pattern[str], read: Reading, at: tuple[int, int]) -> Iterator[tuple[Any, ...]]:
        """The value of each part of the text.

        Odd parts are not cached: they may contain control characters, which are replaced later. `at`: indentation,
        level.
        """
        if at[1] > MAX_LEVELS:
            raise NotBlockStyle
        kept, parts = self.kept, start.split(text)
        self.entries += len(parts)
        for part in parts:
            if len(part) > MAX_KEPT_LENGTH:
                yield read(part, *at)
                continue
            found = kept.get(part)
            if found is None:
                odd = self.odd
                found = read(part, *at)
                if self.odd == odd:
                    if len(kept) >= MAX_KEPT_ENTRIES:
                        kept.clear()
                    kept[part] = found
            yield found

    def _entry(self, text: str, indent: int, level: int) -> tuple[Any, ...]:
        match = _styles(indent).entry.match(text)
        if match is None:
            if not _STARTS_ENTRY.match(text, indent):  # else it may continue in the next entry: `? a`, `: b`
                raise NotBlockStyle
            (pair,) = self._alone(text, level).items()
            return pair  # type: ignore[no-any-return]
        key = plain_value(match[1])
        block = match["block"]
        if block is None:
            return key, _scalar(match)
        start = _INDENT.match(block).end()  # type: ignore[union-attr]  # always matches
        if block.startswith("- ", start) and start >= indent:
            return key, self._items(block, start, level + 1)
        if start <= indent:
            raise NotBlockStyle
        return key, self.mapping(block, start, level + 1)

    def _item(self, text: str, indent: int, level: int) -> tuple[Any, ...]:
        if _STARTS_MAPPING.match(text):
            inside = indent + 2
            return (self.mapping(" " * inside + text[inside:], inside, level + 1),)
        match = _styles(indent).item.match(text)
        (value,) = self._alone(text, level) if match is None else (_scalar(match),)
        return (value,)

    def _alone(self, text: str, level: int) -> Any:
        """The mapping of an entry, or the list of an item, whose value is in another style: `|`, flow, escapes."""
        self.odd += 1
        if self.odd > 1_000 + self.entries // MAX_ODD_SHARE:
            raise NotBlockStyle
        return lone_value(text + "\n", DEEPEST - level + 1)  # the mapping or list itself is of this level


def _scalar(match: re.Match[str]) -> Any:
    """The value that one of the groups of `_styles` matched."""
    style = match.lastgroup
    if style == "plain":
        return plain_value(_folded(match["plain"]))
    if style == "single":
        return _folded(match["single"]).replace("''", "'")
    if style == "double":
        return match["double"]
    return {"mapping": {}, "list": []}.get(style or "")


def _folded(text: str) -> str:
    """The text with each line break, and the spaces around it, replaced by one space."""
    if "\n" not in text:
        return text
    while " \n" in text:
        text = text.replace(" \n", "\n")
    return _BREAK.sub(" ", text)
