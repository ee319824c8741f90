"""The same full nodes put to kube-scheduler and to our engine: who can preempt, on which node, and who yields.

kube-scheduler starts when all objects of many cases are there, and decides all of them. A difference is none where both
choices are equal by kube-scheduler's own criteria: it breaks such ties by the order of a map. Nor where it could have
chosen ours, had it looked at equal pods in another order; these cases are listed.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from dovetail.model.events import Bind, Evict, GroupArrived, Wait
from dovetail.policies.yielding import YIELD_BY_PRIORITY
from dovetail.whatif.situation import EngineOptions, start
from tests.kube.manifests import read
from tests.live.oracle_preemption import (
    POLITE,
    RANKS,
    THEMES,
    Object,
    Outcome,
    PreemptionCase,
    all_objects,
    criteria,
    is_other_order,
    is_tie,
    preemption_case,
)
from tools.controlplane.client import Client
from tools.controlplane.objects import condition
from tools.controlplane.plane import ControlPlane

CASES = int(os.environ.get("DOVETAIL_ORACLE_PREEMPTIONS", "320"))
FIRST = int(os.environ.get("DOVETAIL_ORACLE_FIRST", "1"))
AT_ONCE = 80  # cases in one cluster
QUIET = 2.0  # seconds without a change after which kube-scheduler has decided


class Question:
    """A case as it stands in the API server."""

    def __init__(self, case: PreemptionCase) -> None:
        self.case = case
        self.objects: list[Object] = []  # as the API server stored them, before any scheduler saw them

    def create(self, api: Client) -> None:
        case = self.case
        self.objects = [api.get("Node", node["metadata"]["name"]) for node in case.nodes]
        for pod in case.running:
            made = api.create(pod)
            began = datetime.fromtimestamp(case.started[pod["metadata"]["name"]], UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            status: Object = {"phase": "Running", "startTime": began}
            made = api.patch("Pod", made["metadata"]["name"], {"status": status}, case.namespace, part="status")
            self.objects.append({"apiVersion": "v1", "kind": "Pod", **made})
        for budget, allowed in case.budgets:
            made = api.create(budget)
            healthy = {"currentHealthy": 1 + allowed, "desiredHealthy": 1, "expectedPods": 9, "observedGeneration": 1}
            status = {"disruptionsAllowed": allowed, **healthy}
            made = api.patch(
                "PodDisruptionBudget", made["metadata"]["name"], {"status": status}, case.namespace, part="status"
            )
            self.objects.append({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", **made})
        self.objects.append(api.create(case.pod))

    def theirs(self, pods: list[Object]) -> Outcome:
        """What kube-scheduler did, by the pods of the namespace as they are now."""
        by_name = {pod["metadata"]["name"]: pod for pod in pods}
        asking = by_name.pop("preemptor")
        victims = frozenset(name for name, pod in by_name.items() if pod["metadata"].get("deletionTimestamp"))
        node = asking["status"].get("nominatedNodeName", "")
        return Outcome(asking["spec"].get("nodeName", ""), node, victims)

    def ours(self) -> Outcome:
        """What the engine does with the same objects."""
        given = read(*self.objects)
        now = time.time()
        scheduler, _ = start(given, EngineOptions(mode="interpreted", yielding=YIELD_BY_PRIORITY, now=now))
        (group,) = given.groups
        effects = scheduler.handle(GroupArrived(now, group))
        victims = frozenset(effect.pod.name for effect in effects if isinstance(effect, Evict))
        bound = next((str(effect.decision.node) for effect in effects if isinstance(effect, Bind)), "")
        node = next((effect.nominated for effect in effects if isinstance(effect, Wait)), "")
        return Outcome(bound, node if victims else "", victims)


def furnish(api: Client) -> None:
    for name, value in {**RANKS, POLITE: max(RANKS.values())}.items():
        rank = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
        api.create({**rank, "value": value, **({"preemptionPolicy": "Never"} if name == POLITE else {})})


def decided_by_kube_scheduler(plane: ControlPlane, api: Client, questions: list[Question]) -> list[Outcome]:
    """kube-scheduler's decisions. It starts when all objects are there."""
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(api.create, all_objects(one.case for one in questions)))
        list(pool.map(lambda one: one.create(api), questions))
    plane.start_scheduler({"clientConnection": {"qps": 10_000, "burst": 10_000}})
    try:
        pods = _until_quiet(api, {one.case.namespace for one in questions})
    finally:
        plane.stop_component("kube-scheduler", grace=0)
    return [one.theirs(pods[one.case.namespace]) for one in questions]


def _until_quiet(api: Client, spaces: set[str]) -> dict[str, list[Object]]:
    """The pods by namespace, once all that need a place were tried and nothing changes any more."""
    deadline, before, since = time.monotonic() + 120, "", time.monotonic()
    while time.monotonic() < deadline:
        answer = api.ask("GET", "/api/v1/pods")
        pods: dict[str, list[Object]] = {space: [] for space in spaces}
        for pod in answer["items"]:
            if pod["metadata"]["namespace"] in spaces:
                pods[pod["metadata"]["namespace"]].append(pod)
        asking = [pod for each in pods.values() for pod in each if pod["metadata"]["name"] == "preemptor"]
        tried = all(pod["spec"].get("nodeName") or condition(pod, "PodScheduled") for pod in asking)
        now = str(sorted((pod["metadata"]["uid"], pod["metadata"]["resourceVersion"]) for pod in answer["items"]))
        if now != before or not tried:
            before, since = now, time.monotonic()
        elif time.monotonic() - since > QUIET:
            return pods
        time.sleep(0.3)
    raise TimeoutError("kube-scheduler has not decided everything")


def sweep(api: Client, questions: list[Question]) -> None:
    for space in {one.case.namespace for one in questions}:
        api.ask("DELETE", f"/api/v1/namespaces/{space}/pods", gracePeriodSeconds=0)
        api.ask("DELETE", f"/apis/policy/v1/namespaces/{space}/poddisruptionbudgets")
    api.ask("DELETE", "/api/v1/nodes")


@pytest.mark.slow
def test_who_yields_is_kube_schedulers_choice(
    plane: ControlPlane, api: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    furnish(api)
    words: Counter[str] = Counter()
    themes: Counter[tuple[str, str]] = Counter()
    ties, breaks, reordered, wrong = 0, 0, list[str](), list[str]()
    for first in range(FIRST, FIRST + CASES, AT_ONCE):
        questions = [Question(preemption_case(seed)) for seed in range(first, min(first + AT_ONCE, FIRST + CASES))]
        for one, theirs in zip(questions, decided_by_kube_scheduler(plane, api, questions), strict=True):
            ours = one.ours()
            words[theirs.word] += 1
            themes.update((theme, theirs.word) for theme in one.case.themes)
            breaks += bool(theirs.node) and criteria(one.case, theirs)[0] > 0
            if ours.word != theirs.word or (theirs.node and ours != theirs):
                if is_tie(one.case, ours, theirs):
                    ties += 1
                else:
                    said = reordered if is_other_order(one.case, ours, theirs) else wrong
                    said.append(_blame(one.case, ours, theirs))
        sweep(api, questions)
    with capsys.disabled():
        print(f"\n{CASES} cases: {dict(words)}, {ties} ties, {breaks} break a budget, {len(wrong)} differ")
        print("\n".join([f"  equal pods in another order: {len(reordered)}", *reordered]))
        for theme in sorted(THEMES):
            print(f"  {theme:16} " + "  ".join(f"{word} {themes[theme, word]:4}" for word in sorted(words)))
    assert len(reordered) <= CASES / 50
    assert not wrong, "\n\n".join([f"{len(wrong)} differ", *wrong[:10]])
    if CASES >= 300:
        assert words["preempts"] >= 100
        assert all(words.values())
        assert breaks
        assert all(themes[theme, "preempts"] for theme in THEMES)


def _blame(case: PreemptionCase, ours: Outcome, theirs: Outcome) -> str:
    said = [f"case {case.seed} {sorted(case.themes)}: ours {ours}, theirs {theirs}"]
    for name, one in (("ours", ours), ("theirs", theirs)):
        if one.node:
            said.append(f"  by kube-scheduler's criteria {name}: {criteria(case, one)}")
    return "\n".join(said)
