"""Properties of preemption plans: as good as kube-scheduler's by its own criteria, minimal, without loops."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dovetail.engine.kernel.state import ALLOCATED, POD_STATE
from dovetail.engine.rights.shortlist import shortlist
from dovetail.engine.scheduler import Scheduler
from dovetail.model.events import Bind, Evict, GroupArrived, NodeChanged, PodBound
from dovetail.model.pod import Group, Pod
from tests.builders import ask, group, node, pod
from tests.engine.pictures import picture
from tests.engine.preemption.world import RIGHTS, Cluster, job
from tests.properties import with_examples
from tests.strategies import World, worlds


def filled(world: World) -> tuple[Scheduler, Pod]:
    """The pods of the world one by one, with priorities 0 to 3; and one of priority 2 that has not arrived."""
    chance = world.chance
    *there, last = (replace(one, group="", priority=chance.randrange(4)) for each in world.groups for one in each.pods)
    scheduler = Scheduler(mode="interpreted", rights=RIGHTS)
    for one in world.nodes:
        scheduler.handle(NodeChanged(0.0, one))
    for number, each in enumerate(there, 1):
        handled(scheduler, float(number), replace(each, preempts=False))
    return scheduler, replace(last, priority=2, preempts=True)


def handled(scheduler: Scheduler, at: float, arriving: Pod) -> tuple[bool, list[Pod]]:
    """Whether the pod was placed, and the pods that were told to stop."""
    effects = scheduler.handle(GroupArrived(at, group(arriving)))
    placed = any(isinstance(effect, Bind) for effect in effects)
    if placed:
        scheduler.handle(PodBound(at, arriving.uid))
    return placed, [effect.pod for effect in effects if isinstance(effect, Evict)]


def by_definition(scheduler: Scheduler, asking: Pod, row: int) -> tuple[Any, ...] | None:
    """SelectVictimsOnNode, word for word: remove all, then give back in order of importance.

    Returns kube-scheduler's criteria for the node: highest priority, sum of priorities, number of victims.
    """
    ledger, placer = scheduler.ledger, scheduler.placer
    below = [uid for uid in ledger.held_on(row) if ledger.pods.pod(uid).priority < asking.priority]
    below = [uid for uid in below if not ledger.is_reserved(uid) and not ledger.pods.pod(uid).leaving]
    occupants = scheduler.claims._preemption.occupants  # type: ignore[union-attr]
    below.sort(key=lambda uid: (-ledger.pods.pod(uid).priority, occupants.times[uid].started, uid))
    with scheduler.trial():
        shares = {uid: ledger.held_shares(uid) for uid in below}
        pods = {uid: ledger.pods.pod(uid) for uid in below}
        ledger.release_all(below)
        if not below or not placer.single.fits_on(asking, row):
            return None
        victims = []
        for uid in below:
            ledger.book_observed(pods[uid], ledger.nodes[row].name, shares[uid], assumed=False)
            if not placer.single.fits_on(asking, row):
                ledger.release(uid)
                victims.append(pods[uid].priority)
    return (max(victims), sum(victims) + len(victims) * 2**31, len(victims)) if victims else None


@with_examples(120)
@given(worlds())
def test_the_plan_is_not_worse_than_the_one_by_definition(world: World) -> None:
    scheduler, asking = filled(world)
    if asking.refusal is not None:
        return
    rows = range(len(scheduler.ledger.nodes))
    before = picture(scheduler)
    fits = [row for row in rows if scheduler.placer.single.static_refusals(asking)[row] == 0]
    wanted = [found for row in fits if (found := by_definition(scheduler, asking, row)) is not None]
    assert picture(scheduler) == before
    placed, victims = handled(scheduler, 100.0, asking)
    stopped = [victim.priority for victim in victims]
    if placed:
        return
    assert bool(stopped) == bool(wanted)
    if stopped:
        assert (max(stopped), sum(stopped) + len(stopped) * 2**31, len(stopped)) <= min(wanted)


@with_examples(120)
@given(worlds())
def test_the_shortlist_leaves_out_no_row_that_helps(world: World) -> None:
    scheduler, asking = filled(world)
    ledger, placer = scheduler.ledger, scheduler.placer
    occupants = scheduler.claims._preemption.occupants  # type: ignore[union-attr]
    slots = occupants.candidates(asking.priority, ())
    assert all(ledger.book.pod[slot, POD_STATE] == ALLOCATED for slot in slots)
    shape = placer.requests.signature(asking).shape
    listed = set(shortlist(ledger, occupants, slots, shape, placer.single.static_refusals(asking)).tolist())
    for row in range(len(ledger.nodes)):
        if by_definition(scheduler, asking, row) is not None:
            assert row in listed


def random_cluster(chance: Random) -> Cluster:
    return Cluster(*(node(f"n{n}", gpus=chance.choice((2, 4))) for n in range(chance.randint(2, 4))))


def random_group(chance: Random, number: int) -> Group:
    size = chance.choice((1, 1, 1, 2, 3))
    priority, gpus, cores = chance.randrange(4), chance.choice((1, 1, 2)), chance.choice((25, 50, 100))
    name = f"j{number}"
    pods = tuple(pod(f"{name}-{n}", ask(gpus, cores=cores), priority=priority, group=name) for n in range(size))
    return Group(name, pods, chance.randint(1, size))


@with_examples(200)
@given(st.integers(0, 10**9))
def test_a_full_cluster_comes_to_rest(seed: int) -> None:
    """Every stopped pod comes back as a new one. After the last arrival, evictions end, and five more rounds change
    nothing: no pod takes back the place of a pod that outranks it.
    """
    chance = Random(seed)
    cluster = random_cluster(chance)
    for number in range(12):
        one = random_group(chance, number)
        cluster.arrive(*one.pods, minimum=one.minimum, group=one.name)
    again = 0
    for _ in range(60):
        ending = [name for name in cluster.stopped if name in cluster.bound]
        if not ending:
            break
        cluster.end(*ending)
        for name in ending:
            again += 1
            effect = next(effect for effect in cluster.evictions if effect.pod.name == name)
            cluster.arrive(replace(effect.pod, name=f"{name}.{again}", uid=f"uid-{name}.{again}", group=""))
    assert not [name for name in cluster.stopped if name in cluster.bound], "evictions do not end"
    rest, stopped = dict(cluster.bound), len(cluster.stopped)
    for _ in range(5):
        cluster.now += 10
        cluster.scheduler.retry_all(cluster.now)
    assert cluster.bound == rest
    assert len(cluster.stopped) == stopped


@with_examples(60)
@given(worlds())
def test_every_victim_is_needed(world: World) -> None:
    """Giving any one of them back, the pod does not fit in the planned place any more."""
    scheduler, asking = filled(world)
    _, victims = handled(scheduler, 100.0, asking)
    promise = scheduler.nominated.promised.get(asking.uid)
    if not victims or promise is None:
        return
    row, ledger = scheduler.ledger.row_of[promise.node], scheduler.ledger
    for spared in victims:
        with scheduler.trial():
            ledger.release_all([victim.uid for victim in victims if victim is not spared])
            scheduler.nominated.forget(asking.uid)
            fits = scheduler.placer.single.fits_on(asking, row)
            scheduler.nominated.promise(asking, promise.node, promise.shares)
        assert not fits
    with scheduler.trial():
        ledger.release_all([victim.uid for victim in victims])
        assert scheduler.placer.single.fits_on(asking, row)


def test_a_hundred_pods_that_cannot_be_helped_search_once() -> None:
    cluster = Cluster(node("n", gpus=1))
    cluster.arrive(job("low"))
    for number in range(100):
        cluster.happens(GroupArrived(5.0, group(job(f"big{number}", 10, gpus=2))))
    assert cluster.stopped == []
    assert len(cluster.scheduler.claims.helpless.names) == 100
