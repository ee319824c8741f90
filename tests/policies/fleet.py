"""Machines and requests as the definitions of joint policies speak of them, and the same as nodes and pods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dovetail.engine.scheduler import Scheduler
from dovetail.engine.why.explain import verdicts
from dovetail.model.decision import Share
from dovetail.model.events import PodObserved
from dovetail.model.pod import DeviceAsk, DeviceRules, Pod, RunningPod
from tests.builders import ask, card, cluster, node, place, pod

MODELS = ("NVIDIA A100", "NVIDIA T4")


@dataclass(frozen=True)
class Request:
    """A pod; part = 1000 is a card for itself."""

    cpu: int
    cards: int
    part: int
    models: frozenset[int]
    times: int = 1


@dataclass(frozen=True)
class Machine:
    cpu: int
    model: int
    left: tuple[int, ...]

    @property
    def idle(self) -> int:
        return sum(left == 1000 for left in self.left)

    def with_less(self, request: Request, cards: tuple[int, ...]) -> Machine:
        left = tuple(milli - request.part if n in cards else milli for n, milli in enumerate(self.left))
        return replace(self, cpu=self.cpu - request.cpu, left=left)

    def choices(self, request: Request) -> list[tuple[int, ...]]:
        """One card: each that fits. Several: the first that fit. No card: nothing, in one way."""
        fitting = [n for n, left in enumerate(self.left) if left >= request.part]
        if request.cpu > self.cpu or (request.cards and self.model not in request.models):
            return []
        if request.cards == 1:
            return [(n,) for n in fitting]
        return [tuple(fitting[: request.cards])] if len(fitting) >= request.cards else []


def pod_of(name: str, request: Request, policy: str) -> Pod:
    asks = (DeviceAsk("NVIDIA", request.cards, 0, None, request.part),) if request.cards else ()
    rules = DeviceRules("NVIDIA", use_types=tuple(MODELS[n] for n in sorted(request.models)))
    return pod(name, *asks, node_policy=policy, cpu=request.cpu, rules=rules if asks else None)


def built(fleet: list[Machine], workload: list[Request], policy: str) -> Scheduler:
    """The machines as nodes 0, 1, …, worn by running pods, and the workload told."""
    nodes = []
    for n, machine in enumerate(fleet):
        cards = [card(f"{n}/{d}", index=d, model=MODELS[machine.model]) for d in range(len(machine.left))]
        nodes.append(node(f"{n}", *cards, cpu=machine.cpu))
    scheduler = cluster(*nodes)
    for n, machine in enumerate(fleet):
        for d, left in enumerate(machine.left):
            if left < 1000:
                worn = RunningPod(pod(f"on-{n}-{d}", ask(1)), f"{n}", (Share(0, f"{n}/{d}", 0, 1000 - left),))
                scheduler.handle(PodObserved(0.0, worn))
    scheduler.outlook.expect((pod_of(f"typical-{n}", one, policy), one.times) for n, one in enumerate(workload))
    return scheduler


def assert_best(scheduler: Scheduler, wanted: Pod, best: Mapping[str, tuple[int, tuple[int, ...]]]) -> None:
    """`best` is node -> points and cards, by definition: those are the scores, and of equal nodes the first wins."""
    found = {v.node: v.score for v in verdicts(scheduler, wanted) if v.score is not None}
    assert found == {name: float(high) for name, (high, _) in best.items()}
    ((where, cards),) = place(scheduler, wanted)
    if not best:
        assert where is None
        return
    winner = max(sorted(best), key=lambda name: best[name][0])
    assert (where, cards) == (winner, tuple(f"{winner}/{d}" for d in best[winner][1]))
