"""Rows, lines and numbers of what is gone serve what comes: tables stay as large as what lives at one time.

Nodes, owners, requests and rules come under ever new names and go again. Afterwards every decision is the one of a
scheduler that was told of the living only, so no kept score, mask or count of a predecessor is left behind.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import count
from random import Random
from unittest.mock import patch

import pytest
from hypothesis import given

from dovetail.engine import placer
from dovetail.engine.kernel.state import FREE, POD_OWNER, POD_SHAPE, POD_STATE
from dovetail.engine.ledger import audit, intern, node_rows, storage
from dovetail.engine.ledger.ranges import Ranges
from dovetail.engine.rules import label_index as label_rows
from dovetail.engine.rules import node_columns as node_facts
from dovetail.engine.rules.label_index import LabelRows
from dovetail.engine.scheduler import Scheduler
from dovetail.model.device import Device
from dovetail.model.events import GroupArrived, NodeChanged, NodeGone, PodGone, PodObserved, VolumesChanged
from dovetail.model.node import Enforcer, Node
from dovetail.model.pod import Container, DeviceAsk, DeviceRules, Group, Pod, Profile, RunningPod
from dovetail.model.reason import Reason
from dovetail.model.relations import Relations
from dovetail.model.rules import AffinityTerm, NodeRules, Requirement
from dovetail.model.volumes import AttachLimits, Attachment, Claim, Volume
from dovetail.policies.table import NODE_POLICIES
from tests.engine.pictures import made, picture, said
from tests.properties import with_examples
from tests.strategies import SEPARATE_PROFILES, renamed, seeds, some_groups, some_node

FEW = 6  # names of one sort from which on the unused are looked for: here in every few events
PROFILES = (*SEPARATE_PROFILES, *(Profile("spread-replicas"),) * len(SEPARATE_PROFILES))


@contextmanager
def sweeping_often() -> Iterator[None]:
    with ExitStack() as stack:
        for module in (intern, node_rows):
            stack.enter_context(patch.object(module, "SWEEP_FROM", FEW))
        stack.enter_context(patch.object(storage, "LINES_FROM", FEW))
        stack.enter_context(patch.object(placer, "SWEEP_EVERY", 1))
        yield


class Churn:
    """A cluster in which no name comes twice."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(f"{seed}-churn")
        self.scheduler = made(())
        self.ledger = self.scheduler.ledger
        self.nodes: dict[str, Node] = {}
        self._fresh = (f"{self.chance.randrange(100):02}-{n}" for n in count())  # in no order
        self.most: dict[str, int] = {}  # table -> the largest number in use at one time

    def step(self) -> None:
        roll = self.chance.random()
        if roll < 0.25 or len(self.nodes) < 2:
            self._node_comes(some_node(Random(self.chance.random()), next(self._fresh)))
        elif roll < 0.35:
            self._node_goes()
        elif roll < 0.7:
            self._pods_arrive()
        elif roll < 0.75:
            self._observe_elsewhere()
        elif self.ledger.pods:
            self.scheduler.handle(PodGone(0.0, self.chance.choice(sorted(self.ledger.pods))))
        if self.chance.random() < 0.2:
            for group in list(self.scheduler.waiting):
                self.scheduler.handle(PodGone(0.0, group.pods[0].uid))
        self._note()

    def _node_comes(self, node: Node) -> None:
        """Never a stock node: which cards its pods are guessed to have depends on the order in which they came."""
        node = replace(node, enforcer=Enforcer.HAMI)
        self.nodes[node.name] = node
        self.scheduler.handle(NodeChanged(0.0, node))

    def _node_goes(self) -> None:
        name = self.chance.choice(sorted(self.nodes))
        del self.nodes[name]
        self.scheduler.handle(NodeGone(0.0, name))

    def _pods_arrive(self) -> None:
        """Under owners, with resources and rules that were never heard of; or of an owner that is there."""
        for group in some_groups(self.chance.randrange(2**32), 3, PROFILES):
            there = [self.ledger.pods.pod(uid).owner for uid in sorted(self.ledger.pods)]
            owner = self.chance.choice([*there, f"Job/default/{next(self._fresh)}"])
            pods = tuple(self._odd(renamed(replace(pod, owner=owner), next(self._fresh))) for pod in group.pods)
            self.scheduler.handle(GroupArrived(0.0, replace(group, name=next(self._fresh), pods=pods)))

    def _odd(self, pod: Pod) -> Pod:
        roll = self.chance.random()
        if roll < 0.1:
            return replace(pod, resources={**pod.resources, f"example.com/{next(self._fresh)}": 1})
        if roll < 0.2:
            return replace(pod, node_rules=NodeRules(selector=((next(self._fresh), "x"),)))
        if roll < 0.4:
            return replace(pod, device_rules=(DeviceRules("NVIDIA", nouse_uuids=(next(self._fresh),)),))
        if roll < 0.6:
            return replace(pod, scored_cpu_milli=self.chance.randrange(1000))
        return pod

    def _observe_elsewhere(self) -> None:
        """A pod is heard of on a node that is not."""
        pod = renamed(some_groups(self.chance.randrange(2**32), 1, PROFILES)[0].pods[0], next(self._fresh))
        self.scheduler.handle(PodObserved(0.0, RunningPod(pod, f"unheard-{next(self._fresh)}", ())))

    def _note(self) -> None:
        ledger, held = self.ledger, self.ledger.book.pod[self.ledger.book.pod[:, POD_STATE] != FREE]
        holding = {ledger.node_of(uid) for uid in ledger.pods}
        waiting = [key for key in self.scheduler.waiting.requests() if isinstance(key, tuple)]
        devices = sum(len(ledger.devices(row)) for row in range(len(ledger.nodes)))
        for table, number in {
            "rows": len(self.nodes.keys() | holding),
            "owners": len(set(held[:, POD_OWNER].tolist())),
            "shapes": len({*held[:, POD_SHAPE].tolist(), *(key[1] for key in waiting)}),
            "masks": len({key[2] for key in waiting}),
            "uuids": devices + len(ledger.pods) + len(waiting),
        }.items():
            self.most[table] = max(number, self.most.get(table, 0))

    def check_keys(self) -> None:
        """Lone pods wait under the numbers of their own request. (Where owners count, its line may change.)"""
        scheduler = self.scheduler
        for group in scheduler.waiting:
            key, pod = scheduler.waiting.key_of(group.name), group.pods[0]
            if isinstance(key, tuple) and not NODE_POLICIES[pod.profile.node].counts_owner:
                signature = scheduler.requests.signature(pod)
                assert key[:3] == (signature.profile, signature.shape, signature.mask)

    def fresh(self) -> Scheduler:
        """One that was told of the living only."""
        scheduler = made([self.nodes[name] for name in sorted(self.nodes, reverse=True)], measured=False)
        for uid, held in self.ledger.pods.items():
            seen = RunningPod(held.pod, self.ledger.node_of(uid), self.ledger.shares(held.slot))
            scheduler.handle(PodObserved(0.0, seen))
        return scheduler


def in_use(scheduler: Scheduler) -> dict[str, object]:
    """What nodes that are there have in use, and pods' places; reserved or allocated is the same here."""
    nodes = {name: row for name, row in picture(scheduler)["nodes"].items() if row[0]}
    pods = {uid: (node, shares) for uid, (node, shares, *_) in picture(scheduler)["pods"].items()}
    return {"nodes": nodes, "pods": pods}


@with_examples(60)
@given(seeds)
def test_decisions_are_those_of_a_scheduler_that_knows_the_living_only(seed: int) -> None:
    with sweeping_often():
        churn = Churn(seed)
        for n in range(70):
            churn.step()
            churn.check_keys()
            audit.validate(churn.ledger)
            if n % 7:
                continue
            fresh = churn.fresh()
            assert in_use(churn.scheduler) == in_use(fresh)
            for group in some_groups(seed + n, 5, PROFILES):
                pods = tuple(renamed(pod, f"probe-{pod.name}-{n}") for pod in group.pods)
                probe = [replace(group, pods=pods)]
                with churn.ledger.transaction():
                    assert said(churn.scheduler.place(probe)) == said(fresh.place(probe))
                for pod in pods:
                    fresh.ledger.release(pod.uid)
    assert churn.scheduler.intern.sweeps > 0
    assert churn.ledger.places.reused > 0


@with_examples(30)
@given(seeds)
def test_tables_are_as_large_as_what_lives_at_one_time(seed: int) -> None:
    """A number is looked at again once there are twice as many as lived at the last look: at most what one event
    brings beyond that."""
    with sweeping_often():
        churn = Churn(seed)
        for _ in range(150):
            churn.step()
        tables = {
            "owners": len(churn.scheduler.intern.owners),
            "shapes": len(churn.scheduler.intern.shapes),
            "masks": churn.ledger.storage.masks.shape[0] // 2,
            "uuids": len(churn.scheduler.intern.uuids),
        }
    one_event = 16
    assert len(churn.ledger.nodes) <= churn.most["rows"]
    for table, size in tables.items():
        assert size <= 2 * max(churn.most[table], FEW) + one_event, table
    lines = len(churn.ledger.storage.peers_since)
    assert lines <= 2 * max(churn.most["owners"], FEW) + one_event


@with_examples(100)
@given(seeds)
def test_lists_in_one_array_do_not_overlap_and_leave_no_gaps_behind(seed: int) -> None:
    ranges, chance, taken = Ranges(), Random(seed), dict[int, int]()
    for _ in range(200):
        if chance.random() < 0.5:
            length = chance.randrange(1, 30)
            first = ranges.take(length)
            assert all(first + length <= other or end <= first for other, end in taken.items())
            taken[first] = first + length
        elif taken:
            first = chance.choice(sorted(taken))
            ranges.give_back(first, taken.pop(first) - first)
        assert max(taken.values(), default=0) <= ranges.end
    for first, end in taken.items():
        ranges.give_back(first, end - first)
    assert ranges.end == 0


def test_lists_of_ever_other_lengths_take_the_room_of_those_that_are_gone() -> None:
    """Room was used again for lists of the same length only. Lists of 1, 2 … 512 UUIDs, 256 pods each, took 256 MiB."""
    with sweeping_often():
        scheduler = made([machine("a")])
        for length in range(1, 100):
            uuids = tuple(f"GPU-{length}-{n}" for n in range(length))
            asking = lone(f"p{length}", device_rules=(DeviceRules("NVIDIA", nouse_uuids=uuids),))
            scheduler.handle(GroupArrived(0.0, asking))
            scheduler.handle(PodGone(0.0, asking.name))
    assert len(scheduler.intern.wants.uuids) <= 4 * (FEW + 1) * 100  # was 1 + 2 … + 99, rounded up to 8,192


def lone(name: str, owner: str = "", **changed: object) -> Group:
    card = Container("c", asks=(DeviceAsk("NVIDIA", 1, 1000, None, 100),))
    pod = Pod("default", name, name, {"cpu": 100}, containers=(card,), owner=owner)
    return Group(name, (replace(pod, **changed),))  # type: ignore[arg-type]


def machine(name: str, cards: int = 2, **changed: object) -> Node:
    devices = tuple(Device(f"{name}/{n}", n, "NVIDIA", "A100", 8000, 1000, 10) for n in range(cards))
    return replace(Node(name, {"cpu": 8000, "memory": 2**34, "pods": 110}, devices), **changed)  # type: ignore[arg-type]


def test_a_tie_is_broken_by_the_name_that_a_row_has_now() -> None:
    """Row 0 was a, the first of two equals; now it is z, as empty as a was: b comes first."""
    scheduler = made([machine("a"), machine("b")])
    [first] = scheduler.place([lone("p", profile=Profile("first-fit"))])
    assert first.node == "a"
    scheduler.ledger.release("p")
    scheduler.handle(NodeGone(0.0, "a"))
    scheduler.handle(NodeChanged(0.0, machine("z")))
    assert len(scheduler.ledger.nodes) == 2
    [second] = scheduler.place([lone("p", profile=Profile("first-fit"))])
    assert second.node == "b"


def test_a_row_that_pods_hold_is_nobody_elses() -> None:
    scheduler = made([machine("a")])
    scheduler.handle(GroupArrived(0.0, lone("p")))
    scheduler.handle(NodeGone(0.0, "a"))
    scheduler.handle(NodeChanged(0.0, machine("b")))
    assert scheduler.ledger.row_of == {"a": 0, "b": 1}
    scheduler.handle(PodGone(0.0, "p"))
    scheduler.handle(NodeChanged(0.0, machine("c")))
    assert scheduler.ledger.row_of == {"b": 1, "c": 0}


def test_a_transaction_that_is_undone_finds_its_rows_as_they_were() -> None:
    """The pod leaves a node that is gone, and a new node comes while that is still only tried."""
    scheduler = made([machine("a")])
    scheduler.handle(GroupArrived(0.0, lone("p")))
    scheduler.handle(NodeGone(0.0, "a"))
    with scheduler.ledger.transaction():
        scheduler.ledger.release("p")
        scheduler.ledger.set_node(machine("b"))
    audit.validate(scheduler.ledger)
    assert scheduler.ledger.node_of("p") == "a"


def test_a_line_of_peers_forgets_whose_it_was() -> None:
    """The late owner's pod on b was never counted. Scores kept for earlier owners of the line say that nobody is on b,
    and b did not move since: with a out of use, the owner's second pod goes to c all the same."""
    spread, late = Profile("spread-replicas"), "Job/default/late"
    with patch.object(storage, "LINES_FROM", FEW), patch.object(placer, "SWEEP_EVERY", 1):
        scheduler = made([machine("a"), machine("b"), machine("c")])
        scheduler.handle(PodObserved(0.0, RunningPod(lone("first", late).pods[0], "b", ())))
        for n in range(4 * FEW):
            [decision] = scheduler.place([lone(f"p{n}", f"Job/default/{n}", profile=spread)])
            assert decision.node == "a", n
            scheduler.handle(PodGone(0.0, f"p{n}"))
        scheduler.handle(NodeChanged(0.0, machine("a", unschedulable=True)))
        [decision] = scheduler.place([lone("second", late, profile=spread)])
        assert decision.node == "c"
    assert len(scheduler.ledger.storage.peers_since) <= 2 * FEW


def test_what_is_attached_to_a_node_that_is_gone_is_not_attached_to_its_successor() -> None:
    """Node a could attach one disk and has it; b, which gets its row, may attach one as well."""
    one = {"disk.example.com": 1}
    scheduler = made([machine("a")])
    old = Volume("old", driver="disk.example.com", handle="h-old")
    mine = Volume("mine", driver="disk.example.com", handle="h-mine")
    claim = Claim("default", "data", volume="mine", bind_completed=True)
    facts = (AttachLimits("a", one), AttachLimits("b", one), old, mine, claim)
    scheduler.handle(VolumesChanged(0.0, (*facts, Attachment("x", "a", "disk.example.com", "old")), ()))
    asking = lone("p", relations=Relations(claims=("data",)))
    with scheduler.ledger.transaction():
        assert scheduler.place([asking])[0].reason is Reason.VOLUME_LIMIT
    scheduler.handle(NodeGone(0.0, "a"))
    scheduler.handle(NodeChanged(0.0, machine("b")))
    assert scheduler.ledger.row_of == {"b": 0}
    assert scheduler.place([asking])[0].node == "b"


def test_answers_about_labels_are_bounded() -> None:
    """Topology keys are the tenants' choice, and nodes that never change never clear what is kept."""
    scheduler = made([machine("a")])
    facts, rows = scheduler.related.neighbours.facts, LabelRows(scheduler.ledger.places)
    for n in range(3 * node_facts.MAX_KEPT_ARRAYS):
        assert facts.domains(f"key-{n}")[0].tolist() == [0]
        assert rows.matching((AffinityTerm((Requirement(f"key-{n}", "DoesNotExist"),)),)).tolist() == [0]
    assert len(facts._values) <= len(facts._kept) <= node_facts.MAX_KEPT_ARRAYS
    assert len(rows._rows) <= label_rows.MAX_KEPT_MATCHES


@pytest.mark.slow
def test_memory_stays_flat_over_twenty_thousand_names() -> None:
    """20,000 node names, then 20,000 owners on 100 nodes with spread-replicas, 50 of each at a time."""
    scheduler = made([machine(f"n{n:03}") for n in range(100)])
    sizes = [resident()]
    for n in range(20_000):
        scheduler.handle(NodeChanged(0.0, machine(f"x{n}", cards=8)))
        if n >= 50:
            scheduler.handle(NodeGone(0.0, f"x{n - 50}"))
        if n == 1_000:
            sizes.append(resident())
    sizes.append(resident())
    for n in range(20_000):
        scheduler.handle(GroupArrived(0.0, lone(f"p{n}", f"Job/default/{n}", profile=Profile("spread-replicas"))))
        if n >= 50:
            scheduler.handle(PodGone(0.0, f"p{n - 50}"))
        if n == 1_000:
            sizes.append(resident())
    sizes.append(resident())
    start, nodes_warm, nodes, owners_warm, owners = sizes
    print(f"MiB: start {start}, 1,000 nodes {nodes_warm}, 20,000 {nodes}, 1,000 owners {owners_warm}, 20,000 {owners}")
    assert len(scheduler.ledger.nodes) <= 152
    assert nodes - nodes_warm < 20
    assert owners - owners_warm < 40


def resident() -> int:
    """MiB."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) // 1024 for line in status if line.startswith("VmRSS"))
