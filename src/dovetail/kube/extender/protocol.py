"""The JSON of kube-scheduler's extender protocol v1 as values: bytes in, bytes out.

Its types have no JSON tags, so the keys are Go's names: `Pod`, `NodeNames` (k8s.io/kube-scheduler/extender/v1). Go
reads keys in any case, and so does this module. Pods and nodes inside are written as everywhere else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from dovetail.kube.api.typed import TypedReader, Unreadable
from dovetail.kube.objects import core as objects
from dovetail.kube.objects.problems import printable

T = TypeVar("T")
MAX_NODES = 50_000  # names or nodes in one request
_PODS, _NODES = TypedReader(objects.Pod), TypedReader(objects.Node)


class WrongRequest(Exception):
    """The request is not of the protocol; the text says which field, and what is expected."""


class OfferedNode(NamedTuple):
    """A node that was sent as an object: what we read of it, and the bytes, to send it back."""

    source: objects.Node
    raw: msgspec.Raw


class FilterArgs(NamedTuple):
    """The pod and the nodes that are left for it: their names, or the nodes themselves (nodeCacheCapable: false)."""

    pod: objects.Pod
    names: tuple[str, ...] | None = None
    nodes: tuple[OfferedNode, ...] | None = None

    @property
    def offered(self) -> tuple[str, ...]:
        return self.names if self.names is not None else tuple(one.source.metadata.name for one in self.nodes or ())


class BindArgs(NamedTuple):
    name: str
    namespace: str
    uid: str
    node: str

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class NodeVictims(NamedTuple):
    """The pods that kube-scheduler would stop on one node."""

    uids: tuple[str, ...]
    budget_violations: int = 0


class PreemptArgs(NamedTuple):
    pod: objects.Pod
    victims: Mapping[str, NodeVictims]  # by node


class FilterResult(NamedTuple):
    """`error`: the call has failed, and the rest does not count."""

    names: tuple[str, ...] = ()
    failed: Mapping[str, str] = {}
    unresolvable: Mapping[str, str] = {}
    error: str = ""


# ---- reading --------------------------------------------------------------------------------------------------------


def filter_args(body: bytes) -> FilterArgs:
    """The arguments of `filter` and `prioritize`."""
    fields = _fields(body, "ExtenderArgs")
    pod = _pod(fields)
    names = _read(fields, "nodenames", list[str] | None, "NodeNames: a list of names")
    raw = _read(fields, "nodes", dict[str, msgspec.Raw] | None, "Nodes: a NodeList")
    if names is not None:
        _bounded(len(names))
        return FilterArgs(pod, names=tuple(names))
    if raw is None:
        raise WrongRequest("neither NodeNames nor Nodes: kube-scheduler sends one of them")
    items = _read(_lowered(raw), "items", list[msgspec.Raw] | None, "Nodes.items: a list of nodes") or []
    _bounded(len(items))
    return FilterArgs(pod, nodes=tuple(OfferedNode(_node(item), item) for item in items))


def bind_args(body: bytes) -> BindArgs:
    fields = _fields(body, "ExtenderBindingArgs")
    words = [_read(fields, key, str, f"{name}: a text") for key, name in _BIND_KEYS.items()]
    for word, name in zip(words, _BIND_KEYS.values(), strict=True):
        if not word:
            raise WrongRequest(f"{name} is missing")
    return BindArgs(*(str(word) for word in words))


_BIND_KEYS = {"podname": "PodName", "podnamespace": "PodNamespace", "poduid": "PodUID", "node": "Node"}


def preempt_args(body: bytes) -> PreemptArgs:
    fields = _fields(body, "ExtenderPreemptionArgs")
    pod, found = _pod(fields), dict[str, NodeVictims]()
    kind = dict[str, dict[str, msgspec.Raw] | None] | None
    meta = _read(fields, "nodenametometavictims", kind, "NodeNameToMetaVictims: an object of nodes")
    whole = _read(fields, "nodenametovictims", kind, "NodeNameToVictims: an object of nodes")
    given = {**(whole or {}), **(meta or {})}
    _bounded(len(given))
    for node, victims in given.items():
        said = _lowered(victims or {})
        pods = _read(said, "pods", list[dict[str, msgspec.Raw]] | None, f"victims of {node}: Pods") or []
        count = _read(said, "numpdbviolations", int | None, f"victims of {node}: NumPDBViolations") or 0
        found[node] = NodeVictims(tuple(_uid(one, node) for one in pods), count)
    return PreemptArgs(pod, found)


def _uid(pod: Mapping[str, msgspec.Raw], node: str) -> str:
    """The UID of a MetaPod (`{"UID": …}`), or of a whole pod."""
    fields = _lowered(pod)
    uid = _read(fields, "uid", str | None, f"victims of {node}: UID")
    if uid is None and "metadata" in fields:
        meta = _read(fields, "metadata", dict[str, Any], f"victims of {node}: metadata") or {}
        uid = meta.get("uid")
    if not isinstance(uid, str) or not uid:
        raise WrongRequest(f"a victim on node {printable(node, 100)} has no UID")
    return uid


def _fields(body: bytes, kind: str) -> dict[str, msgspec.Raw]:
    try:
        return _lowered(msgspec.json.decode(body, type=dict[str, msgspec.Raw]))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WrongRequest(f"the body is no {kind}: {printable(str(error), 200)}") from None


def _lowered(fields: Mapping[str, msgspec.Raw]) -> dict[str, msgspec.Raw]:
    return {key.lower(): value for key, value in fields.items()}


def _read(fields: Mapping[str, msgspec.Raw], key: str, kind: Any, expected: str) -> Any:
    try:
        return msgspec.json.decode(fields[key], type=kind) if key in fields else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WrongRequest(f"{printable(expected, 200)} is expected: {printable(str(error), 200)}") from None


def _pod(fields: Mapping[str, msgspec.Raw]) -> objects.Pod:
    raw = fields.get("pod")
    if raw is None or bytes(raw) == b"null":
        raise WrongRequest("Pod is missing")
    return _object(_PODS, raw, "Pod")


def _node(raw: msgspec.Raw) -> objects.Node:
    return _object(_NODES, raw, "Node")


def _object(reader: TypedReader[T], raw: msgspec.Raw, kind: str) -> T:
    found = reader.object(raw)
    if isinstance(found, Unreadable):
        raise WrongRequest(f"{kind} {printable(str(found.ref), 300)}: {found.message}")
    return found


def _bounded(count: int) -> None:
    if count > MAX_NODES:
        raise WrongRequest(f"{count:,} nodes; at most {MAX_NODES:,} are read")


# ---- writing --------------------------------------------------------------------------------------------------------


def filter_answer(result: FilterResult, nodes: Sequence[OfferedNode] | None = None) -> bytes:
    """An ExtenderFilterResult. `nodes`: the request had nodes, so the answer has nodes, too."""
    chosen = set(result.names)
    items = None if nodes is None else [one.raw for one in nodes if one.source.metadata.name in chosen]
    return msgspec.json.encode(
        {
            "Nodes": None if items is None or result.error else {"metadata": {}, "items": items},
            "NodeNames": list(result.names) if nodes is None and not result.error else None,
            "FailedNodes": dict(result.failed),
            "FailedAndUnresolvableNodes": dict(result.unresolvable),
            "Error": result.error,
        }
    )


def bind_answer(error: str) -> bytes:
    return msgspec.json.encode({"Error": error})


def priorities_answer(scores: Mapping[str, int]) -> bytes:
    """A HostPriorityList."""
    return msgspec.json.encode([{"Host": node, "Score": score} for node, score in scores.items()])


def preempt_answer(victims: Mapping[str, NodeVictims]) -> bytes:
    found = {
        node: {"Pods": [{"UID": uid} for uid in one.uids], "NumPDBViolations": one.budget_violations}
        for node, one in victims.items()
    }
    return msgspec.json.encode({"NodeNameToMetaVictims": found})
