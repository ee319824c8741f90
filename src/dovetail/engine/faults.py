"""Objects on which the engine raised an exception are taken out, and the ledger is repaired for the others.

If `Faults.tell` is None (simulator, plan, tests), the exception is raised instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from dovetail.engine.kernel.book import free_pod
from dovetail.engine.kernel.state import FREE, POD_ROW, POD_STATE
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.queue import WaitingRoom
from dovetail.model.node import Node
from dovetail.model.pod import Group, Pod, RunningPod

Subject = Group | RunningPod | Node


class Faults:
    """Takes groups, running pods and nodes out after an exception."""

    def __init__(self, ledger: Ledger, waiting: WaitingRoom) -> None:
        self._ledger, self._waiting = ledger, waiting
        self.tell: Callable[[Subject, Exception], None] | None = None

    def group(self, group: Group, error: Exception) -> bool:
        """Remove the group from the waiting room and release its pods. False: the caller must raise."""
        if self.tell is None:
            return False
        self._waiting.remove(group.name)
        mend(self._ledger, [pod.uid for pod in group.pods])
        self.tell(group, error)
        return True

    def running(self, running: RunningPod, error: Exception) -> bool:
        """Charge what the pod holds, as far as that can be booked. False: the caller must raise."""
        if self.tell is None:
            return False
        ledger = self._ledger
        mend(ledger, (running.pod.uid,))
        for less in simplified(running):
            try:
                ledger.book_observed(less.pod, less.node, less.shares or (), assumed=less.shares is None)
                break
            except Exception:
                mend(ledger, (running.pod.uid,))
        self.tell(running, error)
        return True

    def node(self, node: Node, before: Node | None, error: Exception) -> bool:
        """Close the node for new pods; its pods keep what they hold. False: the caller must raise."""
        if self.tell is None:
            return False
        ledger = self._ledger
        for known in (before or Node(node.name), Node(node.name)):
            try:
                ledger.close_node(known)
                break
            except Exception as second:
                error = second
        mend(ledger, ())
        self.tell(node, error)
        return True


def simplified(running: RunningPod) -> Iterator[RunningPod]:
    """The pod with fewer and fewer fields that may be wrong: at last only its name and the node."""
    pod = running.pod
    plain = Pod(pod.namespace, pod.name, pod.uid, owner=pod.owner, scheduler=pod.scheduler, group=pod.group)
    asking = replace(plain, resources=pod.resources, containers=pod.containers)
    yield RunningPod(asking, running.node, running.shares)
    yield RunningPod(replace(plain, resources=pod.resources), running.node, running.shares)
    yield RunningPod(replace(plain, resources=pod.resources), running.node, ())
    yield RunningPod(Pod(pod.namespace, pod.name, pod.uid), running.node, ())


def mend(ledger: Ledger, uids: Sequence[str]) -> None:
    """Release these pods after an exception, and free every slot that belongs to no pod.

    Rows with a booking that failed halfway are written again from their nodes and from what their pods hold.
    """
    for uid in uids:
        with suppress(Exception):
            ledger.release(uid)
    ledger.pods.drop(uids)
    taken = np.flatnonzero(ledger.book.pod[:, POD_STATE] != FREE)
    owned = np.fromiter(ledger.pods.slot_of.values(), dtype=np.int64, count=len(ledger.pods))
    lost = np.setdiff1d(taken, owned)
    rows = {int(row) for row in ledger.book.pod[lost, POD_ROW]}
    for slot in lost.tolist():
        free_pod(ledger.state(), slot)
    for row in sorted(rows):
        ledger.rewrite(row)
