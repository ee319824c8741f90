"""A node's annotations about its cards: HAMi's register in both encodings, pair scores, cordoned cards.

HAMi leaves out empty values (Go's omitempty), so a missing `health` is false and a missing `index` or `numa` is 0. An
entry that cannot be read is skipped with a warning; the node's other cards are still read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from dovetail.kube.conversion.vendors import Vendor
from dovetail.kube.objects import bounds
from dovetail.kube.objects.problems import Problems, printable
from dovetail.model.device import HAMI_CORE, Device

DEVICE_CORDON = "hami.io/device-cordon"
MAX_CARD_NUMBER = bounds.CARD_NUMBER.most  # HAMi's fields are int32
MOST_TEXT = bounds.DEVICE_STRING.most
MOST_BROKEN = 20  # entries of one register that are reported
MILLI_PER_CORE = 10  # devcore 100 = a whole card = 1000 milli
BESIDE_ID = ("type", "mode", "health", "index", "devmem", "devcore", "count", "numa")


class EntryError(ValueError):
    """One card's entry cannot be read."""


def registered(annotations: Mapping[str, str], vendor: Vendor, where: str, problems: Problems) -> tuple[Device, ...]:
    """The vendor's cards on the node, in registration order."""
    text = annotations.get(vendor.register, "") if vendor.register else ""
    if not text.strip():
        return ()
    path = f"metadata.annotations.{vendor.register}"
    devices: dict[str, Device] = {}
    kinds: set[tuple[str, str]] = set()
    broken = 0
    for number, entry in enumerate(_entries(text, path, where, problems)):
        if len(devices) == bounds.CARDS_PER_NODE.most:
            problems.warning(where, path, f"registers more than {len(devices)} cards; the rest is left out")
            break
        try:
            device = _device(entry, vendor)
        except EntryError as error:
            problems.warning(where, f"{path}[{number}]", f"{error}; the card is left out")
            broken += 1
            if broken == MOST_BROKEN:
                problems.warning(where, path, "has so many broken entries that the rest is not read")
                break
            continue
        if len(kinds) == bounds.KINDS_PER_NODE.most and (device.model, device.mode) not in kinds:
            said = bounds.KINDS_PER_NODE.exceeded(f"more than {len(kinds)}")
            problems.warning(where, path, f"{said}; cards of further kinds are left out")
            continue
        kinds.add((device.model, device.mode))
        if device.uuid in devices:
            problems.warning(where, f"{path}[{number}]", f"card {device.uuid} is registered twice; the first counts")
            continue
        devices[device.uuid] = device
    return tuple(devices.values())


def _entries(text: str, path: str, where: str, problems: Problems) -> Iterator[dict[str, Any]]:
    if len(text) > MOST_TEXT:
        problems.warning(where, path, f"{bounds.DEVICE_STRING.exceeded(len(text))}; the node has no such card")
        return
    if text.lstrip()[:1] not in ("[", "{"):
        yield from _legacy(text, path, where, problems)
        return
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError) as error:
        problems.warning(where, path, f"is not valid JSON ({printable(str(error))}); the node has no such card")
        return
    if not isinstance(entries, list):
        problems.warning(where, path, "is not a list of cards; the node has no such card")
        return
    for entry in entries:
        yield entry if isinstance(entry, dict) else {}


def _legacy(text: str, path: str, where: str, problems: Problems) -> Iterator[dict[str, Any]]:
    """The entries of the older encoding: `uuid,count,mem,core,type,numa,health[,index,mode]:` for each card.

    HAMi v2.10 pkg/device/devices.go:317.
    """
    if ":" not in text:
        problems.warning(where, path, "is neither JSON nor `uuid,count,mem,core,type,numa,health:`; no card is read")
        return
    names = ("id", "count", "devmem", "devcore", "type", "numa", "health", "index", "mode")
    for part in text.split(":"):
        if not part.strip():
            continue
        fields = [field.strip() for field in part.split(",")]
        if len(fields) not in (7, 9):
            yield {}
            continue
        entry: dict[str, Any] = dict(zip(names, fields, strict=False))
        entry["health"] = fields[6].lower() == "true"
        for name in ("count", "devmem", "devcore", "numa", "index"):
            if name in entry:
                entry[name] = _number(entry[name])
        yield entry


def _number(text: str) -> int | str:
    return int(text) if len(text) < 12 and text.lstrip("-").isascii() and text.lstrip("-").isdigit() else text


def _device(entry: Mapping[str, Any], vendor: Vendor) -> Device:
    uuid = entry.get("id")
    if not isinstance(uuid, str) or not uuid.strip():
        raise EntryError("an entry has no `id`")
    if len(uuid) > bounds.CARD_NAME.most or not uuid.isprintable() or any(mark in uuid for mark in ",:;"):
        raise EntryError(f"{printable(uuid)!r} is no id of a card")
    rest = [entry.get(name) for name in BESIDE_ID]
    try:
        try:
            like = _nameless(vendor.word, *rest)
        except TypeError:  # a list or a mapping is wrong here, and cannot be a key of the cache
            like = _nameless.__wrapped__(vendor.word, *rest)
    except EntryError as error:
        raise EntryError(f"card {uuid} {error}") from None
    return msgspec.structs.replace(like, uuid=uuid.strip())


@lru_cache(maxsize=4096, typed=True)  # `true` is not a number, though it equals 1
def _nameless(
    vendor: str, kind: Any, mode: Any, health: Any, index: Any, devmem: Any, devcore: Any, count: Any, numa: Any
) -> Device:
    """The card without its id: a cluster has thousands of cards of a few kinds."""
    kind, mode = "" if kind is None else kind, mode or HAMI_CORE
    texts = isinstance(kind, str) and isinstance(mode, str)
    if not texts or len(kind) > bounds.CARD_NAME.most or len(mode) > 50 or not mode.isprintable():
        raise EntryError("has no text as its `type` or `mode`")
    if health is not None and not isinstance(health, bool):
        raise EntryError("has a `health` that is neither true nor false")
    return Device(
        uuid="",
        index=_whole(index, "index"),
        vendor=vendor,
        model=clean_model(kind) or vendor,
        memory_mib=_whole(devmem, "devmem"),
        compute_milli=_whole(devcore, "devcore") * MILLI_PER_CORE,
        slots=_whole(count, "count"),
        numa=max(0, _whole(numa, "numa", lowest=-1)),  # Linux reports −1 for a machine without NUMA
        healthy=bool(health),
        mode=mode,
    )


def _whole(value: Any, name: str, lowest: int = 0) -> int:
    value = 0 if value is None else value
    if isinstance(value, bool) or not isinstance(value, int):
        raise EntryError(f"has a `{name}` that is no whole number")
    if not lowest <= value <= MAX_CARD_NUMBER:
        raise EntryError(f"has a `{name}` of {printable(str(value), 30)}, not between 0 and {MAX_CARD_NUMBER}")
    return value


def clean_model(text: str) -> str:
    """The model's name: `NVIDIA-NVIDIA H20-3e`, which releases of 2025 wrote, is `NVIDIA H20-3e`."""
    text = printable(text.strip())
    return text.removeprefix("NVIDIA-") if text.startswith("NVIDIA-NVIDIA") else text


def cordoned(
    annotations: Mapping[str, str], devices: Sequence[Device], where: str, problems: Problems
) -> frozenset[str]:
    """UUIDs of cards that take no new pods."""
    listed = {uuid.strip() for uuid in annotations.get(DEVICE_CORDON, "").split(",")} - {""}
    if len(listed) > bounds.CORDONED_CARDS.most:
        message = f"{bounds.CORDONED_CARDS.exceeded(len(listed))}; all cards of the node count as cordoned"
        problems.warning(where, f"metadata.annotations.{DEVICE_CORDON}", message)
        return frozenset(device.uuid for device in devices)
    unknown = sorted(listed - {device.uuid for device in devices})
    if unknown:
        message = f"names {printable(', '.join(unknown))}, which is no card of this node"
        problems.warning(where, f"metadata.annotations.{DEVICE_CORDON}", message)
    return frozenset(listed)


def pair_scores(
    annotations: Mapping[str, str], vendor: Vendor, devices: Sequence[Device], where: str, problems: Problems
) -> tuple[tuple[int, ...], ...]:
    """Scores by position, symmetric; a pair without a score is 0; () where the node has no scores."""
    text = annotations.get(vendor.score, "") if vendor.score else ""
    if not text.strip():
        return ()
    path = f"metadata.annotations.{vendor.score}"
    if len(devices) > bounds.LINKED_CARDS.most:
        problems.warning(where, path, f"{bounds.LINKED_CARDS.exceeded(len(devices))}; links count as unknown")
        return ()
    if len(text) > MOST_TEXT:
        problems.warning(where, path, f"{bounds.DEVICE_STRING.exceeded(len(text))}; links count as unknown")
        return ()
    given = _scores(text, path, where, problems)
    if given is None:
        return ()
    positions = {device.uuid: position for position, device in enumerate(devices)}
    table = [[0] * len(devices) for _ in devices]
    for (first, second), score in given.items():
        if first == second or first not in positions or second not in positions:
            continue
        back = given.get((second, first), score)
        if back != score:  # HAMi gives such a pair 0 as well (nvidia/calculate_score.go)
            problems.warning(where, path, f"the pair {first}, {second} has two scores, {score} and {back}; 0 is used")
            score = 0
        table[positions[first]][positions[second]] = table[positions[second]][positions[first]] = score
    return tuple(tuple(row) for row in table)


def _scores(text: str, path: str, where: str, problems: Problems) -> dict[tuple[str, str], int] | None:
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError) as error:
        problems.warning(where, path, f"is not valid JSON ({printable(str(error))}); links count as unknown")
        return None
    given: dict[tuple[str, str], int] = {}
    for number, entry in enumerate(entries if isinstance(entries, list) else [None]):
        row = entry.get("score") if isinstance(entry, dict) else None
        uuid = entry.get("uuid") if isinstance(entry, dict) else None
        if not isinstance(uuid, str) or not (row is None or isinstance(row, dict)):
            problems.warning(where, f"{path}[{number}]", "is not {uuid, score: {uuid: number}}; it is left out")
            continue
        for other, score in (row or {}).items():
            if isinstance(score, bool) or not isinstance(score, int) or not 0 <= score <= MAX_CARD_NUMBER:
                problems.warning(where, f"{path}[{number}]", f"the score of {printable(str(other))} is no number ≥ 0")
            else:
                given[uuid, other] = score
    return given
