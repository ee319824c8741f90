"""Why nodes are not for a pod, in kube-scheduler's two maps: short texts that do not change from try to try.

kube-scheduler counts equal texts ("3 GPU memory short"), and writes the sum into the pod's condition. A text that
varied would change the condition at each try, and each change of a pod makes kube-scheduler try it again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from dovetail.engine.kernel.state import INACTIVE
from dovetail.engine.scheduler import Scheduler
from dovetail.engine.why.explain import within_queue
from dovetail.engine.why.refused import asks_nodes
from dovetail.kube.live.words import cut
from dovetail.model.pod import Group, Pod
from dovetail.model.reason import Reason, sentence

MAX_TEXT_BYTES = 200
UNKNOWN_NODE, NO_NEW_PODS = "node is not known to Dovetail yet", "node takes no new pods"
# The end of other pods can remove these reasons; all others stay whatever is stopped.
ENDED_BY_PREEMPTION = frozenset(
    {
        Reason.HOST_PORT,
        Reason.POD_ANTI_AFFINITY,
        Reason.OTHERS_ANTI_AFFINITY,
        Reason.SPREAD,
        Reason.CPU,
        Reason.MEMORY,
        Reason.STORAGE,
        Reason.PODS,
        Reason.EXTENDED,
        Reason.VOLUME_LIMIT,
        Reason.CARD_SLOTS,
        Reason.CARD_IN_USE,
        Reason.CARD_QUOTA,
        Reason.CARD_MEMORY,
        Reason.CARD_COMPUTE,
        Reason.CARD_COMPUTE_EXHAUSTED,
        Reason.CARDS_TOO_FEW_FIT,
        Reason.POSTPONED,
        Reason.GROUP_NOT_PLACED,
    }
)


class NodeRefusals(NamedTuple):
    failed: dict[str, str]
    unresolvable: dict[str, str]


def same_for_all(text: str, offered: Iterable[str]) -> NodeRefusals:
    return NodeRefusals({}, dict.fromkeys(offered, cut(text.rstrip("."), MAX_TEXT_BYTES)))


def refusals(scheduler: Scheduler, group: Group, pod: Pod, offered: Iterable[str]) -> NodeRefusals:
    """Why each of these nodes is not for the pod, as the ledger is now. `group`: the pods that wait with it."""
    reason = scheduler.reason(scheduler.members.current(group), pod)
    if pod.refusal is not None or not asks_nodes(reason):
        return same_for_all(pod.refusal.message if pod.refusal is not None else sentence(reason), offered)
    codes, row_of = scheduler.related.codes(within_queue(scheduler, pod)), scheduler.ledger.row_of
    found = NodeRefusals({}, {})
    for name in offered:
        row = row_of.get(name)
        code = int(codes[row]) if row is not None else INACTIVE
        if code == INACTIVE:
            found.unresolvable[name] = UNKNOWN_NODE if row is None else NO_NEW_PODS
            continue
        why = Reason(code) if code else Reason.GROUP_NOT_PLACED  # the node has room for this pod, but not its group
        where = found.failed if why in ENDED_BY_PREEMPTION else found.unresolvable
        where[name] = sentence(why)
    return found
