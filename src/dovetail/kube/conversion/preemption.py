"""What Kubernetes says of a pod for preemption: its QoS class, and what its PriorityClass tolerates.

The same functions for files and watches.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from dovetail.kube.conversion.amounts import amount
from dovetail.kube.conversion.times import seconds_of
from dovetail.kube.objects import core as objects
from dovetail.kube.objects.problems import Problems, printable
from dovetail.model.node import CPU, MEMORY
from dovetail.model.pod import Qos, Tolerance
from dovetail.model.quantity import QuantityError

NEVER_PREEMPTS = "Never"  # of preemptionPolicy
QOS_CLASSES = {"BestEffort": Qos.BEST_EFFORT, "Burstable": Qos.BURSTABLE, "Guaranteed": Qos.GUARANTEED}
# Annotations of a PriorityClass (scheduler-plugins pkg/preemptiontoleration).
PREFIX = "preemption-toleration.scheduling.x-k8s.io/"
MINIMUM_PRIORITY, TOLERATION_SECONDS = f"{PREFIX}minimum-preemptable-priority", f"{PREFIX}toleration-seconds"
_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")  # as Go's strconv.ParseInt reads it


def qos_of(spec: objects.PodSpec) -> Qos:
    """The QoS class by requests and limits of CPU and memory (Kubernetes' pkg/apis/core/v1/helper/qos).

    Requests that are not stated are those of the limits, as the API server's defaults have it.
    """
    level = spec.resources
    parts = [level] if level is not None else [one.resources for one in (*spec.containers, *spec.init_containers)]
    limits = [_positive(part.limits) for part in parts]
    requests = [{**most, **_positive(part.requests)} for most, part in zip(limits, parts, strict=True)]
    if not any(limits) and not any(requests):
        return Qos.BEST_EFFORT
    # A pod-level request without limits does not exclude the class by itself: the sums below differ.
    complete = all({CPU, MEMORY} <= own.keys() for own in limits if own or level is None)
    return Qos.GUARANTEED if complete and _sums(limits) == _sums(requests) else Qos.BURSTABLE


def _positive(amounts: objects.Quantities) -> dict[str, int]:
    """The amounts of CPU and memory above 0. What cannot be read is reported elsewhere, and does not count here."""
    found = {}
    for name in (CPU, MEMORY):
        try:
            found[name] = amount(name, amounts[name]) if name in amounts else 0
        except QuantityError:
            continue
    return {name: value for name, value in found.items() if value > 0}


def _sums(parts: list[dict[str, int]]) -> dict[str, int]:
    return {name: total for name in (CPU, MEMORY) if (total := sum(own.get(name, 0) for own in parts))}


def placed_at(status: objects.PodStatus) -> float:
    """When the pod got its node, in seconds since 1970; 0 = not known."""
    for condition in status.conditions:
        if condition.type == "PodScheduled" and condition.status == "True":
            return seconds_of(condition.last_transition_time) or 0.0
    return 0.0


def started_at(status: objects.PodStatus) -> float:
    """When kubelet took the pod on, in seconds since 1970; 0 = not known."""
    return seconds_of(status.start_time) or 0.0 if status.start_time else 0.0


def tolerance_of(source: objects.PriorityClass, where: str, problems: Problems) -> Tolerance | None:
    """What pods of the class tolerate; None = nothing is stated, or an annotation cannot be read.

    As in PreemptionToleration: without a minimum, every pod of a higher priority may preempt.
    """
    notes = source.metadata.annotations
    if MINIMUM_PRIORITY not in notes and TOLERATION_SECONDS not in notes:
        return None
    minimum = _number(notes, MINIMUM_PRIORITY, source.value + 1, where, problems)
    seconds = _number(notes, TOLERATION_SECONDS, 0, where, problems)
    return None if minimum is None or seconds is None else Tolerance(minimum, float(seconds))


def _number(notes: Mapping[str, str], name: str, default: int, where: str, problems: Problems) -> int | None:
    text = notes.get(name)
    if text is None:
        return default
    value = int(text) if _WHOLE.fullmatch(text) else None
    if value is None or not -(2**63) <= value < 2**63:
        said = f"{printable(text, 40)!r} is no whole number; pods of this class tolerate nothing"
        problems.warning(where, f"metadata.annotations.{name}", said)
        return None
    return value
