"""The resources that a running pod takes: the larger of its request and what kubelet has given or promised it.

In-place resize (component-helpers/resource/helpers.go, determineEffectiveRequests): a resize that kubelet finds
infeasible is not counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from dovetail.kube.conversion.amounts import amounts, largest
from dovetail.kube.objects import core as objects
from dovetail.kube.objects.problems import Problems

UNRESIZED = objects.PodStatus()


def in_force(
    asked: Mapping[str, int], status: objects.PodStatus | objects.ContainerStatus | None, infeasible: bool
) -> Mapping[str, int]:
    """The amounts in force for one container, or for the pod as a whole."""
    if status is None or status.resources is None:
        return asked
    quiet = Problems()  # written by kubelet: users cannot correct it
    given, _ = amounts("", "", status.resources.requests, quiet)
    promised, _ = amounts("", "", status.allocated_resources, quiet)
    return reduce(largest, (given, promised) if infeasible else (asked, given, promised), {})


def is_infeasible(status: objects.PodStatus) -> bool:
    pending = next((one for one in status.conditions if one.type == "PodResizePending"), None)
    return pending is not None and pending.reason == "Infeasible"


def resized(status: objects.PodStatus) -> objects.PodStatus:
    """The status with only what kubelet has given the containers: equal for replicas that were not resized."""
    given = [_given(one) for one in status.container_statuses if one.resources is not None]
    given_init = [_given(one) for one in status.init_container_statuses if one.resources is not None]
    if not given and not given_init and status.resources is None:
        return UNRESIZED
    return objects.PodStatus(
        conditions=[one for one in status.conditions if one.type == "PodResizePending"],
        container_statuses=given,
        init_container_statuses=given_init,
        resources=status.resources,
        allocated_resources=status.allocated_resources,
    )


def _given(status: objects.ContainerStatus) -> objects.ContainerStatus:
    resources, promised = status.resources, status.allocated_resources
    return objects.ContainerStatus(status.name, resources=resources, allocated_resources=promised)


def status_of(container: str, status: objects.PodStatus) -> objects.ContainerStatus | None:
    """The container's status by name.

    That of an init container wins, as in Kubernetes' map, where it is written last.
    """
    for one in (*status.init_container_statuses, *status.container_statuses):
        if one.name == container:
            return one
    return None
