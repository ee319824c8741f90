"""Why a node was chosen or refused: recomputed on request, with the functions that decide."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dovetail.engine.kernel.build import Lens
from dovetail.engine.kernel.fit import ask_refusal, node_shortage, vendor_cards
from dovetail.engine.ledger.intern import NO_OWNER
from dovetail.engine.ledger.requests import unlimited
from dovetail.engine.scheduler import Scheduler
from dovetail.engine.why.biggest import beyond_all
from dovetail.engine.why.tally import Tally, first_without_cards, tally_ask
from dovetail.engine.why.verdict import Verdict, counted, lacking, nearest, refusing
from dovetail.engine.wording import Fact, Lacking, affinity_fact, amount_of, relation_fact, resource_title
from dovetail.model.decision import Decision
from dovetail.model.device import type_matches
from dovetail.model.node import Node
from dovetail.model.pod import Pod
from dovetail.model.reason import Reason, hami_name, sentence
from dovetail.policies.rows import ASK_COUNT, ASK_VENDOR, DRAW, FIRST_ASK, LAST_ASK, POSTPONED, Ints
from dovetail.policies.table import NODE_POLICIES


@dataclass(frozen=True, slots=True)
class Explanation:
    pod: Pod
    decision: Decision | None
    verdicts: tuple[Verdict, ...]  # nodes that fit first, best first; then the others by name
    counted: tuple[tuple[str, int], ...]  # (what is lacking, on how many nodes), most frequent first
    lacking: tuple[Lacking, ...]  # the same by kind, the nearest miss first
    nearest: Verdict | None  # the nearest miss if no node fits
    beyond: tuple[str, ...] = ()  # what exceeds everything in the cluster


def verdicts(scheduler: Scheduler, pod: Pod) -> tuple[Verdict, ...]:
    """Every node's verdict with the ledger as it is now, by name; for a DaemonSet's pod only its node's."""
    return Look(scheduler, pod).all_nodes()


def fits_on(scheduler: Scheduler, pod: Pod, nodes: Iterable[str]) -> bool:
    """Whether one of these nodes would take the pod now; compiles nothing."""
    ledger, look = scheduler.ledger, Look(scheduler, pod)
    rows = (ledger.row_of[node] for node in nodes)
    return any(look.node(ledger.nodes[row], row).reason == Reason.OK for row in rows)


def explain(scheduler: Scheduler, pod: Pod, decision: Decision | None = None) -> Explanation:
    """The explanation for one pod that is not in the ledger (yet)."""
    found = with_preferences(scheduler, pod, verdicts(scheduler, pod))
    policy = NODE_POLICIES[scheduler.requests.in_force(pod.profile).node]
    sign = -1 if policy.lowest_wins else 1
    ranked = sorted(found, key=lambda v: (v.reason != Reason.OK, -sign * (v.score or 0.0), v.node))
    miss = nearest(found)
    beyond = beyond_all(scheduler, pod) if miss is not None else ()
    return Explanation(pod, decision, tuple(ranked), counted(refusing(found)), lacking(found), miss, beyond)


def with_preferences(scheduler: Scheduler, pod: Pod, found: tuple[Verdict, ...]) -> tuple[Verdict, ...]:
    """The verdicts with scores that include the pod's preferences, if its policy counts in the same points."""
    policy = NODE_POLICIES[scheduler.requests.in_force(pod.profile).node]
    counts = pod.profile.policy_weight and policy.in_points
    if not counts or not scheduler.related.preferred.concerns(pod):
        return found
    row_of, size = scheduler.ledger.row_of, len(scheduler.ledger.nodes)
    scores, fits = np.zeros(size), np.zeros(size, dtype=np.bool_)
    for one in found:
        scores[row_of[one.node]], fits[row_of[one.node]] = one.score or 0.0, one.reason == Reason.OK
    worth = scheduler.related.worth(pod, scores, fits)
    return tuple(
        replace(one, score=float(worth[row_of[one.node]])) if one.reason == Reason.OK else one for one in found
    )


def within_queue(scheduler: Scheduler, pod: Pod) -> Pod:
    """The pod as it is placed: without the GPU models of which its queue may not have as many as it asks for."""
    queues = scheduler.placer.queues
    return queues.within(pod) if queues.active else pod


class Look:
    """Checks one pod against nodes. Valid until the ledger changes."""

    def __init__(self, scheduler: Scheduler, pod: Pod) -> None:
        self._as_asked, pod = pod, within_queue(scheduler, pod)
        self.scheduler, self.pod, self.ledger = scheduler, pod, scheduler.ledger
        profile = scheduler.requests.in_force(pod.profile)
        self.policy = policy = NODE_POLICIES[profile.node]
        peers = self.ledger.peers(self.ledger.owner(pod)) if policy.counts_owner else NO_OWNER
        self.shape = scheduler.intern.shape(pod, peers)
        self.ledger.make_room(0, sum(ask.count for container in pod.containers for ask in container.asks))
        self.lens: Lens = scheduler.lens(profile)
        self.state = self.ledger.state()
        self.draw = scheduler.requests.draw(pod.key)
        self.args: Ints = scheduler.requests.arguments(profile.node)
        self.args[DRAW] = self.draw
        vendors = scheduler.intern.vendors
        quotas = scheduler.quotas
        self.quota = quotas.allowance(pod, vendors) if quotas.apply_to(pod) else unlimited(vendors)
        related = scheduler.related
        self.refusals = related.refusals(pod) if related.is_confined or related.restricts(pod) else None

    @cached_property
    def device_limits(self) -> str:
        """The same for all nodes, and slow if many pods share the quota, hence cached."""
        return self.scheduler.quotas.device_limits(self.pod)

    @cached_property
    def model_limits(self) -> dict[str, str]:
        """GPU model -> why the pod's queue may not have as many as it asks for."""
        queues = self.scheduler.placer.queues
        return queues.model_limits(self._as_asked) if queues.active else {}

    def rows(self) -> list[int]:
        """Rows of the nodes to check, by name: all active nodes; for a DaemonSet's pod its own node."""
        rows = {name: row for name, row in sorted(self.ledger.row_of.items()) if self.ledger.is_active(row)}
        own = self.pod.own_node
        return [rows[own]] if own in rows else list(rows.values())

    def all_nodes(self) -> tuple[Verdict, ...]:
        return self._normalised(tuple(self.node(self.ledger.nodes[row], row) for row in self.rows()))

    def _normalised(self, found: tuple[Verdict, ...]) -> tuple[Verdict, ...]:
        """The verdicts with final scores, if the policy makes them from all nodes that fit."""
        normalise = self.policy.normalise
        fitting = [n for n, one in enumerate(found) if one.reason == Reason.OK]
        if normalise is None or not fitting:
            return found
        candidates = np.array([self.ledger.row_of[found[n].node] for n in fitting], dtype=np.int64)
        points = np.array([found[n].score for n in fitting], dtype=np.float64)
        normalise(self.state.rows, candidates, len(fitting), self.state.wants, self.shape, self.args, points)
        final = list(found)
        for n, score in zip(fitting, points.tolist(), strict=True):
            final[n] = replace(final[n], score=score)
        return tuple(final)

    def node(self, node: Node, row: int) -> Verdict:
        broken = tuple(self.pod.node_rules.refusals(node.static))
        related = self._related(row)
        if broken or related:
            reason = broken[0] if broken else related
            one_rule = len(broken) + bool(related) == 1 and reason is not Reason.OTHER_DOMAIN
            one_rule = one_rule and self._has_room(node, row)
            return Verdict(node.name, reason, self._rule(node, row, reason), hami_name(reason), one_rule=one_rule)
        return self._room(node, row)

    def _related(self, row: int) -> Reason:
        """The reason of rules about other pods and volumes for the row."""
        return Reason(int(self.refusals[row])) if self.refusals is not None else Reason.OK

    def _has_room(self, node: Node, row: int) -> bool:
        return self._room(node, row).reason == Reason.OK

    def _room(self, node: Node, row: int) -> Verdict:
        """Whether the node has what the pod asks for, without rules."""
        rows, wants = self.state.rows, self.state.wants
        if short := node_shortage(rows, wants, row, self.shape):
            return self._short(node, row, Reason(short))
        # The first container that fails gives the reason, as in HAMi: too few cards on the node, or no room on them.
        failed = first_without_cards(self.state, self.lens, row, self.shape, self.quota, self.draw)
        for a in range(wants.shape[self.shape, FIRST_ASK], wants.shape[self.shape, LAST_ASK]):
            if refused := ask_refusal(rows, wants, row, a):
                return self._whole(node, row, a, Reason(refused))
            if a == failed:
                devices = self.ledger.devices(row)
                return self._by_cards(node, tally_ask(self.state, self.lens, row, self.shape, a, self.draw, devices))
        score = float(self.lens.points(self.state, row, self.shape, self.args))
        if score <= POSTPONED:
            fact = Fact(sentence(Reason.POSTPONED))
            return Verdict(node.name, Reason.POSTPONED, fact, hami_name(Reason.POSTPONED))
        return Verdict(node.name, Reason.OK, Fact(sentence(Reason.OK)), score=score)

    def _rule(self, node: Node, row: int, reason: Reason) -> Fact:
        """The broken rule, as far as it can be named."""
        rules = self.pod.node_rules
        if reason == Reason.NODE_NAME and rules.node_name not in self.scheduler.ledger.row_of:
            return Fact(f"the pod names node {rules.node_name}, which does not exist", everywhere=True)
        if reason == Reason.NODE_NAME:
            return Fact(f"the pod names node {rules.node_name}")
        if reason == Reason.TAINT and (taint := rules.untolerated(node.static)):
            return Fact(f"taint {taint} not tolerated")
        if reason == Reason.NODE_SELECTOR:
            wrong = [(k, v) for k, v in rules.selector if node.labels.get(k) != v]
            have = [f"{k}={node.labels[k]}" if k in node.labels else f"no {k}" for k, _ in wrong]
            return Fact(f"nodeSelector {', '.join(f'{k}={v}' for k, v in wrong)} does not match", have=", ".join(have))
        if reason == Reason.NODE_AFFINITY:
            return affinity_fact(rules, node)
        return self.scheduler.related.volumes.fact(self.pod, row, reason) or relation_fact(self.pod.relations, reason)

    def _whole(self, node: Node, row: int, a: int, reason: Reason) -> Verdict:
        """The verdict on an ask before a look at single cards."""
        rows, wants, fact, missing = self.state.rows, self.state.wants, Fact(sentence(reason)), float("inf")
        if reason == Reason.NODE_UNSETTLED:
            return Verdict(node.name, reason, Fact(node.unsettled), hami_name(reason))
        vendors = [one.vendor for container in self.pod.containers for one in container.asks]
        vendor = int(wants.ask[a, ASK_VENDOR])
        if reason == Reason.UNREGISTERED and len(set(vendors)) > 1:  # name the missing one
            names = {self.scheduler.intern.vendors(name): name for name in vendors}
            fact = Fact(f"node has no {names[vendor]} device")
        if reason == Reason.TOO_FEW_CARDS:
            asked, there = int(wants.ask[a, ASK_COUNT]), vendor_cards(rows, row, vendor)
            fact, missing = Fact(f"one container asks for {asked} GPUs", have=f"{there}"), (asked - there) / asked
        return Verdict(node.name, reason, fact, hami_name(reason), shortfall=missing)

    def _short(self, node: Node, row: int, reason: Reason) -> Verdict:
        """The resource that is short, and by how much."""
        rows, wants, intern = self.state.rows, self.state.wants, self.scheduler.intern
        if wants.need[self.shape, intern.nowhere] > 0:
            name = next(
                name for name, amount in self.pod.resources.items() if amount and intern.columns.known(name) is None
            )
            fact = Fact(f"{resource_title(name)} short", f"by {amount_of(name, self.pod.resources[name])}")
            return Verdict(node.name, reason, fact, hami_name(reason), shortfall=1.0)
        for column, name in enumerate(intern.columns):
            need = int(wants.need[self.shape, column])
            missing = int(rows.used[row, column]) + need - int(rows.cap[row, column])
            if need > 0 and rows.enforced[column] and missing > 0:
                fact = Fact(f"{resource_title(name)} short", f"by {amount_of(name, missing)}")
                return Verdict(node.name, reason, fact, hami_name(reason), shortfall=missing / need)
        raise AssertionError("a shortage without a resource")

    def _by_cards(self, node: Node, found: Tally) -> Verdict:
        fact = found.fact
        if found.reason == Reason.CARD_QUOTA:
            fact = replace(fact, what=f"{fact.what}: {self.device_limits}")
        if found.reason == Reason.CARD_TYPE:
            models = dict.fromkeys(device.model for device in node.devices)
            limits = [text for model, text in self.model_limits.items() if any(type_matches(m, model) for m in models)]
            fact = replace(fact, what=limits[0]) if limits else replace(fact, have=", ".join(models))
        return Verdict(node.name, found.reason, fact, found.hami, None, found.cards, found.shortfall)
