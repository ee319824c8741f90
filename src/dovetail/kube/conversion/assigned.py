"""The cards of a running pod: HAMi's device string, written and read.

    uuid,VENDOR,memMiB,cores:uuid,…:;uuid,…:;     one segment per container, init containers first, each ended by `;`

When written, each container has its segment. When read, segments may be fewer or more than containers (HAMi 2.10 loses
empty ones, issue #2899). Then every share is charged to an app container, so that the sum is right.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import msgspec

from dovetail.kube.conversion.plugins import named_cards
from dovetail.kube.conversion.register import MAX_CARD_NUMBER, MILLI_PER_CORE, MOST_TEXT
from dovetail.kube.conversion.vendors import NVIDIA, Vendor, Vendors
from dovetail.kube.objects import bounds
from dovetail.kube.objects import core as objects
from dovetail.kube.objects.problems import Problems, printable
from dovetail.model.decision import Share
from dovetail.model.pod import ContainerKind, Pod

MOST_SHARES = bounds.SHARES.most  # shares of one pod
NO_CARD_CHARACTERS = " ,:;0"  # the only characters of a string without cards, such as `,,0,0:;`


class Entry(NamedTuple):
    """One card of one container in the string."""

    uuid: str
    word: str
    memory_mib: int
    cores: int


class AssignmentError(ValueError):
    """The device string cannot be read."""


def encode(shares: Sequence[Share], containers: int, word: str) -> str:
    """The string for a pod of so many containers; shares keep their order within a container."""
    segments: list[list[str]] = [[] for _ in range(containers)]
    for share in shares:
        cores = -(-share.compute_milli // MILLI_PER_CORE)
        segments[share.container].append(f"{share.uuid},{word},{share.memory_mib},{cores}:")
    return "".join("".join(segment) + ";" for segment in segments)


def decode(text: str) -> tuple[tuple[Entry, ...], ...]:
    """The entries of each segment. Text after the last `;` is a segment only if it is not empty."""
    segments = text.split(";")
    if not segments[-1].strip():
        segments.pop()
    return tuple(_segment(segment) for segment in segments)


def _segment(text: str) -> tuple[Entry, ...]:
    entries = []
    for part in text.split(":"):
        if not part.strip():
            continue
        fields = [field.strip() for field in part.split(",")]
        if len(fields) < 4:
            raise AssignmentError(f"{printable(part, 60)!r} is not uuid,vendor,memory,cores")
        if not fields[0].isprintable() or len(fields[0]) > bounds.CARD_NAME.most:
            raise AssignmentError(f"{printable(part, 60)!r} names no card")
        entry = Entry(fields[0], fields[1], _whole(fields[2], part), _whole(fields[3], part))
        if entry.uuid:  # older versions wrote ",,0,0:" for a container without a card
            entries.append(entry)
    return tuple(entries)


def _whole(text: str, part: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 11 and int(text) <= MAX_CARD_NUMBER):
        raise AssignmentError(f"{printable(part, 60)!r} has no whole number where memory and cores stand")
    return int(text)


class Record(NamedTuple):
    """The content of one vendor's `…-allocated` annotation."""

    vendor: Vendor
    segments: tuple[tuple[Entry, ...], ...]


def has_record(annotations: Mapping[str, str], vendors: Vendors) -> bool:
    """Whether an annotation records the pod's cards, legibly or not."""
    names = (name for row in vendors.concerned(annotations) for name in (row.allocated, row.to_allocate) if name)
    if any(annotations.get(name, "").strip(NO_CARD_CHARACTERS) for name in names):
        return True
    return any(text.strip() for _, text in named_cards(annotations, vendors))


def recorded_shares(
    pod: Pod, annotations: Mapping[str, str], vendors: Vendors, where: str, problems: Problems
) -> tuple[Share, ...] | None:
    """What the pod holds by its annotations, limited to its request; None where no record is legible.

    The limit is needed because a client that may change a pod can write that it holds every card, or none of its
    memory.
    """
    asked, rows = _asked(pod), vendors.concerned(annotations)
    for row in rows:
        if row.word not in asked and annotations.get(row.allocated, "").strip(NO_CARD_CHARACTERS):
            message = f"names {row.word} cards, which the pod does not ask for; it is ignored"
            problems.warning(where, f"metadata.annotations.{row.allocated}", message)
    if not asked:
        return ()
    rows = [row for row in rows if row.word in asked]
    records = _records(annotations, rows, where, problems)
    if records is None:
        return None
    for vendor, segments in records:
        if _is_too_much(segments, asked[vendor.word]):
            message = "names more cards than the pod asks for; the pod's cards are guessed"
            problems.warning(where, f"metadata.annotations.{vendor.allocated}", message)
            return None
    kinds = [container.kind for container in pod.containers]
    shares = _all_placed(records, kinds)
    once_more = _announced(annotations, rows, asked)
    announced = (_all_placed(once_more, kinds) or ()) if once_more else ()
    if shares is not None and announced:
        known = {(share.container, share.uuid) for share, _ in shares}
        announced = tuple(one for one in announced if (one[0].container, one[0].uuid) not in known)
        if announced:
            message = "contradicts what was written for the device plugin; the cards of both are booked"
            problems.warning(where, "metadata.annotations." + rows[0].allocated, message)
    both = (*(shares or ()), *announced)
    return tuple(_as_asked(share, word, pod) for share, word in both) or None


def _announced(
    annotations: Mapping[str, str], rows: Iterable[Vendor], asked: Mapping[str, Sequence[int]]
) -> list[Record]:
    """The record for the node's plugin, if it still names all cards: the plugin removes cards that it has given.

    Where it says the same as the record of the pod's cards, as after every Binding, it adds nothing and is not read.
    """
    there = [row for row in rows if annotations.get(row.to_allocate, "").strip(" :;")]  # its plugin leaves `;`
    if all(annotations[row.to_allocate] == annotations.get(row.allocated) for row in there):
        return []
    announced = [replace(row, allocated=row.to_allocate) for row in there]
    records = _records(annotations, announced, "", Problems()) or []
    return [
        record for record in records if [len(segment) for segment in record.segments] == list(asked[record.vendor.word])
    ]


def _as_asked(share: Share, word: str, pod: Pod) -> Share:
    """The share with the amounts that the pod states: the record may have been changed since.

    An amount that the pod does not state follows from HAMi's settings, which may differ from ours. Vendors other than
    NVIDIA may give more than was requested, because they divide cards by templates; none gives less.
    """
    asks = pod.containers[share.container].asks if share.container < len(pod.containers) else ()
    ask = next((one for one in asks if one.vendor == word), None)
    if ask is None or ask.plain:
        return share
    memory = ask.memory_mib if ask.memory_percent is None else share.memory_mib
    compute = ask.compute_milli or share.compute_milli
    if word != NVIDIA:
        memory, compute = max(share.memory_mib, memory), max(share.compute_milli, compute)
    return msgspec.structs.replace(share, memory_mib=memory, compute_milli=compute)


def _asked(pod: Pod) -> dict[str, list[int]]:
    """Vendor -> the number of cards that each container requests."""
    words = dict.fromkeys(ask.vendor for container in pod.containers for ask in container.asks)
    return {
        word: [sum(ask.count for ask in container.asks if ask.vendor == word) for container in pod.containers]
        for word in words
    }


def _is_too_much(segments: Sequence[Sequence[Entry]], asked: Sequence[int]) -> bool:
    """Whether the record has more cards than requested: by container, or in total if segments and containers differ."""
    named = [len(segment) for segment in segments]
    if len(named) == len(asked):
        return any(has > wants for has, wants in zip(named, asked, strict=True))
    return sum(named) > sum(asked)


def _records(
    annotations: Mapping[str, str], rows: Iterable[Vendor], where: str, problems: Problems
) -> list[Record] | None:
    """The content of these vendors' annotations; None where one cannot be read."""
    records: list[Record] = []
    for vendor in rows:
        text = annotations.get(vendor.allocated, "") if vendor.allocated else ""
        if not text.strip():
            continue
        try:
            if len(text) > MOST_TEXT:
                raise AssignmentError(bounds.DEVICE_STRING.exceeded(len(text)))
            records.append(Record(vendor, decode(text)))
        except AssignmentError as error:
            message = f"{error}; the pod's cards are guessed"
            problems.warning(where, f"metadata.annotations.{vendor.allocated}", message)
            return None
        if sum(len(segment) for record in records for segment in record.segments) > MOST_SHARES:
            message = f"names more than {MOST_SHARES:,} cards; the pod's cards are guessed"
            problems.warning(where, f"metadata.annotations.{vendor.allocated}", message)
            return None
    return records


def _all_placed(records: Iterable[Record], kinds: Sequence[ContainerKind]) -> tuple[tuple[Share, str], ...] | None:
    """Shares with their vendor's word; None where there are none."""
    placed = ((share, record.vendor.word) for record in records for share in _placed(record.segments, kinds))
    return tuple(placed) or None


def _placed(segments: Sequence[Sequence[Entry]], kinds: Sequence[ContainerKind]) -> list[Share]:
    apps = [position for position, kind in enumerate(kinds) if kind is ContainerKind.APP] or [0]
    if len(segments) == len(kinds):
        numbered = list(enumerate(segments))
    else:
        filled = [segment for segment in segments if segment]
        numbered = [(apps[min(number, len(apps) - 1)], segment) for number, segment in enumerate(filled)]
    return [
        Share(container, entry.uuid, entry.memory_mib, entry.cores * MILLI_PER_CORE)
        for container, segment in numbered
        for entry in segment
    ]


def without_finished_init(
    shares: tuple[Share, ...], kinds: Sequence[ContainerKind], pod: objects.Pod
) -> tuple[Share, ...]:
    """The shares without those of init containers, once every init container ended with 0. Sidecars keep theirs."""
    names = {c.name for c, kind in zip(pod.spec.init_containers, kinds, strict=False) if kind is ContainerKind.INIT}
    ended = {
        status.name
        for status in pod.status.init_container_statuses
        if status.state.terminated is not None and status.state.terminated.exit_code == 0
    }
    if not names or not names <= ended:
        return shares
    return tuple(
        share for share in shares if share.container >= len(kinds) or kinds[share.container] is not ContainerKind.INIT
    )
