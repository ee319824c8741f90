"""Pods that wait at once, and room for some: kube-scheduler and we let the same ones in.

kube-scheduler is kept busy with one pod, by an extender that does not answer, until all are in its queue. Then one with
the highest priority comes: that it is the first to be judged proves that all the others were there. Ours have twins,
created in the same moments for the same nodes under other names; Dovetail is started when all are there.
"""

from __future__ import annotations

import time

import pytest

from tests.live.dovetail_process import scheduling
from tests.live.oracle import Oracle, oracle
from tests.live.oracle_order import WAVES, Contest, contest, in_order
from tools.controlplane.client import Client, Object
from tools.controlplane.objects import condition
from tools.controlplane.plane import ControlPlane

CONTESTS = 40
THEIRS, OURS = "theirs", "ours"  # namespaces, and first words of node names


def create_all(api: Client, contests: list[Contest]) -> list[Object]:
    """Pods of both sides, wave after wave, by name within a wave; returns those for kube-scheduler."""
    made = []
    for wave in range(WAVES):
        _wait_for_the_next_second()
        rows = [(one.name, each, one) for each in contests for one in each.pods if one.wave == wave]
        for _, each, one in sorted(rows, key=lambda row: row[0]):
            made.append(api.create(each.pod_object(one, THEIRS, "default-scheduler")))
            api.create(each.pod_object(one, OURS, "dovetail"))
    return made


def admitted_by_kube_scheduler(kube: Oracle, contests: list[Contest]) -> set[str]:
    kube.put_nodes([node for each in contests for node in each.node_objects(THEIRS)])
    with kube.held_up():
        made = create_all(kube.api, contests)
    outcomes = {pod["metadata"]["name"]: kube.outcome(pod)[0] for pod in made}
    return {name for name, outcome in outcomes.items() if outcome.node is not None}


def admitted_by_us(plane: ControlPlane, api: Client, contests: list[Contest]) -> set[str]:
    for node in (node for each in contests for node in each.node_objects(OURS)):
        api.create(node)

    def decided() -> bool:
        return all(pod["spec"].get("nodeName") or condition(pod, "PodScheduled") for pod in api.list("Pod", OURS))

    with scheduling(plane):
        api.wait_until(decided, "every pod of ours was tried", 60)
    return {pod["metadata"]["name"] for pod in api.list("Pod", OURS) if pod["spec"].get("nodeName")}


@pytest.mark.slow
def test_the_same_pods_get_the_room(plane: ControlPlane, api: Client, capsys: pytest.CaptureFixture[str]) -> None:
    contests = [contest(number) for number in range(CONTESTS)]
    for name in (THEIRS, OURS):
        api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    with oracle(plane, api) as kube:
        theirs = admitted_by_kube_scheduler(kube, contests)
    ours = admitted_by_us(plane, api, contests)
    everybody = {one.name for each in contests for one in each.pods}
    priority = sum(each.priority_matters for each in contests)
    age = sum(each.age_matters for each in contests)
    with capsys.disabled():
        print(f"\n{CONTESTS} contests for room: {len(theirs)} pods got in, {len(everybody - theirs)} did not")
        print(f"  priority decides who             yes {priority:6}  no {CONTESTS - priority:6}")
        print(f"  age decides who, not names       yes {age:6}  no {CONTESTS - age:6}")
    wrong = {each: names for each in contests if (names := {one.name for one in each.pods} & (theirs ^ ours))}
    assert not wrong, wrong
    assert theirs == set().union(*(each.admitted(in_order) for each in contests))
    assert 0 < priority < CONTESTS
    assert 0 < age < CONTESTS


def _wait_for_the_next_second() -> None:
    time.sleep(1.02 - time.time() % 1)
