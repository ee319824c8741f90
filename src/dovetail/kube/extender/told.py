"""Events about pods that `filter` refused, in HAMi's words: once for each distinct text, not for each try."""

from __future__ import annotations

from collections import Counter, OrderedDict

from dovetail.kube.extender.refusals import NodeRefusals
from dovetail.kube.live.driver import Driver
from dovetail.kube.live.tell import Note
from dovetail.kube.live.words import cut
from dovetail.model.pod import Pod

MAX_REMEMBERED_PODS = 10_000


class Told:
    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._last: OrderedDict[str, str] = OrderedDict()  # uid -> the text of its last event

    def filtering_failed(self, pod: Pod, found: NodeRefusals) -> None:
        counted = Counter([*found.failed.values(), *found.unresolvable.values()])
        most_first = sorted(counted.items(), key=lambda one: (-one[1], one[0]))
        reasons = "; ".join(f"{text} on {count} node{'s' * (count != 1)}" for text, count in most_first)
        text = cut(f"no available node, {counted.total()} nodes do not meet: {reasons}")
        if self._last.get(pod.uid) == text:
            return
        self._last[pod.uid] = text
        self._last.move_to_end(pod.uid)
        if len(self._last) > MAX_REMEMBERED_PODS:
            self._last.popitem(last=False)
        self._driver.teller.note(Note(pod, "FilteringFailed", text, warning=True))
