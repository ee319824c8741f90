"""Reads `-f` arguments into documents: files, folders, stdin; multi-document YAML or JSON; Lists flattened.

The meaning of objects is not known here. Hostile input (alias bombs, deep nesting, broken encodings) ends in a Problem.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any, NamedTuple

import yaml

from dovetail import files
from dovetail.kube.files import block_text, yaml_text
from dovetail.kube.files.visible_bodies import visible_body
from dovetail.kube.objects.problems import Problems, printable

MANIFEST_SUFFIXES = (".yaml", ".yml", ".json", ".yaml.gz", ".yml.gz", ".json.gz")
MOST_BROKEN = 20  # documents of one file that are reported


@dataclass(frozen=True, slots=True)
class Document:
    """One object as read from a file."""

    place: str  # "a.yaml#2"
    kind: str
    api_version: str
    body: dict[str, Any]
    reduced: bool = False  # of a cluster: only the fields that we read, and workloads without their templates

    @property
    def where(self) -> str:
        """The object's position and name, as far as known before it is decoded: "a.yaml#2 Pod web"."""
        return f"{self.place} {printable(_name(self.kind, self.body))}"

    @property
    def name(self) -> str:
        return self._said_of_itself("name")

    @property
    def generate_name(self) -> str:
        """The prefix of the name that the API server generates."""
        return self._said_of_itself("generateName")

    @property
    def uid(self) -> str:
        """The uid that the API server gave the object; "" = it was never created."""
        return self._said_of_itself("uid")

    def _said_of_itself(self, key: str) -> str:
        metadata = self.body.get("metadata")
        value = metadata.get(key) if isinstance(metadata, dict) else None
        return value if isinstance(value, str) else ""

    @property
    def group(self) -> str:
        """The API group: "apps" of "apps/v1"; "" is the core group."""
        return self.api_version.rpartition("/")[0]


def read(arguments: Sequence[str], problems: Problems, stdin: IO[bytes] | None = None) -> tuple[Document, ...]:
    """Every object in every argument, in the order given. Raises InputError after all of them were read."""
    documents: list[Document] = []
    for source, text in _texts(arguments, problems, stdin):
        documents.extend(parse(source, text, problems))
    problems.stop_if_fatal()
    return tuple(documents)


def parse(source: str, text: str, problems: Problems) -> list[Document]:
    """The objects in one text."""
    documents: list[Document] = []
    broken = 0
    try:
        for raw in _bodies(source, text, problems):
            if raw.value is None:
                continue
            body = raw.value if raw.is_printable else visible_body(raw.value)
            before = problems.fatal_errors
            documents.extend(_flatten(f"{source}#{len(documents) + broken + 1}", body, problems))
            broken += problems.fatal_errors > before
            if broken >= MOST_BROKEN:
                break
    except yaml.YAMLError as error:
        problems.fatal(f"{source}#{len(documents) + broken + 1}", "", f"is not valid YAML: {_yaml_complaint(error)}")
    except RecursionError:
        problems.fatal(source, "", "is nested far too deeply")
    except yaml_text.TextError as error:
        problems.fatal(f"{source}#{len(documents) + broken + 1}", "", str(error))
    except (ValueError, OverflowError) as error:  # e.g. an integer of more digits than Python converts
        problems.fatal(source, "", f"holds a value that cannot be read: {error}")
    if not documents and not broken and not problems.fatal_errors:
        problems.warning(source, "", "holds no object; is it the file you meant?")
    return documents


def read_yaml(source: str, text: str, problems: Problems) -> Any:
    """The first document of a text that is not a Kubernetes object; None where there is none, or a fatal problem."""
    try:
        return next((raw.value for raw in _bodies(source, text, problems)), None)
    except yaml.YAMLError as error:
        problems.fatal(source, "", f"is not valid YAML: {_yaml_complaint(error)}")
    except yaml_text.TextError as error:
        problems.fatal(source, "", str(error))
    except (RecursionError, ValueError, OverflowError) as error:
        problems.fatal(source, "", f"holds a value that cannot be read: {error}")
    return None


def _texts(arguments: Sequence[str], problems: Problems, stdin: IO[bytes] | None) -> Iterator[tuple[str, str]]:
    for argument in arguments:
        if argument == "-":
            if stdin is None:
                problems.fatal("stdin", "", "nothing is connected to standard input")
            else:
                yield from _decoded("stdin", stdin, problems)
            continue
        for path in _paths(argument, problems):
            try:
                with files.open_input(path) as stream:
                    yield from _decoded(path, stream, problems)
            except files.NotAFile as error:
                problems.fatal(path, "", f"cannot be read: {error.strerror}; `-f -` reads standard input")
            except (OSError, ValueError) as error:  # ValueError: a NUL in the name
                problems.fatal(path, "", f"cannot be read: {getattr(error, 'strerror', None) or error}")


def _paths(argument: str, problems: Problems) -> list[str]:
    if not os.path.isdir(argument):
        return [argument]
    paths = sorted(
        os.path.join(folder, name)
        for folder, _, names in os.walk(argument, onerror=lambda error: _unreadable(error, problems))
        for name in names
        if name.lower().endswith(MANIFEST_SUFFIXES)
    )
    if not paths:
        problems.warning(argument, "", "the folder holds no .yaml, .yml or .json file")
    return paths


def _unreadable(error: OSError, problems: Problems) -> None:
    """Report a folder below the named one that cannot be read: its objects would be missing from the plan."""
    problems.fatal(str(error.filename), "", f"cannot be read: {error.strerror or error}")


def _decoded(source: str, stream: IO[bytes], problems: Problems) -> Iterator[tuple[str, str]]:
    try:
        plain: IO[bytes] = gzip.GzipFile(fileobj=stream) if source.lower().endswith(".gz") else stream  # type: ignore[assignment]
        raw = files.read_at_most(plain, files.max_bytes(files.MAX_MANIFEST_BYTES))
        text = raw.decode("utf-8-sig")
        del raw  # free it while the text is parsed
    except files.TooLarge as error:
        problems.fatal(source, "", f"cannot be read: {error.strerror}; {error.advice}")
    except (OSError, EOFError, zlib.error) as error:
        problems.fatal(source, "", f"cannot be read: {getattr(error, 'strerror', None) or error}")
    except UnicodeDecodeError as error:
        problems.fatal(source, "", f"is not UTF-8 (byte {error.start}); save it as UTF-8")
    else:
        yield source, text


class _Raw(NamedTuple):
    """The content of one document of a text."""

    value: Any
    is_printable: bool  # no control characters in it; False = not known


def _bodies(source: str, text: str, problems: Problems) -> Iterator[_Raw]:
    if text.lstrip()[:1] in ("{", "["):
        try:
            plain = is_printable(text)
            yield from [_Raw(body, plain) for body in _json_bodies(text)]
            return
        except json.JSONDecodeError as error:
            if source.lower().removesuffix(".gz").endswith(".json"):
                problems.fatal(source, "", f"is not valid JSON: {error}")
                return
            # a YAML flow mapping also starts with a brace
    yield from _yaml_bodies(text, lambda message: problems.warning(source, "", message))


def _yaml_bodies(text: str, warn: Callable[[str], None]) -> Iterator[_Raw]:
    try:
        whole = block_text.document(text)
    except block_text.NotBlockStyle:
        yield from (_Raw(body, False) for body in yaml_text.documents(text, warn))
    else:
        yield _Raw(*whole)


_PRINTABLE = bytes(range(ord(" "), ord("~") + 1)) + b"\n"
_ESCAPE = re.compile(r'\\[^"\\/]')  # an escape that may stand for a control character


def is_printable(text: str) -> bool:
    """Whether no text of this JSON contains a control character: line breaks occur between values only."""
    return text.isascii() and not text.encode().translate(None, _PRINTABLE) and _ESCAPE.search(text) is None


_HALF = re.compile(r"\\u[dD][89a-fA-F]")  # half of a character beyond the first 65,536: valid only in pairs


def _json_bodies(text: str) -> Iterator[Any]:
    decoder = json.JSONDecoder(parse_constant=_refuse_constant)
    position, end = 0, len(text)
    suspicious = _HALF.search(text) is not None
    while True:
        while position < end and text[position] in " \t\r\n":
            position += 1
        if position == end:
            return
        body, position = decoder.raw_decode(text, position)
        if suspicious:
            json.dumps(body, ensure_ascii=False).encode()  # raises UnicodeEncodeError, a ValueError
        yield body


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON; write a number")


def _yaml_complaint(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    place = f" (line {mark.line + 1}, column {mark.column + 1})" if mark is not None else ""
    what = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error).partition("\n")[0]
    return f"{what}{place}"


def _flatten(place: str, body: Any, problems: Problems) -> Iterator[Document]:
    """The object, or a List's items, numbered from `place` on."""
    if not isinstance(body, dict):
        problems.fatal(place, "", f"is {_said(body)}, not an object with apiVersion and kind")
        return
    kind: Any = body.get("kind")
    api_version: Any = body.get("apiVersion")
    for field, value in (("kind", kind), ("apiVersion", api_version)):
        if not isinstance(value, str) or not value or len(value) > 200:
            said = "is missing" if value in (None, "") else f"is {_said(value)}, not a short text"
            problems.fatal(place, field, f"{said}; every Kubernetes object has one")
            return
    items = body.get("items")
    if not (kind.endswith("List") and ("items" in body or kind == "List")):
        yield Document(place, kind, api_version, body)
        return
    if items is not None and not isinstance(items, list):
        problems.fatal(f"{place} {kind}", "items", f"is {_said(items)}, not a list")
        return
    source, _, first = place.rpartition("#")
    for number, item in enumerate(items or (), int(first)):
        if isinstance(item, dict) and kind != "List":  # items of a typed list may leave out kind and apiVersion
            item = {"kind": kind.removesuffix("List"), "apiVersion": api_version, **item}
        yield from _flatten(f"{source}#{number}", item, problems)


def _name(kind: str, body: dict[str, Any]) -> str:
    """Kind, namespace and name, as far as the object states them."""
    metadata = body.get("metadata")
    if not isinstance(metadata, dict):
        return kind
    name, namespace = metadata.get("name") or metadata.get("generateName"), metadata.get("namespace")
    if not isinstance(name, str):
        return kind
    return f"{kind} {namespace}/{name}" if isinstance(namespace, str) and namespace else f"{kind} {name}"


def _said(value: Any) -> str:
    number = "a number"
    names = {dict: "a mapping", list: "a list", str: "a text", bool: "true or false", int: number, float: number}
    return "nothing" if value is None else names.get(type(value), "something else")
