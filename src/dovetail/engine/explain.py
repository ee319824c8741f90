"""Why here, why not there: recomputed on request, with the functions that decide and none of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from dovetail.engine.build import Lens
from dovetail.engine.intern import NOBODY
from dovetail.engine.kernel_fit import ask_refusal, node_shortage
from dovetail.engine.quota import unlimited
from dovetail.engine.scheduler import Scheduler
from dovetail.engine.tally import CardVerdict, Tally, tally
from dovetail.engine.wording import amount_of, resource_title
from dovetail.model.decision import Decision
from dovetail.model.node import Node
from dovetail.model.pod import Pod
from dovetail.model.reason import Reason, hami_name, sentence
from dovetail.policies.rows import ASK_VENDOR, DRAW, FIRST_ASK, LAST_ASK, Ints
from dovetail.policies.table import NODE_POLICIES


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one node says to one pod."""

    node: str
    reason: Reason  # OK = it fits
    score: float | None  # in the policy's own unit
    sentence: str
    hami: str  # HAMi's wording; "" where it fits
    cards: tuple[CardVerdict, ...] = ()  # where the cards are why
    shortfall: float = float("inf")  # what is missing as a part of what is asked; inf = not a question of amount


@dataclass(frozen=True, slots=True)
class Explanation:
    pod: Pod
    decision: Decision | None
    verdicts: tuple[Verdict, ...]  # those that fit first, best first; then the others by name
    counted: tuple[tuple[str, int], ...]  # (what is lacking, on how many nodes), most first
    nearest: Verdict | None  # the node that lacks least, where none fits


def verdicts(scheduler: Scheduler, pod: Pod) -> tuple[Verdict, ...]:
    """Every node's verdict against the ledger as it is now, by name; of a daemon's pod that of its own node."""
    return _Look(scheduler, pod).all_nodes()


def fits_on(scheduler: Scheduler, pod: Pod, nodes: Iterable[str]) -> bool:
    """True where one of these nodes would take the pod now; nothing is compiled for it."""
    ledger, look = scheduler.ledger, _Look(scheduler, pod)
    rows = (ledger.row_of[node] for node in nodes)
    return any(look.node(ledger.nodes[row], row).reason == Reason.OK for row in rows)


def explain(scheduler: Scheduler, pod: Pod, decision: Decision | None = None) -> Explanation:
    """The whole picture for one pod that is not in the ledger (yet)."""
    found = verdicts(scheduler, pod)
    sign = -1 if NODE_POLICIES[pod.profile.node].lowest_wins else 1
    ranked = sorted(found, key=lambda v: (v.reason != Reason.OK, -sign * (v.score or 0.0), v.node))
    refusing = [verdict for verdict in found if verdict.reason != Reason.OK]
    nearest = None
    if refusing and len(refusing) == len(found):
        nearest = min(refusing, key=lambda v: (v.shortfall, -v.reason, v.node))
    return Explanation(pod, decision, tuple(ranked), counted(refusing), nearest)


def counted(refusing: list[Verdict]) -> tuple[tuple[str, int], ...]:
    """Equal sentences together, most frequent first."""
    numbers = Counter(verdict.sentence for verdict in refusing)
    return tuple(sorted(numbers.items(), key=lambda item: (-item[1], item[0])))


class _Look:
    """One pod held against node after node."""

    def __init__(self, scheduler: Scheduler, pod: Pod) -> None:
        self.scheduler, self.pod, self.ledger = scheduler, pod, scheduler.ledger
        policy = NODE_POLICIES[pod.profile.node]
        peers = self.ledger.peers(self.ledger.owner(pod)) if policy.counts_owner else NOBODY
        self.shape = scheduler.intern.shape(pod, peers)
        self.ledger.make_room(0, sum(ask.count for container in pod.containers for ask in container.asks))
        self.lens: Lens = scheduler.lens(pod.profile)
        self.state = self.ledger.state()
        self.draw = scheduler.requests.draw(pod.key)
        self.args: Ints = scheduler.requests.arguments(pod.profile.node)
        self.args[DRAW] = self.draw
        vendors = scheduler.intern.vendors
        quotas = scheduler.quotas
        self.quota = quotas.allowance(pod, vendors) if quotas.apply_to(pod) else unlimited(vendors)
        self.refusals = scheduler.related.refusals(pod) if scheduler.related.restricts(pod) else None

    @cached_property
    def device_limits(self) -> str:
        """The same for all nodes, and dear where many pods share the quota."""
        return self.scheduler.quotas.device_limits(self.pod)

    def all_nodes(self) -> tuple[Verdict, ...]:
        rows = {name: row for name, row in sorted(self.ledger.row_of.items()) if self.ledger.is_active(row)}
        own = self.pod.own_node
        asked = (rows[own],) if own in rows else rows.values()
        return tuple(self.node(self.ledger.nodes[row], row) for row in asked)

    def node(self, node: Node, row: int) -> Verdict:
        reason = self.pod.node_rules.refusal(node)
        if reason != Reason.OK:
            return Verdict(node.name, reason, None, self._static(node, reason), hami_name(reason))
        if self.refusals is not None and self.refusals[row]:
            reason = Reason(int(self.refusals[row]))
            return Verdict(node.name, reason, None, sentence(reason), hami_name(reason))
        rows, wants = self.state.rows, self.state.wants
        if short := node_shortage(rows, wants, row, self.shape):
            return self._short(node, row, Reason(short))
        for a in range(wants.shape[self.shape, FIRST_ASK], wants.shape[self.shape, LAST_ASK]):
            if refused := ask_refusal(rows, wants, row, a):
                reason = Reason(refused)
                return Verdict(node.name, reason, None, self._whole(a, reason), hami_name(reason))
        counted = tally(self.state, self.lens, row, self.shape, self.quota, self.draw, self.ledger.devices(row))
        if counted is not None:
            return self._by_cards(node, counted)
        score = float(self.lens.points(self.state, row, self.shape, self.args))
        return Verdict(node.name, Reason.OK, score, sentence(Reason.OK), "")

    def _static(self, node: Node, reason: Reason) -> str:
        if reason == Reason.TAINT and (taint := self.pod.node_rules.untolerated(node)):
            return f"taint {taint} not tolerated"
        if reason == Reason.NODE_SELECTOR:
            wrong = [f"{k}={v}" for k, v in self.pod.node_rules.selector if node.labels.get(k) != v]
            return f"nodeSelector {', '.join(wrong)} does not match"
        return sentence(reason)

    def _whole(self, ask: int, reason: Reason) -> str:
        """A pod may ask for cards of several vendors: which are missing?"""
        vendors = [one.vendor for container in self.pod.containers for one in container.asks]
        if reason != Reason.UNREGISTERED or len(set(vendors)) == 1:
            return sentence(reason)
        names = {self.scheduler.intern.vendors(name): name for name in vendors}
        return f"node has no {names[int(self.state.wants.ask[ask, ASK_VENDOR])]} device"

    def _short(self, node: Node, row: int, reason: Reason) -> Verdict:
        """Which resource, and by how much."""
        rows, wants = self.state.rows, self.state.wants
        for column, name in enumerate(self.scheduler.intern.columns):
            need = int(wants.need[self.shape, column])
            missing = int(rows.used[row, column]) + need - int(rows.cap[row, column])
            if need > 0 and rows.enforced[column] and missing > 0:
                text = f"{resource_title(name)} short by {amount_of(name, missing)}"
                return Verdict(node.name, reason, None, text, hami_name(reason), shortfall=missing / need)
        raise AssertionError("a shortage without a resource")

    def _by_cards(self, node: Node, found: Tally) -> Verdict:
        text = found.sentence
        if found.reason == Reason.CARD_QUOTA:
            text += f": {self.device_limits}"
        return Verdict(node.name, found.reason, None, text, found.hami, found.cards, found.shortfall)
