"""The pods that exist, as they were last reported or left by our own writes, found by uid and by namespace/name."""

from __future__ import annotations

from dovetail.kube.api.typed import is_older
from dovetail.kube.conversion.settling import Settling
from dovetail.kube.live.known import Known, Stand
from dovetail.kube.live.namespaces import Namespaces
from dovetail.kube.objects import core as objects


class KnownPods:
    """The table that the mirror of pods keeps. Only `note` and `drop` change what `settling` counts for a pod."""

    def __init__(self, settling: Settling, namespaces: Namespaces) -> None:
        self._settling, self._namespaces = settling, namespaces
        self.by_uid: dict[str, Known] = {}
        self.uid_of: dict[str, str] = {}  # namespace/name -> uid, of all pods that are not finished
        self._stamped: list[str] = []  # uids of waiting pods with a new epoch annotation

    # ---- questions about one pod --------------------------------------------------------------------------------

    def waits(self, uid: str) -> bool:
        known = self.by_uid.get(uid)
        return known is not None and known.stand is Stand.WAITS

    def rests(self, uid: str) -> bool:
        known = self.by_uid.get(uid)
        return known is not None and known.rests

    def holds(self, uid: str) -> bool:
        known = self.by_uid.get(uid)
        return known is not None and known.stand is Stand.HOLDS

    def claimed(self, uid: str) -> tuple[str, ...]:
        """Annotations in which the pod already claims cards, although no scheduler has given it any."""
        known = self.by_uid.get(uid)
        return known.claimed if known is not None else ()

    def has(self, key: str) -> bool:
        """Whether an unfinished pod of this namespace/name exists, of any scheduler."""
        return key in self.uid_of

    def may_hold(self, key: str, node: str) -> bool:
        """Whether a pod of this namespace/name is on the node, or may be put there by another scheduler."""
        uid = self.uid_of.get(key)
        known = self.by_uid.get(uid) if uid is not None else None
        if known is None:
            return uid is not None
        return known.running.node == node if known.running is not None else known.stand is not Stand.WAITS

    # ---- reports ------------------------------------------------------------------------------------------------

    def is_past(self, source: objects.Pod) -> bool:
        """Whether what is known of the pod is newer than this report."""
        known = self.by_uid.get(source.metadata.uid)
        return known is not None and is_older(source.metadata.resource_version, known.version)

    def note(self, uid: str, known: Known) -> None:
        """Replace what is known of the pod."""
        before = self.by_uid.get(uid)
        if before is not None and before.held is not None:
            self._settling.pod_gone(before.held.running.node, before.held.recorded, before.held.proves)
        if known.held is not None:
            self._settling.pod_holds(known.held.running.node, known.held.recorded, known.held.proves)
        self.by_uid[uid] = known
        self.uid_of[known.key] = uid

    def drop(self, uid: str) -> Known:
        """Remove a pod that holds nothing and needs no place any more; returns what was known of it."""
        known = self.by_uid.pop(uid)
        if known.held is not None:
            self._settling.pod_gone(known.held.running.node, known.held.recorded, known.held.proves)
        if self.uid_of.get(known.key) == uid:
            del self.uid_of[known.key]
        return known

    # ---- what the live scheduler did itself ---------------------------------------------------------------------

    def forget(self, uid: str) -> None:
        """Forget the pod after its placement failed: the next report of it counts as new."""
        known = self.by_uid.get(uid)
        if known is None or known.stand is not Stand.WAITS:
            return
        if self._namespaces.is_ending(known.pod.namespace):
            known.stand = Stand.LEFT
        else:
            known.again = True

    def rest(self, uid: str) -> None:
        """As `forget`, for a pod that a timer will offer again.

        Updates that only change its PodScheduled condition are ignored.
        """
        self.forget(uid)
        if self.waits(uid):
            self.by_uid[uid].rests = True

    def wrote(
        self, uid: str, version: str, stamp: str, condition: tuple[str, str] | None, node: str | None = None
    ) -> None:
        """Note the pod as our own write left it. Another scheduler may have written its epoch before that write.

        `condition`, `node` (the nominated one): None = the write left it as it was.
        """
        known = self.by_uid.get(uid)
        if known is not None and known.stand is Stand.WAITS and version:
            known.version = version
            known.condition = known.condition if condition is None else condition
            known.node = known.node if node is None else node
            self.note_stamp(uid, stamp)

    def note_stamp(self, uid: str, stamp: str) -> None:
        if self.by_uid[uid].stamp != stamp:
            self.by_uid[uid].stamp = stamp
            self._stamped.append(uid)

    def take_stamped(self) -> list[str]:
        """UIDs of waiting pods with a new epoch annotation since the last call."""
        taken, self._stamped = self._stamped, []
        return taken
