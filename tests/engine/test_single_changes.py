"""Single changes that concern more than one pod and one node: quotas, daemons, rules about other pods."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.engine.ledger import audit
from dovetail.engine.scheduler import Scheduler
from dovetail.engine.why.changes import SuggestedChange, constraints_dropped
from dovetail.engine.why.explain import explain, verdicts
from dovetail.engine.why.suggest import Suggestion, alternatives
from dovetail.model.events import NamespaceChanged, PodObserved
from dovetail.model.node import Node
from dovetail.model.pod import CardResources, Container, ContainerKind, DeviceAsk, Pod, Quota, RunningPod
from dovetail.model.reason import Reason
from dovetail.model.relations import HostPort, PodTerm, Relations, Selector, SpreadConstraint
from dovetail.model.rules import AffinityTerm, NodeRules, Requirement
from tests.builders import ask, card, cluster, group, node, place, pod, use
from tests.engine.neighbourhoods import SPACES, some_nodes, some_pod
from tests.engine.pictures import made, picture, sizes
from tests.properties import with_examples

HOST, ZONE = "kubernetes.io/hostname", "zone"
WEB = Selector((("app", "web"),))
NAMES = CardResources("nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores")
AGENT = "DaemonSet/default/agent"


def advised(scheduler: Scheduler, wanted: Pod) -> tuple[str, str] | None:
    assert place(scheduler, wanted) == [(None, ())]
    return next(((one.kind, one.sentence) for one in alternatives(scheduler, group(wanted), wanted, most=1)), None)


class TestWholeCards:
    """One card of 16,384 MiB, of which 8,000 MiB and 30 % of the compute are in use: 8,384 MiB are left."""

    def shared(self) -> Scheduler:
        scheduler = cluster(node("n", card("a", 16_384)))
        use(scheduler, "n", "a", 1, 8000, 30)
        return scheduler

    def test_a_part_of_a_card_gives_up_the_compute_that_admission_filled_in(self) -> None:
        plain = DeviceAsk("NVIDIA", 1, 0, 100, 1000, plain=True)
        assert advised(self.shared(), pod("p", plain)) == (
            "less",
            "ask for 8,384 MiB of GPU memory instead of the whole GPU",
        )

    def test_less_than_all_memory_does_so_too(self) -> None:
        """51 % of 16,384 MiB are 8,355 MiB; 52 % would be 8,519."""
        assert advised(self.shared(), pod("p", DeviceAsk("NVIDIA", 1, 0, 100, 1000, resources=NAMES))) == (
            "less",
            "ask for 51 % of the GPU's memory instead of 100 %",
        )

    def test_compute_that_is_stated_stays(self) -> None:
        stated = pod("p", DeviceAsk("NVIDIA", 1, 0, 100, 1000, resources=NAMES))
        stated = replace(stated, quota_use={"requests.nvidia.com/gpucores": 100})
        assert advised(self.shared(), stated) == ("pod-gone", "if pod default/on-a-0 (priority 0) left node n")

    def test_what_admission_gives_to_parts_of_cards_counts(self) -> None:
        """Parts of cards get 80 % of the compute by configuration, 70 % are left: less memory does not help."""
        names = replace(NAMES, shared_compute_milli=800)
        plain = DeviceAsk("NVIDIA", 1, 0, 100, 1000, plain=True, resources=names)
        found = advised(self.shared(), pod("p", plain))
        assert found is not None
        assert found[0] == "pod-gone"

    def test_nothing_is_suggested_that_cannot_be_written(self) -> None:
        """This vendor's cards are counted, and that is all."""
        plain = DeviceAsk("NVIDIA", 1, 0, 100, 1000, plain=True, resources=CardResources("vendor.com/card"))
        found = advised(self.shared(), pod("p", plain))
        assert found is not None
        assert found[0] == "pod-gone"


class TestQuotas:
    def test_less_cpu(self) -> None:
        """3 CPUs asked for, 2 allowed, none in use."""
        scheduler = cluster(node("n"), quotas=(Quota("default", "q", {"requests.cpu": 2000, "cpu": 2500}),))
        wanted = pod("p", cpu=3000, quota_use={"requests.cpu": 3000, "cpu": 3000})
        assert advised(scheduler, wanted) == ("less", "ask for 2 CPU instead of 3")
        assert scheduler.quotas.refusal(wanted) == (
            "quota q: cpu requested 3, used 0, limited to 2500m"  # the first by name
        )

    def test_a_lower_limit(self) -> None:
        """1,024 MiB allowed, 512 in use; no request is larger than its limit, so both go down."""
        scheduler = cluster(node("n"), quotas=(Quota("default", "q", {"limits.memory": 2**30}),))
        place(scheduler, pod("there", quota_use={"limits.memory": 2**29}))
        wanted = pod("p", extended={"memory": 2**30}, quota_use={"requests.memory": 2**30, "limits.memory": 2**30})
        assert advised(scheduler, wanted) == ("less", "limit the pod to 512Mi memory instead of 1Gi")

    @pytest.mark.parametrize(
        ("kinds", "hard", "sentence"),
        [
            ((ContainerKind.APP,), 2, "ask for 2 GPUs instead of 3"),
            ((ContainerKind.APP, ContainerKind.APP), 5, "container c0: ask for 2 GPUs instead of 3"),  # 2 + 3
            ((ContainerKind.APP, ContainerKind.APP), 2, None),  # 1 + 3 at least
            ((ContainerKind.INIT, ContainerKind.APP), 2, None),  # one after the other: both ask for 3
            ((ContainerKind.SIDECAR, ContainerKind.INIT), 5, "container c0: ask for 2 GPUs instead of 3"),  # 2 + 3
            ((ContainerKind.SIDECAR, ContainerKind.INIT), 4, None),  # 1 + 3: less than half of what was asked
        ],
    )
    def test_fewer_cards(self, kinds: tuple[ContainerKind, ...], hard: int, sentence: str | None) -> None:
        """Three cards each, counted as Kubernetes counts containers that run together or one after the other."""
        scheduler = cluster(node("n", gpus=8), quotas=(Quota("default", "q", {"requests.nvidia.com/gpu": hard}),))
        asks = (DeviceAsk("NVIDIA", 3, 100, resources=NAMES),)
        containers = [Container(f"c{n}", kind, asks) for n, kind in enumerate(kinds)]
        together = 3 if kinds[-1:] == kinds or kinds[0] is ContainerKind.INIT else 6
        wanted = pod("p", containers=containers, quota_use={"requests.nvidia.com/gpu": together})
        assert advised(scheduler, wanted) == (sentence and ("fewer-cards", sentence))

    def test_less_of_a_card(self) -> None:
        """10,000 MiB allowed, 4,000 in use."""
        scheduler = cluster(
            node("n", gpus=2, memory=16_000), quotas=(Quota("default", "q", {"requests.nvidia.com/gpumem": 10_000}),)
        )
        place(scheduler, pod("there", ask(1, 4000), quota_use={"requests.nvidia.com/gpumem": 4000}))
        wanted = pod("p", DeviceAsk("NVIDIA", 1, 7000, resources=NAMES))
        wanted = replace(wanted, quota_use={"requests.nvidia.com/gpumem": 7000})
        assert advised(scheduler, wanted) == ("less", "ask for 6,000 MiB of GPU memory instead of 7,000")

    def test_a_pod_of_the_namespace_gone_from_whatever_node(self) -> None:
        scheduler = cluster(node("a"), node("b"), quotas=(Quota("default", "q", {"pods": 1}),))
        place(scheduler, pod("there", quota_use={"pods": 1}, node_rules=NodeRules(node_name="a")))
        place(scheduler, pod("cheap", namespace="other", priority=-1))
        wanted = pod("p", node_rules=NodeRules(node_name="b"), quota_use={"pods": 1})
        assert advised(scheduler, wanted) == ("pod-gone", "if pod default/there (priority 0) left node a")

    def test_which_quota_keeps_cards_back(self) -> None:
        """HAMi's own quotas are held against cards: 6,000 of 8,000 MiB are in use, 3,000 more are asked for."""
        scheduler = cluster(node("n", gpus=2), quotas=(Quota("default", "q", device_memory_mib={"NVIDIA": 8000}),))
        place(scheduler, pod("there", ask(1, 6000)))
        [verdict] = verdicts(scheduler, pod("p", ask(1, 3000)))
        assert verdict.reason == Reason.CARD_QUOTA
        assert "quota q: NVIDIA memory 6,000 of 8,000 MiB in use" in verdict.sentence


class TestDaemons:
    """Node a has no CPU left, node b has plenty."""

    PINNED = AffinityTerm(fields=(Requirement("metadata.name", "In", ("a",)),))

    def full(self) -> Scheduler:
        scheduler = cluster(node("a", cpu=1000), node("b"), node("c"))
        place(scheduler, pod("full", cpu=1000, node_rules=NodeRules(node_name="a")))
        return scheduler

    @pytest.mark.parametrize("rules", [NodeRules(node_name="a"), NodeRules(affinity=(PINNED,))])
    def test_its_own_node_alone_is_asked_and_never_dropped(self, rules: NodeRules) -> None:
        scheduler, wanted = self.full(), pod("agent-a", cpu=500, owner=AGENT, node_rules=rules)
        assert [(one.node, one.reason) for one in verdicts(scheduler, wanted)] == [("a", Reason.CPU)]
        assert explain(scheduler, wanted).counted == (("CPU short by 500m", 1),)
        assert advised(scheduler, wanted) == ("pod-gone", "if pod default/full (priority 0) left node a")

    def test_the_rest_of_its_affinity_can_be_dropped(self) -> None:
        ssd = AffinityTerm((Requirement("disk", "In", ("ssd",)),), self.PINNED.fields)
        wanted = pod("agent-a", owner=AGENT, node_rules=NodeRules(affinity=(ssd,)))
        [change] = constraints_dropped(wanted)
        assert change.sentence == "drop the required node affinity"
        assert change.apply(wanted).node_rules.affinity == (self.PINNED,)

    def test_others_that_name_a_node_may_go_elsewhere(self) -> None:
        wanted = pod("p", cpu=500, owner="Deployment/default/p", node_rules=NodeRules(node_name="a"))
        assert len(verdicts(self.full(), wanted)) == 3
        assert advised(self.full(), wanted) == ("drop-constraint", "drop nodeName a")

    def test_where_its_node_is_gone_all_are_asked(self) -> None:
        wanted = pod("agent-z", owner=AGENT, node_rules=NodeRules(node_name="z"))
        assert {one.reason for one in verdicts(self.full(), wanted)} == {Reason.NODE_NAME}


def term(key: str = HOST, selector: Selector | None = WEB) -> PodTerm:
    return PodTerm(key, selector, ("default",))


class TestRulesAboutPods:
    """Two nodes in one zone; a pod with the label app=web and the host port 80 is on each."""

    def town(self) -> Scheduler:
        scheduler = cluster(*(node(name, labels={HOST: name, ZONE: "z"}) for name in "ab"))
        for name in "ab":
            there = pod(f"on-{name}", labels={"app": "web"}, relations=Relations(ports=(HostPort(80),)))
            scheduler.handle(PodObserved(0.0, RunningPod(there, name, ())))
        return scheduler

    @pytest.mark.parametrize(
        ("relations", "sentence"),
        [
            (
                Relations(anti_affinity=(term(),)),
                "drop the required pod anti-affinity to app=web over kubernetes.io/hostname",
            ),
            (
                Relations(affinity=(term(ZONE), term(ZONE, Selector((), (Requirement("tier", "In", ("1", "2")),))))),
                "drop the required pod affinity to tier In 1,2 over zone",
            ),
            (
                Relations(spread=(SpreadConstraint("rack", 1, True, WEB),)),
                "drop the topology spread constraint over rack (maxSkew 1)",
            ),
            (Relations(ports=(HostPort(80, "UDP"), HostPort(80))), "drop the host port 80/TCP"),
        ],
    )
    def test_one_is_dropped(self, relations: Relations, sentence: str) -> None:
        wanted = pod("p", labels={"app": "api"}, relations=relations)
        assert advised(self.town(), wanted) == ("drop-constraint", sentence)

    def test_preferences_are_no_constraints(self) -> None:
        wanted = Relations(spread=(SpreadConstraint("rack", 1, False, WEB),), preferred_affinity=(term(),))
        assert list(constraints_dropped(pod("p", relations=wanted))) == []

    def test_replicas_drop_it_together(self) -> None:
        """One node, two replicas that shun each other: dropped from one alone, the other would still object."""
        scheduler = cluster(node("a", labels={HOST: "a"}))
        first, second = (
            pod(
                name,
                labels={"app": "web"},
                owner="Deployment/default/web",
                relations=Relations(anti_affinity=(term(),)),
            )
            for name in ("web-0", "web-1")
        )
        place(scheduler, first)
        before = picture(scheduler)
        sentence = "drop the required pod anti-affinity to app=web over kubernetes.io/hostname"
        assert advised(scheduler, second) == ("drop-constraint", sentence)
        assert picture(scheduler) == before
        assert scheduler.ledger.pods.pod(first.uid) == first
        assert advised(scheduler, replace(second, owner="")) == (
            "pod-gone",
            "if pod default/web-0 (priority 0) left node a",
        )

    def test_a_pod_gone_from_another_node_of_the_zone(self) -> None:
        """Its own node is free, but the zone is not."""
        scheduler = cluster(*(node(name, labels={HOST: name, ZONE: "z"}) for name in "ab"))
        there = pod("there", labels={"app": "web"}, relations=Relations(anti_affinity=(term(ZONE),)))
        scheduler.handle(PodObserved(0.0, RunningPod(there, "a", ())))
        wanted = pod("p", labels={"app": "web"}, node_rules=NodeRules(node_name="b"))
        assert advised(scheduler, wanted) == ("pod-gone", "if pod default/there (priority 0) left node a")


def copied(
    scheduler: Scheduler, nodes: list[Node], advice: Suggestion, wanted: Pod, change: SuggestedChange | None
) -> Scheduler:
    """Another scheduler with the same pods, after what was suggested about those that have their places."""
    other = told_of_spaces(made(nodes))
    for uid, held in scheduler.ledger.pods.items():
        there, where = held.pod, scheduler.ledger.node_of(uid)
        if advice.sentence == f"if pod {there.key} (priority {there.priority}) left node {where}":
            continue
        if change is not None and change.for_replicas and there.owner == wanted.owner:
            there = change.apply(there)
        other.handle(PodObserved(0.0, RunningPod(there, where, ())))
    return other


def told_of_spaces(scheduler: Scheduler) -> Scheduler:
    for name, labels in SPACES.items():
        scheduler.handle(NamespaceChanged(0.0, name, labels))
    return scheduler


def test_every_suggestion_places_a_pod_with_rules_about_others() -> None:
    reached: Counter[str] = Counter()

    @with_examples(120)
    @given(st.integers(0, 10**6))
    def property_holds(seed: int) -> None:
        chance = Random(seed)
        nodes = some_nodes(chance, 3)
        scheduler = told_of_spaces(made(nodes))
        for number in range(10):
            wanted = some_pod(chance, f"p{number}", eager=0.6)
            wanted = replace(wanted, owner=f"Deployment/{wanted.namespace}/{chance.choice('xy')}")
            if scheduler.place([group(wanted)])[0].placed:
                continue
            before, tables = picture(scheduler), sizes(scheduler)
            offered = alternatives(scheduler, group(wanted), wanted)
            audit.validate(scheduler.ledger)
            assert sizes(scheduler) == tables
            assert {name: picture(scheduler)["nodes"][name] for name in before["nodes"]} == before["nodes"]
            for advice in offered:
                if advice.kind not in ("drop-constraint", "pod-gone"):
                    continue
                reached[advice.kind] += 1
                # Two constraints over one key, which the API server refuses, have one sentence: either may be meant.
                meant: list[SuggestedChange | None] = [
                    one for one in constraints_dropped(wanted) if one.sentence == advice.sentence
                ]
                found = set()
                for change in meant or [None]:
                    asking = wanted if change is None else change.apply(wanted)
                    [decision] = copied(scheduler, nodes, advice, wanted, change).place([group(asking)])
                    found.add(decision.node)
                assert advice.verified_node in found, advice

    property_holds()
    assert reached["drop-constraint"] > 10, reached
    assert reached["pod-gone"], reached
