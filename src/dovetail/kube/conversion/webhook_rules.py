"""Which pods with GPUs HAMi's webhook denies, whatever they ask for (HAMi v2.10 pkg/scheduler/webhook.go)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from dovetail.kube.objects import core as objects
from dovetail.kube.objects.problems import printable


class Denial(NamedTuple):
    """A field of a pod with GPUs for which the webhook denies the pod, and what to write instead."""

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def privileged_containers(spec: objects.PodSpec) -> Iterator[tuple[str, str]]:
    """Path below the spec, and name, of each container that is privileged."""
    for kind, containers in (("initContainers", spec.init_containers), ("containers", spec.containers)):
        for number, one in enumerate(containers):
            if one.security_context is not None and one.security_context.privileged:
                yield f"{kind}[{number}]", one.name


def denials(spec: objects.PodSpec, path: str = "spec") -> list[Denial]:
    """What the webhook denies in a pod with GPUs. `path`: the spec's."""
    found = [
        Denial(
            f"{path}.{at}.securityContext.privileged",
            f"container {printable(name)} is privileged, so it sees all GPUs of its node, whatever it asks for; remove"
            " privileged, or the GPU resources",
        )
        for at, name in privileged_containers(spec)
    ]
    if spec.node_name:
        found.append(
            Denial(
                f"{path}.nodeName",
                "pod has node assigned, so no scheduler can choose its GPUs; write nodeSelector:"
                f" {{kubernetes.io/hostname: {printable(spec.node_name)}}} instead",
            )
        )
    return found
