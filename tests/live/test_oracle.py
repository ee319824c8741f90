"""The same clusters and pods put to kube-scheduler and to us: the feasible nodes must be the same at every step.

And so must be the choice where preferences decide, up to ties: resources are not scored, on either side.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

import numpy as np
import pytest

from dovetail.engine.scheduler import Scheduler
from dovetail.engine.why.explain import verdicts
from dovetail.kube.conversion.nodes import node_from
from dovetail.kube.conversion.owners import maker
from dovetail.kube.conversion.requests import Template, pod_from
from dovetail.kube.conversion.settings import Settings
from dovetail.kube.conversion.volumes import volume_fact
from dovetail.kube.files.decode import Found, convert
from dovetail.kube.objects import core as objects
from dovetail.kube.objects.problems import Problems
from dovetail.kube.objects.volumes import VOLUME_KINDS
from dovetail.model.events import (
    NamespaceChanged,
    NodeChanged,
    PodGone,
    PodNominated,
    PodObserved,
    VolumesChanged,
)
from dovetail.model.pod import DEFAULT_PROFILE, Group, Pod, PreferenceWeights, RunningPod
from dovetail.model.reason import Reason, name
from dovetail.model.rules import Requirement
from tests.live.oracle import Oracle, Outcome, oracle
from tests.live.oracle_cases import RANKS, THEMES, Case, Object, case
from tools.controlplane.client import Client
from tools.controlplane.plane import ControlPlane

CASES = int(os.environ.get("DOVETAIL_ORACLE_CASES", "500"))
FIRST = int(os.environ.get("DOVETAIL_ORACLE_FIRST", "1"))
RULES_OF = (1, 36)  # docs/live.md

# Each of these must have said no and yes often enough to mean something.
RULES: dict[Reason, Callable[[Pod], bool]] = {
    Reason.NODE_UNSCHEDULABLE: lambda pod: True,
    Reason.TAINT: lambda pod: True,
    Reason.NODE_SELECTOR: lambda pod: bool(pod.node_rules.selector),
    Reason.NODE_AFFINITY: lambda pod: pod.node_rules.affinity is not None,
    Reason.HOST_PORT: lambda pod: bool(pod.relations.ports),
    Reason.POD_AFFINITY: lambda pod: bool(pod.relations.affinity),
    Reason.POD_ANTI_AFFINITY: lambda pod: bool(pod.relations.anti_affinity),
    Reason.OTHERS_ANTI_AFFINITY: lambda pod: True,
    Reason.SPREAD: lambda pod: any(one.hard for one in pod.relations.spread),
    Reason.SPREAD_LABEL: lambda pod: any(one.hard for one in pod.relations.spread),
    Reason.CPU: lambda pod: pod.resources.get("cpu", 0) > 0,
    Reason.MEMORY: lambda pod: pod.resources.get("memory", 0) > 0,
    Reason.STORAGE: lambda pod: pod.resources.get("ephemeral-storage", 0) > 0,
    Reason.EXTENDED: lambda pod: "example.com/dongle" in pod.resources,
    Reason.PODS: lambda pod: True,
    Reason.VOLUME_NODE: lambda pod: bool(pod.relations.claims),
    Reason.VOLUME_ZONE: lambda pod: bool(pod.relations.claims),
    Reason.CLAIM_MISSING: lambda pod: bool(pod.relations.claims),
    Reason.CLAIM_IN_USE: lambda pod: bool(pod.relations.claims),
    Reason.SCHEDULING_GATED: lambda pod: True,
}
PARTS = {
    part: replace(PreferenceWeights(0, 0, 0, 0, 0), **{part: 1}) for part in PreferenceWeights.__dataclass_fields__
}
# What a pod finds on a node that another is nominated to; and whether one that is nominated itself gets its node.
NOMINATED = ("kept for it", "room for both", "outranked", "needed there", "own taken", "own not")


class Mirror:
    """Our side: the same API objects, decoded and put to the engine."""

    def __init__(self, facts: list[Object], namespaces: dict[str, dict[str, str]], settings: Settings) -> None:
        self.problems, self.settings = Problems(), settings
        self.scheduler = Scheduler(mode="interpreted")
        for space, labels in namespaces.items():
            self.scheduler.handle(NamespaceChanged(0.0, space, labels))
        read = (volume_fact(self._found(item, VOLUME_KINDS["", item["kind"]]), self.problems) for item in facts)
        self.scheduler.handle(VolumesChanged(0.0, tuple(fact for fact in read if fact is not None)))

    def _found(self, item: Object, kind: type) -> Found:
        meta = item["metadata"]
        value = convert(item, kind, meta["name"], self.problems)
        return Found(meta["name"], item["kind"], "", meta.get("namespace", ""), meta["name"], value)

    def put_node(self, item: Object) -> None:
        node = node_from(self._found(item, objects.Node), self.settings.vendors, self.problems)
        self.scheduler.handle(NodeChanged(0.0, node))

    def read(self, item: Object) -> Pod:
        source: objects.Pod = self._found(item, objects.Pod).value
        meta = source.metadata
        template = Template(meta.name, "spec", meta.namespace, meta.name, meta, source.spec, source.status)
        read = pod_from(template, self.settings, self.problems)
        return replace(read, uid=meta.uid, maker=maker(meta, meta.namespace))

    def put_pod(self, item: Object) -> None:
        running = RunningPod(replace(self.read(item), refusal=None), item["spec"]["nodeName"], ())
        self.scheduler.handle(PodObserved(0.0, running))

    def nominate(self, item: Object, node: str) -> None:
        self.scheduler.handle(PodNominated(0.0, self.read(item), node))

    def reason_beside(self, pod: Pod, node: str) -> Reason:
        """What the node would say if those who are nominated to it, and come before the pod, were there already."""
        nominated = self.scheduler.nominated
        with nominated.booked(nominated.before(pod).get(self.scheduler.ledger.row_of[node], ())):
            return self.reasons(pod)[node]

    def drop_pod(self, item: Object) -> None:
        self.scheduler.handle(PodGone(0.0, item["metadata"]["uid"]))

    def reasons(self, pod: Pod) -> dict[str, Reason]:
        """By node 0 or why not, whatever the reason."""
        whole = pod.refusal.reason if pod.refusal is not None else self.scheduler.related.refusal(pod)
        return {verdict.node: whole or verdict.reason for verdict in verdicts(self.scheduler, pod)}

    def points(self, pod: Pod, feasible: frozenset[str], weights: PreferenceWeights) -> dict[str, int]:
        rows = self.scheduler.ledger.row_of
        flags = np.zeros(len(rows), dtype=np.bool_)
        flags[[rows[node] for node in feasible]] = True
        found = self.scheduler.related.preferred.points(pod, flags, weights)
        return {node: int(found[rows[node]]) for node in sorted(feasible)}

    def choice(self, pod: Pod) -> str | None:
        """What we would do, and leave no trace of."""
        with self.scheduler.ledger.transaction():
            return self.scheduler.place([Group(pod.key, (pod,))])[0].node


@dataclass
class Tally:
    steps: int = 0
    refused: Counter[Reason] = field(default_factory=Counter)
    allowed: Counter[Reason] = field(default_factory=Counter)
    decided: Counter[str] = field(default_factory=Counter)  # a preference told feasible nodes apart
    unmoved: Counter[str] = field(default_factory=Counter)
    themes: Counter[tuple[str, bool]] = field(default_factory=Counter)  # (theme, feasible) -> nodes
    nominated: Counter[str] = field(default_factory=Counter)
    kept: Counter[Reason] = field(default_factory=Counter)  # why a node that is kept for another is not to be had
    chosen: int = 0  # choices among several nodes of different worth
    wrong: list[str] = field(default_factory=list)

    def count(self, pod: Pod, reasons: dict[str, Reason], themes: tuple[str, ...]) -> None:
        self.steps += 1
        self.themes.update((theme, reason is Reason.OK) for theme in themes for reason in reasons.values())
        self.refused.update(reasons.values())
        fits = sum(reason is Reason.OK for reason in reasons.values())
        for rule, has in RULES.items():
            if has(pod):
                self.allowed[rule] += fits

    def table(self) -> str:
        lines = [f"{self.steps} pods placed, {self.chosen} choices between nodes of different worth"]
        lines += [f"  {name(rule):32} no {self.refused[rule]:6}  yes {self.allowed[rule]:6}" for rule in RULES]
        lines += [f"  theme {t:26} no {self.themes[t, False]:6}  yes {self.themes[t, True]:6}" for t in sorted(THEMES)]
        said = ", ".join(f"{what} {self.nominated[what]}" for what in NOMINATED)
        kept = ", ".join(f"{name(reason)} {number}" for reason, number in self.kept.most_common())
        lines += [f"  nominated nodes: {said}", f"  kept for others by {kept}"]
        lines += [f"  {part:32} tells apart {self.decided[part]:6}  does not {self.unmoved[part]:6}" for part in PARTS]
        return "\n".join(lines)


class Trial:
    """One case on both sides."""

    settings = Settings(cpu_profile=DEFAULT_PROFILE)  # resources are not scored

    def __init__(self, kube: Oracle, given: Case, namespaces: dict[str, dict[str, str]], tally: Tally) -> None:
        self.kube, self.case, self.tally = kube, given, tally
        self.ours = Mirror(kube.facts, namespaces, self.settings)
        self.there: list[Object] = []
        self.nominated: dict[str, tuple[Object, str]] = {}  # name -> pod, node

    def run(self) -> None:
        for node in self.kube.put_nodes(self.case.nodes):
            self.ours.put_node(node)
        for pod in self.case.running:
            key = pod["metadata"]["name"]
            made = self.kube.put_running(pod, self.case.resized.get(key), key in self.case.leaving)
            self.ours.put_pod(made)
            self.there.append(made)
        for pod, where in self.case.nominated:
            made = self.kube.create(pod)
            self.there.append(made)
            self.nominate(made, where)
        chance = Random(self.case.seed)
        placed: list[Object] = []
        for pod in self.case.pods:
            bound = self.step(pod)
            placed += [bound] if bound is not None else []
            if placed and chance.random() < self.case.leaves_early:
                gone = placed.pop(chance.randrange(len(placed)))
                self.kube.remove(gone)
                self.ours.drop_pod(gone)
            if self.nominated and chance.random() < self.case.renominated:
                pod, _ = self.nominated[chance.choice(sorted(self.nominated))]
                self.nominate(pod, chance.choice(["", *(node["metadata"]["name"] for node in self.case.nodes)]))
        self.kube.clear(self.there + placed)

    def nominate(self, pod: Object, node: str) -> None:
        self.kube.nominate(pod, node)
        self.ours.nominate(pod, node)
        self.nominated[pod["metadata"]["name"]] = (pod, node)

    def step(self, given: Object) -> Object | None:
        own = self.case.own.get(given["metadata"]["name"], "")
        made = self.kube.create_nominated(given, own) if own else self.kube.create(given)
        if own:
            self.ours.nominate(made, own)
        pod = self.ours.read(made)
        reasons = self.ours.reasons(pod)
        theirs, seen = self.kube.outcome(made)
        self.tally.count(pod, reasons, self.case.themes)
        if self.nominated:
            self.count_nominated(pod, reasons, self.tally.nominated)
        feasible = frozenset(node for node, reason in reasons.items() if reason is Reason.OK)
        if own:
            self.tally.nominated["own taken" if own in feasible else "own not"] += 1
            feasible = frozenset({own}) if own in feasible else feasible  # asked first, and then nobody else is
        if feasible != theirs.feasible:
            self.blame(made, f"feasible: ours {reasons}, theirs {sorted(theirs.feasible)} ({theirs.reason})")
        elif theirs.node is not None:
            self.compare_choice(made, pod, theirs)
        if theirs.node is None:
            self.ours.drop_pod(made)
            return None
        self.ours.put_pod(seen)
        return seen

    def count_nominated(self, pod: Pod, reasons: dict[str, Reason], count: Counter[str]) -> None:
        """By node: what it says; what it would say were nobody nominated; or were all, whatever their priority."""
        alone = self.ours.reasons(replace(pod, priority=max(RANKS.values()) + 1))
        against_all = self.ours.reasons(replace(pod, priority=-1))
        held = {node for other, node in self.nominated.values() if other["spec"]["priority"] >= pod.priority}
        for node in reasons.keys() & {node for _, node in self.nominated.values()}:
            fits = reasons[node] is Reason.OK
            if alone[node] is Reason.OK and not fits:
                count["kept for it"] += 1
                self.tally.kept[reasons[node]] += 1
            elif fits and against_all[node] is not Reason.OK:
                count["outranked"] += 1
            elif fits and node in held:
                count["room for both"] += 1
            elif alone[node] is Reason.POD_AFFINITY and self.ours.reason_beside(pod, node) is Reason.OK:
                count["needed there"] += 1

    def worth(self, pod: Pod, feasible: frozenset[str]) -> dict[str, int]:
        """By node what kube-scheduler's scores add up to."""
        return self.ours.points(pod, feasible, PreferenceWeights())

    def compare_choice(self, made: Object, pod: Pod, theirs: Outcome) -> None:
        points = self.worth(pod, theirs.feasible)
        best = {node for node, worth in points.items() if worth == max(points.values())}
        ours = self.ours.choice(pod)
        if theirs.node not in best or ours not in best:
            self.blame(made, f"choice: {points}; ours {ours}, theirs {theirs.node}")
        self.tally.chosen += len(best) < len(points)
        for part, weights in PARTS.items():
            differ = len(set(self.ours.points(pod, theirs.feasible, weights).values())) > 1
            (self.tally.decided if differ else self.tally.unmoved)[part] += 1

    def blame(self, made: Object, what: str) -> None:
        where = f"case {self.case.seed} {self.case.themes} pod {made['metadata']['name']}"
        self.tally.wrong.append(f"{where}: {what}; spec {made['spec']}")


@pytest.mark.slow
def test_feasible_nodes_and_choices_are_kube_schedulers(
    plane: ControlPlane, api: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    if plane.version < RULES_OF:
        pytest.skip("our rules are those of kube-scheduler 1.36; older ones judge resize and sidecars' ports otherwise")
    tally = Tally()
    with oracle(plane, api) as kube:
        namespaces = kube.namespaces()
        for seed in range(FIRST, FIRST + CASES):
            Trial(kube, case(seed), namespaces, tally).run()
    with capsys.disabled():
        print(f"\n{CASES} cases, {tally.table()}")
    assert not tally.wrong, "\n\n".join([f"{len(tally.wrong)} differ", *tally.wrong[:5]])
    if CASES >= 500:
        assert all(tally.refused[rule] and tally.allowed[rule] for rule in RULES)
        assert all(tally.themes[theme, fits] for theme in THEMES for fits in (True, False))
        assert all(tally.nominated[what] for what in NOMINATED)
        assert all(tally.decided[part] and tally.unmoved[part] for part in PARTS)


def test_a_label_with_an_underscore_is_no_number() -> None:
    """Found by the cases above, whose nodes had such a label at first."""
    assert not Requirement("gen", "Gt", ("2",)).matches({"gen": "1_0"})
