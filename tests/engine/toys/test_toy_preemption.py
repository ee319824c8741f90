"""A toy preemption, by priority: a value that is given to the scheduler."""

from __future__ import annotations

from dovetail.engine.ledger import audit
from dovetail.engine.scheduler import Rights, Scheduler
from dovetail.model.events import Bind, Effect, Event, Evict, GroupArrived, NodeChanged, PodBound, PodGone
from dovetail.model.pod import Group
from dovetail.policies.orders import JobFacts
from dovetail.policies.yielding import Held, Yielding
from tests.builders import ask, node, pod


def cost(held: Held, group: Group, facts: JobFacts) -> tuple[int, float] | None:
    return (held.pod.priority, -held.facts.arrival) if held.pod.priority < facts.priority else None


def cluster(*gpus: int) -> Scheduler:
    scheduler = Scheduler(rights=Rights(yielding=Yielding("priority", "Lower priorities yield.", cost)))
    for n, count in enumerate(gpus):
        scheduler.handle(NodeChanged(0.0, node(f"n{n}", gpus=count)))
    return scheduler


def happens(scheduler: Scheduler, event: Event) -> list[tuple[str, str]]:
    """What was done, and to which pod. Bindings come true at once; pods that are told to stop do not end by that."""
    effects: tuple[Effect, ...] = scheduler.handle(event)
    for effect in effects:
        if isinstance(effect, Bind):
            scheduler.handle(PodBound(event.at, effect.pod.uid))
    audit.validate(scheduler.ledger)
    return [(type(e).__name__, e.pod.name) for e in effects if isinstance(e, Bind | Evict)]


def group(name: str, pods: int = 1, gpus: int = 1, priority: int = 0) -> Group:
    made = [pod(f"{name}{n}", ask(gpus, cores=100), priority=priority, group=f"g/{name}") for n in range(pods)]
    return Group(f"g/{name}", tuple(made), minimum=pods)


def test_a_pod_that_outranks_others_takes_the_place_it_needs() -> None:
    """Four GPUs, all taken by pods of priority 0. A pod that is being stopped for one group is not taken again."""
    scheduler = cluster(2, 2)
    for name in "abcd":
        assert happens(scheduler, GroupArrived(1.0, group(name))) == [("Bind", f"{name}0")]
    assert happens(scheduler, GroupArrived(2.0, group("low"))) == []  # the same priority: no pod yields
    assert happens(scheduler, GroupArrived(3.0, group("one", priority=5))) == [("Evict", "a0")]
    assert happens(scheduler, GroupArrived(4.0, group("late", priority=1)))[0][1] != "a0"  # a0 ends for `one`
    assert happens(scheduler, PodGone(5.0, "uid-a0")) == [("Bind", "one0")]  # not `low`, which came first


def test_a_gang_is_placed_when_its_last_victim_has_ended() -> None:
    scheduler = cluster(2, 2)
    for name in "abcd":
        happens(scheduler, GroupArrived(1.0, group(name)))
    stopped = happens(scheduler, GroupArrived(2.0, group("gang", pods=2, gpus=2, priority=5)))
    assert sorted(stopped) == [("Evict", f"{name}0") for name in "abcd"]
    for name in "abc":
        assert happens(scheduler, PodGone(3.0, f"uid-{name}0")) == []
    assert happens(scheduler, PodGone(4.0, "uid-d0")) == [("Bind", "gang0"), ("Bind", "gang1")]
