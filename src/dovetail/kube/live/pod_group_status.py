"""What the status of a PodGroup should say, for each kind: as its own scheduler and controller write it.

* Coscheduling (scheduler-plugins pkg/controllers/podgroup_controller.go) and its older variant: phase and counts.
* Volcano (pkg/scheduler/framework/job_updater.go, plugins/gang): phase, counts, conditions Unschedulable and Scheduled.
* Kubernetes 1.36 (pkg/scheduler/schedule_one_podgroup.go): condition PodGroupScheduled, which stays True once it is.
* KAI (pkg/scheduler/cache/status_updater): schedulingConditions, while no member has a node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from dovetail.kube.conversion.groups import KUBERNETES, LABELS
from dovetail.kube.live.pod_group_objects import NODE_POOL_LABEL, PodGroupObject
from dovetail.kube.live.times import to_second
from dovetail.kube.objects.queues import KAI_GROUP, VOLCANO_GROUP

Fields = dict[str, Any]
WRITER = "dovetail"  # transition id of conditions of Volcano and KAI
DEFAULT_NODE_POOL = "default"  # KAI's, for a PodGroup without the label
OF_VOLCANO = ("Scheduled", "Unschedulable")
OF_KUBERNETES = ("PodGroupScheduled", "PodGroupInitiallyScheduled")  # v1alpha*, later versions
OF_KAI = ("UnschedulableOnNodePool",)
OWN_CONDITIONS = (*OF_VOLCANO, *OF_KUBERNETES, *OF_KAI)  # types that we write
CONDITION_LISTS = ("conditions", "schedulingConditions")


class GangState(NamedTuple):
    """What is known of a PodGroup's pods."""

    minimum: int
    there: int = 0  # pods that exist, finished ones too
    scheduled: int = 0  # of these, with a node and not finished
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    why: str = ""  # why members wait for a node; "" = none does, or it is not known
    is_ours: bool = True  # some of its pods are those of our schedulers
    refused: str = ""  # why no pods should be created yet; "" = they may be

    @property
    def is_whole(self) -> bool:
        return self.scheduled + self.succeeded >= self.minimum


def wanted(group: PodGroupObject, state: GangState) -> Fields | None:
    """The fields of its status that we write, conditions without times; None = the kind has no status that we write."""
    write = STATUS_OF_KIND.get(group.name.api_group)
    if write is None or group.too_large:
        return None
    return write(group, state, _mapping(group.source.status))


def is_written(status: Any, fields: Fields) -> bool:
    """Whether the status has these fields already; counts that are absent are 0."""
    before = _mapping(status)
    for name, value in fields.items():
        if name in CONDITION_LISTS:
            if [_timeless(one) for one in _list(before, name)] != [_timeless(one) for one in value]:
                return False
        elif (before.get(name) or type(value)()) != value:
            return False
    return True


def stamped(status: Any, fields: Fields, now: float) -> Fields:
    """The fields with times: a condition keeps its time while its status is the same.

    Conditions of others stay as they are.
    """
    before = _mapping(status)
    result = dict(fields)
    for name in (name for name in CONDITION_LISTS if name in fields):
        times = {_stand_of(one): one.get("lastTransitionTime") for one in _list(before, name)}
        result[name] = [
            {**one, "lastTransitionTime": times.get(_stand_of(one)) or to_second(now)}
            if one.get("type") in OWN_CONDITIONS and "lastTransitionTime" not in one
            else one
            for one in fields[name]
        ]
    return result


def _coscheduling(group: PodGroupObject, state: GangState, before: Mapping[str, Any]) -> Fields:
    finished = state.succeeded + state.failed
    phase = "Pending"
    if state.succeeded >= state.minimum:
        phase = "Finished"
    elif state.failed and finished + state.running >= state.minimum:
        phase = "Failed"
    elif state.running + state.succeeded >= state.minimum:
        phase = "Running"
    elif state.is_whole:
        phase = "Scheduled"
    elif state.there >= state.minimum:
        phase = "Scheduling"
    return {"phase": phase, "scheduled": state.scheduled, **_counts(state)}


def _volcano(group: PodGroupObject, state: GangState, before: Mapping[str, Any]) -> Fields:
    phase = str(before.get("phase") or "Pending")
    conditions: list[Fields] = []
    if state.succeeded >= state.minimum and not state.scheduled:
        phase = "Completed"
    elif state.is_whole:
        phase = "Running"
        ready = "tasks in gang are ready to be scheduled"
        conditions = [{"type": "Scheduled", "status": "True", "reason": ready, "message": ""}]
    elif state.scheduled:
        phase = "Unknown"
    elif phase == "Pending" and not state.refused:
        phase = "Inqueue"
    if why := state.refused or state.why:
        conditions = [{"type": "Unschedulable", "status": "True", "reason": "NotEnoughResources", "message": why}]
    marked = [{**one, "transitionID": WRITER} for one in conditions]
    own = _with_others(before, "conditions", marked, OF_VOLCANO)
    return {"phase": phase, **_counts(state), "conditions": own}


def _kubernetes(group: PodGroupObject, state: GangState, before: Mapping[str, Any]) -> Fields | None:
    kind = OF_KUBERNETES[0 if group.version.startswith("v1alpha") else 1]
    is_true = any(one.get("type") == kind and one.get("status") == "True" for one in _list(before, "conditions"))
    if is_true or (state.is_whole and state.scheduled):
        said = {"type": kind, "status": "True", "reason": "Scheduled", "message": ""}
    elif state.why:
        said = {"type": kind, "status": "False", "reason": "Unschedulable", "message": state.why}
    else:
        return None
    return {"conditions": _with_others(before, "conditions", [said], (kind,))}


def _kai(group: PodGroupObject, state: GangState, before: Mapping[str, Any]) -> Fields:
    pool = group.source.metadata.labels.get(NODE_POOL_LABEL, DEFAULT_NODE_POOL)
    said = {
        "type": "UnschedulableOnNodePool",
        "nodePool": pool,
        "status": "True",
        "reason": "Unschedulable",
        "message": state.why,
        "transitionID": WRITER,
    }
    conditions = [said] if state.why and not state.scheduled else []
    return {"schedulingConditions": _with_others(before, "schedulingConditions", conditions, OF_KAI)}


STATUS_OF_KIND: Mapping[str, Callable[[PodGroupObject, GangState, Mapping[str, Any]], Fields | None]] = {
    **dict.fromkeys(LABELS.values(), _coscheduling),
    VOLCANO_GROUP: _volcano,
    KUBERNETES: _kubernetes,
    KAI_GROUP: _kai,
}


def _counts(state: GangState) -> Fields:
    return {"running": state.running, "succeeded": state.succeeded, "failed": state.failed}


def _with_others(before: Mapping[str, Any], name: str, ours: list[Fields], types: tuple[str, ...]) -> list[Fields]:
    """The conditions of other types as they are, then ours: a merge patch replaces the whole list."""
    return [*(one for one in _list(before, name) if one.get("type") not in types), *ours]


def _stand_of(condition: Mapping[str, Any]) -> tuple[str, str]:
    """Its type and status as text: others may write anything there."""
    return str(condition.get("type")), str(condition.get("status"))


def _timeless(condition: Mapping[str, Any]) -> Fields:
    """The condition without what changes by itself; an absent text is empty."""
    ignored = ("lastTransitionTime", "observedGeneration")
    return {name: value for name, value in condition.items() if name not in ignored and value != ""}


def _mapping(status: Any) -> Mapping[str, Any]:
    return status if isinstance(status, dict) else {}


def _list(status: Mapping[str, Any], name: str) -> list[Fields]:
    found = status.get(name)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
