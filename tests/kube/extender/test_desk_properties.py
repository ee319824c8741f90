"""Requests, outcomes, expiry and news in any order: no card is given twice, and no reservation is left over."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.kube.live.binder import Fate
from dovetail.model.events import Bind
from tests.kube.extender.asked_stage import AskedStage, bound, waiting
from tests.kube.live.stage import gpu_node
from tests.kube.manifests import Object

NAMES, NODES = ("a", "b", "c", "d", "e"), ("n", "m")
CARDS = 2  # per node: five pods ask for one or two of four cards
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ("filter", "filter", "bind", "bound", "refused", "changed", "expire", "delete", "show", "node")
        ),
        st.sampled_from(NAMES),
        st.sampled_from((NODES, ("n",), ("m",))),
    ),
    max_size=40,
)


class World:
    """What the API server has, beside the stage that hears of it."""

    def __init__(self, stage: AskedStage) -> None:
        self.stage, self.lives = stage, Counter[str]()
        self.bound: dict[str, Bind] = {}  # by uid: what was written and not deleted
        self.asked: list[asyncio.Task[str]] = []

    def item(self, name: str) -> Object:
        return self.stamped(
            waiting(name, limits={"nvidia.com/gpu": 1 + (name in "bd"), "nvidia.com/gpucores": 100}), name
        )

    def stamped(self, item: Object, name: str) -> Object:
        item["metadata"]["uid"] = self.uid(name)
        return item

    def uid(self, name: str) -> str:
        return f"uid-{name}-{self.lives[name]}"

    async def step(self, what: str, name: str, nodes: tuple[str, ...]) -> None:
        stage, uid = self.stage, self.uid(name)
        under_way = uid in stage.sender.tasks
        if what == "filter":
            found = stage.filter(self.item(name), *nodes)
            assert set(found.names) <= set(nodes)
        elif what == "bind":
            self.asked.append(stage.ask_to_bind(self.item(name), nodes[0]))
        elif what == "bound" and under_way:
            self.bound[uid] = stage.outcome(Fate.BOUND, uid)
        elif what == "refused" and under_way:
            stage.outcome(Fate.REFUSED, uid, message="no")
        elif what == "changed" and under_way:
            stage.outcome(Fate.CHANGED, uid, self.item(name))
        elif what == "expire":
            stage.clock += 61
            stage.desk.expire()
        elif what == "delete" and not under_way:
            stage.pod_gone(self.item(name))
            self.bound.pop(uid, None)
            self.lives[name] += 1
        elif what == "show" and uid in self.bound:
            stage.pods(self.stamped(bound(name, self.bound[uid]), name))
        elif what == "node":
            stage.node_gone("m")
            stage.nodes(gpu_node("m", CARDS))
        await stage.settle()
        self.check()

    def check(self) -> None:
        """Every card belongs to one pod at most: of those that are bound, and those that have a reservation."""
        held = {**self.stage.driver.on_the_way, **self.bound}
        given = Counter(share.uuid for bind in held.values() for share in bind.decision.shares)
        assert all(count == 1 for count in given.values()), given
        assert set(self.stage.sender.tasks) <= set(held)

    async def end(self) -> None:
        """Everything is deleted: nothing is reserved any more."""
        for uid in list(self.stage.sender.tasks):
            self.stage.outcome(Fate.GONE, uid)
        for name in NAMES:
            self.stage.pod_gone(self.item(name))
        await self.stage.settle()
        self.stage.desk.expire()
        assert self.stage.holders() == set()
        assert self.stage.driver.on_the_way == {}
        await asyncio.wait_for(asyncio.gather(*self.asked), 30)
        assert self.stage.desk.reserved == []


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_no_card_is_given_twice_and_no_reservation_is_left(steps: list[Any]) -> None:
    async def play() -> None:
        async with AskedStage() as stage:
            stage.nodes(*(gpu_node(name, CARDS) for name in NODES))
            world = World(stage)
            for step in steps:
                await world.step(*step)
            await world.end()

    asyncio.run(play())
