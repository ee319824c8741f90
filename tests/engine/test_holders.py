"""Who holds what, by slot and by name; and decisions of several calls as one."""

from __future__ import annotations

import numpy as np
import pytest

from dovetail.engine.kernel.state import NONE
from dovetail.engine.ledger.decisions import Decisions, joined
from dovetail.engine.ledger.holders import Holders, LedgerError
from dovetail.engine.ledger.stream import Stream, pods_of
from dovetail.model.decision import Decision, Share
from dovetail.model.reason import Reason
from tests.builders import ask, cluster, group, node, pod


def some_holders(*names: str) -> Holders:
    """Pods with these names at slots 0, 1, …"""
    holders = Holders()
    holders.fit(len(names) + 2)
    for slot, name in enumerate(names):
        holders.add(f"uid-{name}", slot, pod(name), assumed=False)
    return holders


def test_what_is_held_is_a_value_as_it_was_when_asked() -> None:
    holders = some_holders("a", "b")
    held = holders["uid-a"]
    holders.assume("uid-a")
    assert (held.pod.name, held.slot, held.assumed) == ("a", 0, False)
    assert holders["uid-a"].assumed
    assert (len(holders), list(holders), "uid-a" in holders, "a" in holders) == (2, ["uid-a", "uid-b"], True, False)


def test_who_was_dropped_can_be_put_back() -> None:
    holders = some_holders("a", "b")
    before = dict(holders)
    dropped = holders.drop(["uid-b", "nobody", "uid-a"])
    assert dropped == [("uid-b", 1), ("uid-a", 0)]
    assert len(holders) == 0
    for uid, slot in reversed(dropped):
        holders.put_back(uid, slot)
    assert dict(holders) == before


def test_a_pod_is_booked_once() -> None:
    holders = some_holders("a")
    with pytest.raises(LedgerError, match="uid-a is booked already"):
        holders.add("uid-a", 1, pod("a"), assumed=False)
    templates = pods_of([pod("t")] * 2).templates
    slots = np.array([1, 2])
    for uids in (["uid-a", "uid-b"], ["twice", "twice"]):
        with pytest.raises(LedgerError, match="booked already"):
            some_holders("a").add_all(uids, slots, templates)


def test_a_pod_made_from_a_template_has_its_own_name() -> None:
    holders = Holders()
    holders.fit(3)
    template, itself = pod("t", ask(1, 100), owner="Deployment/default/web"), pod("me")
    pods = pods_of([template, template, itself])
    holders.add_all(["web-0", "web-1", "uid-me"], np.array([2, 0, 1]), pods.templates)
    held = holders["web-1"]
    assert (held.pod.name, held.pod.uid, held.slot) == ("web-1", "web-1", 0)
    assert (held.pod.containers, held.pod.owner) == (template.containers, template.owner)
    assert holders.pod("uid-me") is itself


def test_a_stream_twice_is_refused_and_its_names_are_held() -> None:
    scheduler = cluster(node("n", gpus=1))
    stream = Stream([pod("t", ask(1, 100))], np.zeros(3, dtype=np.int64), ["x", "y", "z"])
    assert all(decision.placed for decision in scheduler.place(stream))
    assert [held.pod.name for held in scheduler.ledger.pods.values()] == ["x", "y", "z"]
    with pytest.raises(LedgerError):
        scheduler.place(stream)


def test_a_stream_is_a_sequence_of_lone_pods() -> None:
    stream = Stream([pod("t", cpu=1), pod("u", cpu=2)], np.array([0, 1, 1]), ["x", "y", "z"])
    assert [(one.name, one.pods[0].resources["cpu"]) for one in stream] == [
        ("default/x", 1),
        ("default/y", 2),
        ("default/z", 2),
    ]
    assert list(stream[1:]) == list(stream)[1:]
    assert stream[-1] == list(stream)[2]
    assert [(one.name, times) for one, times in stream.counted()] == [("t", 1), ("u", 2)]
    with pytest.raises(IndexError):
        stream[3]
    with pytest.raises(ValueError, match="one per pod"):
        Stream([pod("t")], np.zeros(1, dtype=np.int64), ["x", "y"])


# ---- decisions


def some_decisions(uids: str, rows: list[int], cards: list[list[int]], generation: int) -> Decisions:
    """Pods named by letters, on the row given, with these cards, 10 MiB each."""
    starts = np.cumsum([0, *(len(one) for one in cards)])[:-1]
    taken = np.array([(0, n, 10, 0) for one in cards for n in one], dtype=np.int64).reshape(-1, 4)
    names = [("a", ("a/0", "a/1")), ("b", ("b/0", "b/1"))]
    reasons = np.array([0 if row != NONE else int(Reason.CPU) for row in rows], dtype=np.int64)
    return Decisions(list(uids), np.array(rows), names, reasons, starts, taken, generation)


def share(uuid: str) -> Share:
    return Share(0, uuid, 10, 0)


def test_joined_decisions_are_arrays_where_all_parts_are() -> None:
    first = some_decisions("pq", [0, 1], [[0, 1], [1]], 7)
    second = some_decisions("rst", [NONE, 1, 0], [[], [0], []], 9)
    both = joined([first, (), second])
    assert isinstance(both, Decisions)
    assert list(both) == [
        Decision("p", "a", (share("a/0"), share("a/1")), Reason.OK, 9),
        Decision("q", "b", (share("b/1"),), Reason.OK, 9),
        Decision("r", None, (), Reason.CPU, 9),
        Decision("s", "b", (share("b/0"),), Reason.OK, 9),
        Decision("t", "a", (), Reason.OK, 9),
    ]
    assert both.placed_uids() == ["p", "q", "s", "t"]
    assert both[1:3] == [both[1], both[2]]
    assert both[-1].uid == "t"


def test_joined_decisions_are_values_where_some_part_is() -> None:
    first, alone = some_decisions("p", [0], [[0]], 7), Decision("x", None, (), Reason.CPU, 8)
    assert joined([first, [alone]]) == [first[0], alone]
    assert joined([(), first, ()]) is first
    assert list(joined([])) == []


def test_a_call_in_parts_reads_like_its_parts() -> None:
    """The outlook changes at pods 1, 2, 4 and 8, so there are several calls of the kernel."""
    templates = [pod("t", ask(1, 1000), node_policy="fgd"), pod("u", ask(2, 3000), node_policy="fgd")]
    stream = Stream(templates, np.array([0, 1] * 6), [f"p{n}" for n in range(12)])
    nodes = [node(name, gpus=2) for name in "ab"]
    at_once = cluster(*nodes).place(stream)
    assert isinstance(at_once, Decisions)
    by_one, scheduler = list[Decision](), cluster(*nodes)
    for one in stream:
        by_one += scheduler.place([group(*one.pods)])
    assert [(d.uid, d.node, d.shares, d.reason) for d in at_once] == [
        (d.uid, d.node, d.shares, d.reason) for d in by_one
    ]
