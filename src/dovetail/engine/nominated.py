"""Nodes that pods of other schedulers were promised after a preemption: held for them until they are bound or gone.

As kube-scheduler does (RunFilterPluginsWithNominatedPods): they count for pods of the same or lower priority, and pods
that come before them do not see them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dovetail.engine.ledger import Ledger
from dovetail.model.decision import Share
from dovetail.model.pod import Pod


class Nominated:
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._promised: dict[str, tuple[Pod, str, tuple[Share, ...]]] = {}  # uid -> pod, node, cards

    def __len__(self) -> int:
        return len(self._promised)

    def promise(self, pod: Pod, node: str, shares: tuple[Share, ...]) -> None:
        """Hold the node for the pod; an older promise to it is forgotten."""
        self.forget(pod.uid)
        self._promised[pod.uid] = (pod, node, shares)
        self._ledger.book_observed(pod, node, shares, assumed=True)

    def forget(self, uid: str) -> None:
        if self._promised.pop(uid, None) is not None:
            self._ledger.release(uid)

    @contextmanager
    def aside(self, priority: int) -> Iterator[None]:
        """Without what was promised to pods that come after this priority."""
        lower = [uid for uid, (pod, _, _) in self._promised.items() if pod.priority < priority]
        self._ledger.release_all(lower)
        try:
            yield
        finally:
            for uid in lower:
                self._ledger.book_observed(*self._promised[uid], assumed=True)
