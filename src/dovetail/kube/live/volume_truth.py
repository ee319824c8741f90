"""The state of the cluster that the binding of volumes asks for."""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.kube.live.mirror import Mirror
from dovetail.kube.live.volume_mirror import VolumeMirror


class VolumeTruth:
    """The state of the cluster that a pod's volumes depend on."""

    def __init__(self, mirror: Mirror, volumes: VolumeMirror) -> None:
        self._mirror, self._volumes = mirror, volumes
        self.claim, self.volume, self.changed = volumes.claim, volumes.volume, volumes.changed

    def node_labels(self, name: str) -> Mapping[str, str] | None:
        node = self._mirror.nodes.get(name)
        return node.labels if node is not None else None

    def has_pod(self, uid: str) -> bool:
        return self._mirror.known.waits(uid) or self._mirror.known.holds(uid)
