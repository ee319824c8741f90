"""YAML text → plain values, safely: built from libyaml's events, without recursion and without expanding aliases.

PyYAML's own composer recurses in C, so a hundred thousand brackets end the process. This one counts depth and expansion
while it reads. Scalars are read as kubectl reads them: YAML 1.1, so `on` is true and `010` is 8. But dates stay text,
and `1:30` is not a number in base 60.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

DEEPEST = 200  # levels; Kubernetes objects have about 20
MOST_ALIASED = 100_000  # values that aliases may add to a document: ten levels of ten would be 10^10

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOL = {
    **dict.fromkeys(("yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
}
_INT = re.compile(r"([-+]?)(?:(0b[01_]+)|(0x[0-9a-fA-F_]+)|(0[0-7_]+)|(0|[1-9][0-9_]*))\Z", re.ASCII)
_FLOAT = re.compile(
    r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?\Z|[-+]?[0-9]+[eE][-+]?[0-9]+\Z", re.ASCII
)
_SPECIAL = re.compile(r"[-+]?\.(?:inf|Inf|INF)\Z|\.(?:nan|NaN|NAN)\Z", re.ASCII)
_MAYBE_NUMBER = frozenset("+-.0123456789")
_TAG = "tag:yaml.org,2002:"
_KINDS: dict[str, Any] = {"int": (int,), "float": (int, float), "bool": (bool,), "null": (type(None),)}


class TextError(ValueError):
    """The YAML must not be read: too deep, too large, or tagged for another language."""


@dataclass(slots=True)
class _Frame:
    """A collection that is being filled."""

    value: dict[Any, Any] | list[Any]
    anchor: str | None
    size: int = 1  # values inside, with aliases expanded
    key: Any = None
    has_key: bool = False
    merges: list[dict[Any, Any]] = field(default_factory=list)


def documents(text: str, warn: Callable[[str], None]) -> Iterator[Any]:
    """Every document of the text. Raises yaml.YAMLError or TextError at the first error."""
    for builder in _builders(text, warn, DEEPEST):
        yield builder.document()


def lone_value(text: str, deepest: int) -> Any:
    """The only document of a text that was cut out of another. Raises yaml.YAMLError or TextError.

    It refuses what depends on the text around it, or needs its line number: anchors, merges, duplicate keys.
    """
    found = []
    for builder in _builders(text, _refuse, deepest):
        found.append(builder.document())
        if builder.anchors or builder.merged:
            _refuse("has anchors or merges")
    if len(found) != 1:
        _refuse("is not one document")
    return found[0]


def _refuse(message: str) -> None:
    raise TextError(message)


def _builders(text: str, warn: Callable[[str], None], deepest: int) -> Iterator[_Builder]:
    """A builder at the start of each document."""
    loader = yaml.CSafeLoader(text)
    try:
        while True:
            event = loader.get_event()
            if event is None or isinstance(event, yaml.StreamEndEvent):
                return
            if isinstance(event, yaml.DocumentStartEvent):
                yield _Builder(loader, warn, deepest)
    finally:
        loader.dispose()


MERGE = object()  # the key << of YAML 1.1; in quotes it is an ordinary text


class _Builder:
    """Builds one document."""

    def __init__(self, loader: yaml.CSafeLoader, warn: Callable[[str], None], deepest: int) -> None:
        self.loader, self.warn, self.deepest = loader, warn, deepest
        self.stack: list[_Frame] = []
        self.anchors: dict[str, tuple[Any, int]] = {}  # name -> value, size; size 0 = still open
        self.aliased = 0
        self.merged = False
        self.root: Any = None

    def document(self) -> Any:
        while True:
            event = self.loader.get_event()
            if isinstance(event, yaml.ScalarEvent):
                value = MERGE if event.value == "<<" and event.tag is None and event.implicit[0] else _scalar(event)
                if event.anchor:
                    self.anchors[event.anchor] = (value, 1)
                self._add(value, 1, event)
            elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
                self._open(event)
            elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
                self._close(event)
            elif isinstance(event, yaml.AliasEvent):
                self._alias(event)
            else:
                return self.root

    def _open(self, event: yaml.MappingStartEvent | yaml.SequenceStartEvent) -> None:
        if len(self.stack) >= self.deepest:
            raise TextError(f"is nested deeper than {self.deepest} levels (line {_line(event)})")
        mapping = isinstance(event, yaml.MappingStartEvent)
        if event.tag not in (None, "!", _TAG + ("map" if mapping else "seq")):
            raise TextError(f"uses the tag {event.tag}, which is not read (line {_line(event)})")
        value: dict[Any, Any] | list[Any] = {} if mapping else []
        if event.anchor:
            self.anchors[event.anchor] = (value, 0)
        self.stack.append(_Frame(value, event.anchor))

    def _close(self, event: yaml.Event) -> None:
        frame = self.stack.pop()
        if isinstance(frame.value, dict) and frame.merges:
            own = dict(frame.value)
            for merged in reversed(frame.merges):  # earlier ones win; the mapping's own keys win over all
                frame.value.update(merged)
            frame.value.update(own)
        if frame.anchor:
            self.anchors[frame.anchor] = (frame.value, frame.size)
        self._add(frame.value, frame.size, event)

    def _alias(self, event: yaml.AliasEvent) -> None:
        value, size = self.anchors.get(event.anchor or "", (None, -1))
        if size < 0:
            raise TextError(f"uses the alias *{event.anchor}, which nothing defines (line {_line(event)})")
        if size == 0:
            raise TextError(f"has an alias that contains itself (line {_line(event)})")
        self.aliased += size
        if self.aliased > MOST_ALIASED:
            raise TextError(f"has aliases that expand to more than {MOST_ALIASED} values; use fewer")
        self._add(value, size, event)

    def _add(self, value: Any, size: int, event: yaml.Event) -> None:
        is_key = bool(self.stack) and isinstance(self.stack[-1].value, dict) and not self.stack[-1].has_key
        if value is MERGE and not is_key:
            value = "<<"
        if not self.stack:
            self.root = value
            return
        frame = self.stack[-1]
        frame.size += size
        if isinstance(frame.value, list):
            frame.value.append(value)
        elif not frame.has_key:
            if isinstance(value, (dict, list)):
                raise TextError(f"has a collection as a key (line {_line(event)})")
            frame.key, frame.has_key = value, True
        else:
            self._set(frame, frame.value, value, event)

    def _set(self, frame: _Frame, target: dict[Any, Any], value: Any, event: yaml.Event) -> None:
        key, frame.key, frame.has_key = frame.key, None, False
        if key is MERGE:
            merged = value if isinstance(value, list) else [value]
            if not all(isinstance(part, dict) for part in merged):
                raise TextError(f"merges (<<) something that is no mapping (line {_line(event)})")
            frame.merges.extend(merged)
            self.merged = True
            return
        if key in target:
            self.warn(f"the key {key!r} stands twice in one mapping (line {_line(event)}); the last one counts")
        target[key] = value


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark is not None else 0


def _scalar(event: yaml.ScalarEvent) -> Any:
    tag, text = event.tag, event.value
    if tag is None or tag == "!":
        return plain_value(text) if event.implicit[0] else text
    kind = tag.removeprefix(_TAG)
    if kind in ("str", "timestamp"):
        return text
    value: Any = plain_value(text)
    if not isinstance(value, _KINDS.get(kind, ())):
        raise TextError(f"uses the tag {tag}, which is not read (line {_line(event)})")
    return float(value) if kind == "float" else value


def plain_value(text: str) -> Any:
    """The value of an unquoted scalar."""
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if text[0] not in _MAYBE_NUMBER:
        return text
    match = _INT.match(text)
    if match is not None:
        return _integer(match)
    if _FLOAT.match(text) is not None:
        return float(text.replace("_", ""))
    if _SPECIAL.match(text) is not None:
        return float(text.replace(".", ""))
    return text


def _integer(match: re.Match[str]) -> int:
    sign, binary, hexadecimal, octal, decimal = (part and part.replace("_", "") for part in match.groups())
    if binary:
        value = int(binary, 2)
    elif hexadecimal:
        value = int(hexadecimal, 16)
    else:
        value = int(octal, 8) if octal else int(decimal)
    return -value if sign == "-" else value
