"""JSON of the API server → typed objects. An object that cannot be read is reported, and the others are read.

Null means absent, as in Kubernetes. Removing nulls takes a second pass, made only for objects that fail the first one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

import msgspec

from dovetail.engine.kernel.collector import collector_off
from dovetail.kube.objects.core import without_nulls
from dovetail.kube.objects.problems import printable

T = TypeVar("T")
Body = bytes | bytearray | memoryview
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Ref(NamedTuple):
    """The identity of an object: names can be used again, UIDs cannot."""

    namespace: str  # "" for kinds without
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Unreadable(NamedTuple):
    """An object that exists, but does not fit our type: a field has the wrong type, or a required one is absent."""

    ref: Ref
    message: str


class _Meta(msgspec.Struct, rename="camel", frozen=True, gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class Head(msgspec.Struct, frozen=True, gc=False):
    """The fields that every object has, also a bookmark."""

    metadata: _Meta = _Meta()

    @property
    def ref(self) -> Ref:
        return Ref(self.metadata.namespace, self.metadata.name, self.metadata.uid)

    @property
    def version(self) -> str:
        return self.metadata.resource_version


class _ListMeta(msgspec.Struct, rename="camel", frozen=True, gc=False):
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class _List(msgspec.Struct, Generic[T], frozen=True):
    metadata: _ListMeta = _ListMeta()
    items: list[T] | None = None


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A part of a list."""

    items: list[T]
    unreadable: list[Unreadable] = field(default_factory=list)
    version: str = ""  # resourceVersion of the list
    rest: str = ""  # continue token; "" = this was the last page


HEAD = msgspec.json.Decoder(Head)


class TypedReader(Generic[T]):
    """Reads objects of one type. Decoders are made once: making them costs more than using them."""

    def __init__(self, kind: type[T]) -> None:
        self.kind = kind
        self._object = msgspec.json.Decoder(kind)
        self._page = msgspec.json.Decoder(_List[kind])  # type: ignore[valid-type]
        self._raw_page = msgspec.json.Decoder(_List[msgspec.Raw])

    def object(self, raw: Body | msgspec.Raw) -> T | Unreadable:
        """The object, or the identity of one that cannot be read."""
        try:
            return self._object.decode(raw)
        except msgspec.ValidationError as error:
            return self._second_look(raw, error)
        except UNREADABLE as error:
            return Unreadable(ref_of(raw), printable(str(error), 300))

    def page(self, body: Body) -> Page[T]:
        """The page in a list's answer. Raises one of UNREADABLE where it is no list."""
        with collector_off():
            try:
                found = self._page.decode(body)
                return Page(found.items or [], [], found.metadata.resource_version, found.metadata.continue_)
            except UNREADABLE:
                pass
            raw = self._raw_page.decode(body)
            read = [self.object(item) for item in raw.items or ()]
        return Page(
            items=[item for item in read if not isinstance(item, Unreadable)],
            unreadable=[item for item in read if isinstance(item, Unreadable)],
            version=raw.metadata.resource_version,
            rest=raw.metadata.continue_,
        )

    def _second_look(self, raw: Body | msgspec.Raw, first: Exception) -> T | Unreadable:
        """The object, read after its nulls are removed."""
        try:
            return msgspec.convert(without_nulls(msgspec.json.decode(raw)), self.kind)
        except UNREADABLE as error:
            said = error if isinstance(error, msgspec.ValidationError) else first
            return Unreadable(ref_of(raw), printable(str(said), 300))


def ref_of(raw: Body | msgspec.Raw) -> Ref:
    """The object's identity; without a name where that cannot be read."""
    try:
        return HEAD.decode(raw).ref
    except UNREADABLE:
        return Ref("", "", "")


def is_older(version: str, than: str) -> bool:
    """Whether the version is older.

    resourceVersions of one resource are growing numbers (KEP-5504); other texts are not compared.
    """
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)


def version_of(raw: Body | msgspec.Raw) -> str:
    """Its resourceVersion; "" where that cannot be read."""
    try:
        return HEAD.decode(raw).version
    except UNREADABLE:
        return ""
