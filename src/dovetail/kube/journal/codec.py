"""Calls and outcomes as msgpack, by the names of their fields: a reader of another version ignores what it lacks.

An entry is an array: number, kind of call, the call, outcomes. Decoded values are the same as those that were written:
defaults that the engine recognises by identity are put back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from dovetail.model import events, volumes
from dovetail.model.calls import (
    AllRetried,
    Call,
    Compiled,
    EngineSettings,
    Handled,
    JournalGap,
    KeptWaiting,
    Offered,
    Outcome,
    PlacedPod,
    Rebuilt,
    Resized,
    Retried,
    Said,
    SearchedAgain,
    Shifted,
    Stopped,
    Withdrawn,
)
from dovetail.model.checkpoint import Checkpoint, EngineState, Expected
from dovetail.model.events import Event, VolumesChanged
from dovetail.model.gang import ANYWHERE
from dovetail.model.pod import Group, Pod, RunningPod
from dovetail.model.relations import NO_PREFERENCES, NO_RELATIONS
from dovetail.model.volumes import VolumeFact

HEADER_KIND = "Begin"  # the kind of the first entry of every file
OUTCOMES: tuple[type[Outcome], ...] = (
    PlacedPod,
    KeptWaiting,
    Said,
    Stopped,
    Shifted,
    Resized,
)  # append only
_NUMBER_OF = {kind: number for number, kind in enumerate(OUTCOMES)}
_SIMPLE = (Retried, SearchedAgain, AllRetried, Compiled, Withdrawn, Offered, Rebuilt, JournalGap)
_CALLS: dict[str, Any] = {kind.__name__: kind for kind in _SIMPLE}
_EVENTS: dict[str, Any] = {kind.__name__: kind for kind in events.Event.__args__ if kind is not VolumesChanged}
_VOLUMES: dict[str, Any] = {kind.__name__: kind for kind in volumes.VolumeFact.__args__}
_VOLUMES_CHANGED = VolumesChanged.__name__


class FileHeader(msgspec.Struct, frozen=True, kw_only=True):
    """What a file says of itself."""

    run: str  # the same in all files of one process
    part: int  # number of the file in its run, from 1 on: the first one begins with an empty engine
    at: float  # when it was begun
    version: str  # of dovetail
    python: str
    settings: EngineSettings


class JournalEntry(NamedTuple):
    """One call as it was written."""

    number: int  # from 1 on, in one run
    call: Call
    outcomes: tuple[Outcome, ...]


class NotOurs(ValueError):
    """The bytes are not an entry of a journal."""


class _Facts(msgspec.Struct):
    at: float
    facts: list[tuple[str, Raw]]
    gone: list[tuple[str, Raw]]


class _Checkpoint(msgspec.Struct):
    """`Checkpoint` with facts whose kinds are named."""

    facts: list[tuple[str, Raw]]
    state: EngineState


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "item"):  # a number of numpy
        return value.item()
    raise NotImplementedError(f"a journal cannot hold a {type(value).__name__}")


_encode = msgspec.msgpack.Encoder(enc_hook=_plain).encode
_decoders: dict[str, msgspec.msgpack.Decoder[Any]] = {}
_frame: msgspec.msgpack.Decoder[tuple[int, str, Raw, list[list[Any]]]] = msgspec.msgpack.Decoder(
    tuple[int, str, Raw, list[list[Any]]]
)


def encode_header(header: FileHeader) -> bytes:
    return _encode((0, HEADER_KIND, header, ()))


def encode(number: int, call: Call, outcomes: Sequence[Outcome]) -> bytes:
    kind, body = _named(call)
    return _encode((number, kind, body, [(_NUMBER_OF[type(one)], *one) for one in outcomes]))


def _named(call: Call) -> tuple[str, Any]:
    if isinstance(call, Handled):
        return _event(call.event)
    if isinstance(call, Checkpoint):
        return "Checkpoint", _Checkpoint([_raw(event) for event in call.facts], call.state)
    return type(call).__name__, call


def _event(event: Event) -> tuple[str, Any]:
    if not isinstance(event, VolumesChanged):
        return type(event).__name__, event
    lists = ([(type(one).__name__, Raw(_encode(one))) for one in some] for some in (event.facts, event.gone))
    return _VOLUMES_CHANGED, _Facts(event.at, *lists)


def _raw(event: Event) -> tuple[str, Raw]:
    kind, body = _event(event)
    return kind, Raw(_encode(body))


def decode_header(data: bytes) -> FileHeader:
    """Raises NotOurs."""
    try:
        _, kind, body, _ = _frame.decode(data)
        if kind != HEADER_KIND:
            raise NotOurs(f"begins with {kind}, not with {HEADER_KIND}")
        return _decoded("", FileHeader, body)  # type: ignore[no-any-return]
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NotOurs(str(error)) from error


def decode(data: bytes) -> JournalEntry:
    """Raises NotOurs."""
    try:
        number, kind, body, written = _frame.decode(data)
        outcomes = tuple(_outcome(one) for one in written)
        return JournalEntry(number, _call(kind, body), outcomes)
    except (msgspec.DecodeError, UnicodeDecodeError, IndexError, TypeError) as error:
        raise NotOurs(str(error)) from error


def _outcome(written: list[Any]) -> Outcome:
    return msgspec.convert(written[1:], OUTCOMES[written[0]])  # type: ignore[no-any-return]


def _call(kind: str, body: Raw) -> Call:
    if kind == "Checkpoint":
        read = _decoded("", _Checkpoint, body)
        return Checkpoint(tuple(_event_from(name, raw) for name, raw in read.facts), _state(read.state))
    if kind not in _CALLS:
        return Handled(_event_from(kind, body))
    call = _decoded(kind, _CALLS[kind], body)
    if isinstance(call, (Withdrawn, Offered)):
        return msgspec.structs.replace(call, group=_group(call.group))
    if isinstance(call, Rebuilt):
        return Rebuilt(call.nodes, tuple(map(_running, call.running)), tuple(map(_running, call.reserved)))
    return call  # type: ignore[no-any-return]


def _state(state: EngineState) -> EngineState:
    expected = state.expected
    if expected is not None:
        times, basis = (tuple((_pod(pod), n) for pod, n in counted) for counted in (expected.times, expected.basis))
        expected = Expected(times, basis, expected.until_next)
    return msgspec.structs.replace(
        state,
        held=tuple(msgspec.structs.replace(one, pod=_pod(one.pod)) for one in state.held),
        booked=tuple(msgspec.structs.replace(one, pod=_pod(one.pod)) for one in state.booked),
        promised=tuple(msgspec.structs.replace(one, pod=_pod(one.pod)) for one in state.promised),
        waiting=tuple(map(_group, state.waiting)),
        expected=expected,
    )


def _event_from(kind: str, body: Raw) -> Event:
    if kind == _VOLUMES_CHANGED:
        read = _decoded("", _Facts, body)
        return VolumesChanged(read.at, _facts(read.facts), _facts(read.gone))
    if kind not in _EVENTS:
        raise NotOurs(f"an entry of kind {kind[:40]!r}, which this version does not know")
    event = _decoded(kind, _EVENTS[kind], body)
    match event:
        case events.GroupArrived(at, group):
            return events.GroupArrived(at, _group(group))
        case events.PodObserved(at, running):
            return events.PodObserved(at, _running(running))
        case events.PodNominated(at, pod, node):
            return events.PodNominated(at, _pod(pod), node)
    return event  # type: ignore[no-any-return]


def _facts(written: list[tuple[str, Raw]]) -> tuple[VolumeFact, ...]:
    for kind, _ in written:
        if kind not in _VOLUMES:
            raise NotOurs(f"a volume fact of kind {kind[:40]!r}, which this version does not know")
    return tuple(_decoded(kind, _VOLUMES[kind], raw) for kind, raw in written)


def _decoded(name: str, kind: Any, body: Raw) -> Any:
    key = name or kind.__name__
    decoder = _decoders.get(key)
    if decoder is None:
        decoder = _decoders[key] = msgspec.msgpack.Decoder(kind)
    return decoder.decode(body)


# ---- defaults that the engine recognises by identity ----------------------------------------------------------------


def _pod(pod: Pod) -> Pod:
    return replace(
        pod,
        relations=NO_RELATIONS if pod.relations == NO_RELATIONS else pod.relations,
        preferences=NO_PREFERENCES if pod.preferences == NO_PREFERENCES else pod.preferences,
    )


def _running(running: RunningPod) -> RunningPod:
    return replace(running, pod=_pod(running.pod))


def _group(group: Group) -> Group:
    topology = ANYWHERE if group.topology == ANYWHERE else group.topology
    return replace(group, pods=tuple(map(_pod, group.pods)), topology=topology)
