"""Random stories of gangs: pods, PodGroups, nodes, refusals and restarts in any order never split a gang."""

from __future__ import annotations

import asyncio
import random

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from dovetail.kube.api.typed import Ref
from dovetail.kube.api.watch import Changed, Deleted, NotServed, Replaced
from dovetail.kube.conversion.groups import Standing
from dovetail.kube.live.binder import Fate
from dovetail.kube.objects import core as objects
from dovetail.model.events import Bind
from tests.kube.live.stage import Stage, bound, gpu_node, read, waiting
from tests.kube.manifests import Object
from tests.properties import with_examples

API, VERSION = "scheduling.x-k8s.io", "v1alpha1"
LABEL = "scheduling.x-k8s.io/pod-group"
GANGS = ("red", "blue")


def key(gang: str) -> str:
    return f"PodGroup/ml/{gang}@{API}"


class Story:
    """What the API server holds, a scheduler that hears of it, and what is checked after every event."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.pods: dict[str, Object] = {}  # by name
        self.groups: dict[str, int] = {}  # gang -> minimum
        self.nodes = {"n0": 2}
        self.made = self.version = self.heard = 0
        self.binds: dict[str, Bind] = {}  # under way, by pod name

    async def tell(self, steps: int) -> None:
        while steps > 0:
            async with Stage() as stage:
                await self.start(stage)
                for _ in range(steps):
                    steps -= 1
                    if self.chance.random() < 0.05:
                        break  # killed: some binds under way come true, unheard of
                    await self.step(stage)
            for name in [name for name in self.binds if self.chance.random() < 0.5]:
                self.pods[name] = self.running(name)
            self.binds, self.heard = {}, 0

    async def start(self, stage: Stage) -> None:
        stage.driver.paused = True
        for name, cards in self.nodes.items():
            stage.nodes(gpu_node(name, cards))
        self.hear(stage, Replaced([self.group(gang) for gang in self.groups], []))
        items = list(self.pods.values())
        self.chance.shuffle(items)
        stage.driver.hear_pods([Replaced([read(item) for item in items], [])])
        stage.driver.take_truth()
        before = stage.holders()
        stage.driver.paused = False
        stage.driver.happened(())
        await self.check(stage, before)

    async def step(self, stage: Stage) -> None:
        before = stage.holders()
        acts = (self.create, self.create, self.create, self.regroup, self.regroup, self.answer, self.answer)
        for _ in range(self.chance.choice((1, 1, 2, 4))):  # heard in one moment
            self.chance.choice((*acts, self.answer, self.delete, self.grow, self.watch, self.relabel))(stage)
        stage.clock += 0.5
        await self.check(stage, before)

    async def check(self, stage: Stage, before: set[str]) -> None:
        await stage.settle()
        for bind in stage.hands.binds[self.heard :]:
            if bind.pod.name in self.pods:  # else it was deleted in the same moment
                self.binds[bind.pod.name] = bind
        self.heard = len(stage.hands.binds)
        held, gangs = stage.holders(), stage.mirror.gangs
        for gang in GANGS:
            members = {name for name in held if self.pods[name]["metadata"]["labels"].get(LABEL) == gang}
            if new := members - before:
                assert gangs.minimum(key(gang)), f"{new} placed without a PodGroup"
                assert len(members) >= gangs.minimum(key(gang)), f"{new} placed: {members}"

    # ---- what may happen ------------------------------------------------------------------------------------------

    def create(self, stage: Stage) -> None:
        self.made += 1
        name = f"p{self.made}"
        gang = self.chance.choice((*GANGS, *GANGS, ""))
        item = waiting(name, self.next(), labels={LABEL: gang} if gang else {})
        item["spec"]["priority"] = self.chance.choice((0, 0, 10))
        self.pods[name] = item
        stage.pods(item)

    def regroup(self, stage: Stage) -> None:
        gang = self.chance.choice(GANGS)
        if self.chance.random() < 0.2 and self.groups.pop(gang, 0):
            self.hear(stage, Deleted(Ref("ml", gang, ""), None))
        elif self.chance.random() < 0.1:
            self.hear(stage, NotServed())
            self.hear(stage, Replaced([self.group(each) for each in self.groups], []))
        else:
            self.groups[gang] = self.chance.randint(1, 4)
            self.hear(stage, Changed(self.group(gang)))

    def answer(self, stage: Stage) -> None:
        """Outcome and watch come in either order, or only one of them now."""
        if not self.binds:
            return
        name = self.chance.choice(sorted(self.binds))
        bind = self.binds.pop(name)
        if self.chance.random() < 0.3:
            stage.answer(Fate.REFUSED, bind, message="no")
            if self.chance.random() < 0.5:
                stage.driver.outcomes.again(bind.pod)
            return
        self.pods[name] = self.running(name, bind)
        heard_first = self.chance.random() < 0.5
        if heard_first:
            stage.pods(self.pods[name])
        stage.answer(Fate.BOUND, bind)
        if not heard_first:
            stage.pods(self.pods[name])

    def delete(self, stage: Stage) -> None:
        for name in self.chance.sample(sorted(self.pods), min(len(self.pods), self.chance.choice((1, 1, 3)))):
            item = self.pods.pop(name)
            self.binds.pop(name, None)
            stage.pod_gone(item)

    def grow(self, stage: Stage) -> None:
        name = self.chance.choice(("n0", "n1", "n2"))
        self.nodes[name] = max(self.nodes.get(name, 0), self.chance.randint(1, 4))
        stage.nodes(gpu_node(name, self.nodes[name]))

    def watch(self, stage: Stage) -> None:
        standing = self.chance.choice((Standing.BEHIND, Standing.LISTED))
        stage.driver.happened(stage.mirror.pod_groups_stand(API, VERSION, standing))

    def relabel(self, stage: Stage) -> None:
        free = [name for name, item in self.pods.items() if name not in self.binds and "nodeName" not in item["spec"]]
        if free:
            name = self.chance.choice(sorted(free))
            gang = self.chance.choice((*GANGS, ""))
            item = waiting(name, self.next(), labels={LABEL: gang} if gang else {})
            self.pods[name] = item
            stage.pods(item)

    # ---- objects --------------------------------------------------------------------------------------------------

    def hear(self, stage: Stage, event: Replaced[objects.PodGroup] | Changed[objects.PodGroup] | object) -> None:
        stage.driver.happened(stage.mirror.hear_pod_groups([event], API, VERSION))  # type: ignore[list-item]

    def group(self, gang: str) -> objects.PodGroup:
        source = {"metadata": {"name": gang, "namespace": "ml"}, "spec": {"minMember": self.groups[gang]}}
        return msgspec.convert(source, objects.PodGroup)

    def running(self, name: str, bind: Bind | None = None) -> Object:
        item = bound(name, bind or self.binds[name], self.next())
        item["metadata"]["labels"] = self.pods[name]["metadata"]["labels"]
        item["spec"]["priority"] = self.pods[name]["spec"].get("priority", 0)
        return item

    def next(self) -> int:
        self.version += 1
        return self.version


@with_examples(100)
@example(29140)  # a lone pod gets a gang's label in the moment in which a card becomes free
@given(st.integers(0, 2**32 - 1))
def test_no_gang_is_ever_split(seed: int) -> None:
    """Whenever a member is placed, its gang then has its minimum, the members included that hold a place already."""
    asyncio.run(Story(seed).tell(40))
