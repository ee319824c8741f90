"""Compile what a live scheduler will run before it has to: in the middle of work it would stand still for seconds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from dovetail.engine.scheduler import Scheduler
from dovetail.kube.settings import Settings
from dovetail.model.device import Device
from dovetail.model.events import GroupArrived, NodeChanged, PodGone, PodObserved
from dovetail.model.node import Node
from dovetail.model.pod import Container, DeviceAsk, Group, Pod, Profile, RunningPod
from dovetail.model.relations import NO_PREFERENCES, Preferences
from dovetail.model.rules import AffinityTerm, Requirement

_CARD = Device("GPU-0", 0, "NVIDIA", "any", 1024, 1000, 10)
_NODES = [
    Node(name, {"cpu": 1000, "pods": 10}, (msgspec.structs.replace(_CARD, uuid=f"GPU-{name}"),)) for name in ("a", "b")
]
_LIKES = Preferences(nodes=((1, AffinityTerm((Requirement("x", "Exists"),))),))


def warm(settings: Iterable[Settings], arguments: Mapping[str, Mapping[str, Any]], cache: bool) -> None:
    """Blocks until the kernels of these profiles are compiled, or read from disk."""
    for profile in {each.profile for each in settings}:
        _rehearse(profile, arguments, cache)


def _rehearse(profile: Profile, arguments: Mapping[str, Mapping[str, Any]], cache: bool) -> None:
    """A day in the life of a scheduler: every door of the kernel is opened once."""
    stage = Scheduler(arguments, mode="compiled", cache=cache)
    for node in _NODES:
        stage.handle(NodeChanged(0.0, node))
    whole = Container("c", asks=(DeviceAsk("NVIDIA", 1, 1024, None, 1000),))
    for name, likes in (("plain", NO_PREFERENCES), ("picky", _LIKES), ("late", NO_PREFERENCES)):
        pod = Pod("", name, name, {"cpu": 500}, containers=(whole,), profile=profile, preferences=likes)
        stage.handle(GroupArrived(0.0, Group(name, (pod,))))
    stage.related.reasons(pod)
    placed = replace(pod, name="plain", uid="plain", labels={"zone": "a"})  # as the API server gives it back
    shares, where = stage.ledger.held_shares("plain"), stage.ledger.node_of("plain")
    stage.handle(PodObserved(0.0, RunningPod(placed, where, shares)))
    stage.handle(PodGone(1.0, "plain"))
