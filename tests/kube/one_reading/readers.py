"""One set of objects through files, as `plan` reads it, and through watches, as the live scheduler does.

Both give a `Picture`: what is booked, what is decided, and what people are told. The two share no step but those that
they share in production.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, cast

import msgspec

from dovetail.engine.scheduler import Scheduler
from dovetail.engine.usage import CardUse, NodeUse, usage
from dovetail.kube.api.client import Api
from dovetail.kube.api.reflector import Reflector
from dovetail.kube.api.watch import Changed, Replaced
from dovetail.kube.conversion.cluster import load
from dovetail.kube.conversion.settings import Settings
from dovetail.kube.files.documents import parse
from dovetail.kube.live.binder import Binder
from dovetail.kube.live.driver import Driver
from dovetail.kube.live.hami_lock import HamiLocks
from dovetail.kube.live.mirror import Mirror
from dovetail.kube.live.reader import PodReader
from dovetail.kube.live.sources import Sources
from dovetail.kube.live.tell import Teller
from dovetail.kube.live.volume_mirror import VolumeMirror
from dovetail.kube.live.words import UNSCHEDULABLE, condition_reason, cut
from dovetail.kube.objects.problems import Problems
from dovetail.model.decision import Decision, Share
from dovetail.model.node import Node
from dovetail.model.pod import Group, Pod
from dovetail.model.reason import Reason
from dovetail.policies.table import DEVICE_POLICIES, NODE_POLICIES
from dovetail.whatif.plan import DOMAIN_REASONS, PlannedPod, plan, why_pending
from dovetail.whatif.situation import EngineOptions, start
from tests.kube.live.stage import Hands
from tests.kube.logged import Logged
from tests.kube.manifests import Object

SETTINGS = Settings(
    node_policies=frozenset(NODE_POLICIES), device_policies=frozenset(DEVICE_POLICIES), topology=("zone", "nowhere")
)
OPTIONS = EngineOptions(mode="interpreted", device_resources=tuple(SETTINGS.vendors.by_count))
LATER = 1_800_000_000.0  # the live scheduler's clock: every node is old enough to be believed
Told = tuple[str, str]  # the reason and the message of a pod's condition


@dataclass(frozen=True, slots=True)
class Picture:
    nodes: dict[str, Node] = field(default_factory=dict)
    holds: dict[str, tuple[str, tuple[Share, ...]]] = field(default_factory=dict)  # uid of a running pod -> node, cards
    uses: dict[str, tuple[Any, ...]] = field(default_factory=dict)  # node -> what is in use once everything is placed
    waits: dict[str, Pod] = field(default_factory=dict)  # uid -> a pod that was to be placed
    placed: dict[str, tuple[str, tuple[Share, ...]]] = field(default_factory=dict)  # uid -> node, cards
    reasons: dict[str, Reason] = field(default_factory=dict)  # uid of a pod that was not placed -> as decided first
    told: dict[str, Told] = field(default_factory=dict)  # the same -> what people read in the end
    gangs: dict[str, Any] = field(default_factory=dict)  # Group.name -> minimum, roles, topology of what waits
    topologies: dict[str, tuple[str, ...]] = field(default_factory=dict)  # name -> levels


def by_files(items: Sequence[Object], everything: bool = True) -> Picture:
    """As `plan -f` reads the set."""
    problems = Problems()
    given = load(parse("set.json", text_of(items), problems), SETTINGS, problems, everything)
    scheduler, _ = start(given, OPTIONS)
    made = plan(given, OPTIONS)
    pending = {each.pod.uid: each for each in made.pending}
    return Picture(
        nodes={node.name: node for node in given.nodes},
        holds=_holdings(scheduler),
        uses=_uses(made.after),
        waits={pod.uid: pod for group in given.groups for pod in group.pods},
        placed={each.pod.uid: _place(each.decision) for each in made.placed},
        reasons={uid: each.decision.reason for uid, each in pending.items()},
        told={
            uid: (_condition_reason(each), cut(why_pending(each) + "."))
            for uid, each in pending.items()
            if not _is_gated(each.pod)  # of gates the API server speaks itself
        },
        gangs={group.name: _gang(group) for group in given.groups if group.pods[0].group},
        topologies=dict(given.topologies),
    )


def _gang(group: Group) -> tuple[Any, ...]:
    return group.minimum, tuple(replace(role, running=0) for role in group.roles), group.topology


def text_of(items: Sequence[Object]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def by_watches(items: Sequence[Object], dice: Random) -> Picture:
    """As the live scheduler hears of the set: kinds in any order, but for Namespaces, which are listed first."""
    return asyncio.run(_Live().picture(items, dice))


class _Live:
    """A live scheduler without an API server: what its reflectors would deliver is handed on by hand."""

    def __init__(self) -> None:
        self.scheduler = Scheduler(mode="interpreted", device_resources=OPTIONS.device_resources)
        self.mirror = Mirror(PodReader({"dovetail": SETTINGS}), lambda: LATER)
        self.log, self.hands = Logged(), Hands()
        self.driver = Driver(self.scheduler, self.mirror, epoch="1.me", now=lambda: LATER, log=self.log)
        self.driver.binder, self.driver.teller = cast(Binder, self.hands), cast(Teller, self.hands)
        self.driver.paused = True
        self.reasons: dict[str, Reason] = {}
        self.waits: dict[str, Pod] = {}
        nobody = cast(Api, None)
        known = self.mirror.known
        locks = HamiLocks(nobody, exists=known.has, clears=known.may_hold, now=lambda: LATER, log=self.log)
        volumes = VolumeMirror()
        self.sources = Sources(nobody, self.driver, volumes, locks, SETTINGS.vendors, lambda: LATER, self.log)
        self.reflectors = {each.path: each for each in self.sources.reflectors}

    async def picture(self, items: Sequence[Object], dice: Random) -> Picture:
        self._hear(items, dice)
        self.driver.take_truth()
        holds = _holdings(self.scheduler)
        self.waits = {pod.uid: pod for pod in map(self._in_its_gang, self.mirror.pods) if pod is not None}
        gangs = {
            pod.group: _gang(group) for pod in self.waits.values() for group in self.mirror.gangs.groups(pod.group)
        }
        self._note_reasons()
        self.driver.paused = False
        await self._decide()
        assert not self.driver.set_aside.total, self.log
        placed = {bind.pod.uid: _place(bind.decision) for bind in self.hands.binds}
        return Picture(
            nodes=dict(self.mirror.nodes),
            holds=holds,
            uses=_uses(usage(self.scheduler)),
            waits=self.waits,
            placed=placed,
            reasons={uid: reason for uid, reason in self.reasons.items() if uid not in placed},
            told={uid: _told(*one) for uid, one in self.hands.conditions.items() if uid not in placed},
            gangs=gangs,
            topologies=self.sources._topologies._mirror._told,
        )

    def _hear(self, items: Sequence[Object], dice: Random) -> None:
        """Of one kind a list, of another each object by itself."""
        found: dict[str, list[Object]] = {path: [] for path in self.reflectors}
        for item in items:
            found[_path(item)].append(item)
        paths = sorted(found, key=lambda path: (path != "/api/v1/namespaces", dice.random()))
        for path in paths:
            if path == "/api/v1/nodes":  # who registers a card first is a fact: the live scheduler may not have seen it
                found[path].sort(key=lambda item: (item["metadata"]["creationTimestamp"], item["metadata"]["name"]))
            else:
                dice.shuffle(found[path])
            self._deliver(self.reflectors[path], found[path], dice)
        self.driver.happened(self.mirror.settled_by_now())

    def _deliver(self, reflector: Reflector[Any], items: list[Object], dice: Random) -> None:
        reflector._on_begin()
        page = reflector._reader.page(json.dumps({"metadata": {"resourceVersion": "9"}, "items": items}).encode())
        assert not page.unreadable, page.unreadable
        if dice.random() < 0.5:
            reflector._deliver([Replaced(page.items, [])])
        else:
            reflector._deliver([Replaced([], [])])
            for each in page.items:
                reflector._deliver([Changed(each)])
        reflector._on_watch(True)

    def _in_its_gang(self, uid: str) -> Pod | None:
        """A pod that waits, as it is offered to the engine."""
        pods = self.mirror.gangs.group(self.mirror.pods[uid].pod).pods if self.mirror.known.waits(uid) else ()
        return next((pod for pod in pods if pod.uid == uid), None)

    def _note_reasons(self) -> None:
        note = self.driver.reasons.note

        def noted(pod: Pod, decision: Decision) -> None:
            self.reasons.setdefault(pod.uid, decision.reason)
            note(pod, decision)

        self.driver.reasons.note = noted  # type: ignore[method-assign]

    async def _decide(self) -> None:
        running = asyncio.create_task(self.driver.run())
        await asyncio.sleep(0)
        while self.driver._has_work():
            await asyncio.sleep(0)
        self.driver.safety_net.look()
        while self.driver._has_work():
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait({running})
        assert running.cancelled(), running.exception()


def _path(item: Object) -> str:
    version, kind = item["apiVersion"], item["kind"].lower()
    plural = f"{kind}es" if kind.endswith("s") else f"{kind.removesuffix('y')}ies" if kind.endswith("y") else f"{kind}s"
    return f"/{'apis' if '/' in version else 'api'}/{version}/{plural}"


def _is_gated(pod: Pod) -> bool:
    return pod.refusal is not None and pod.refusal.reason is Reason.SCHEDULING_GATED


def _condition_reason(outcome: PlannedPod) -> str:
    """`plan` names what happened to the gang; the condition says whether another node would help its next member."""
    if outcome.reason in (Reason.GROUP_NOT_PLACED, *DOMAIN_REASONS) and outcome.lack.verdicts:
        return UNSCHEDULABLE
    return condition_reason(outcome.reason)


def _told(reason: str, message: str) -> Told:
    """As `plan` says it, which does not count the nodes that were asked before it says what they lack."""
    return reason, re.sub(r"0/\d+ nodes are available: ", "", message)


def _place(decision: Decision) -> tuple[str, tuple[Share, ...]]:
    return str(decision.node), decision.shares


def _holdings(scheduler: Scheduler) -> dict[str, tuple[str, tuple[Share, ...]]]:
    ledger = scheduler.ledger
    guessed = {uid: ledger.pods[uid].assumed for uid in ledger.pods}
    return {uid: (str(ledger.node_of(uid)), _shares(ledger.held_shares(uid), guessed[uid])) for uid in ledger.pods}


def _shares(shares: Iterable[Share], guessed: bool) -> tuple[Share, ...]:
    """Which of two pods that ask alike has which of two cards alike is no fact, where their cards are guessed."""
    return tuple(msgspec.structs.replace(share, uuid="guessed") if guessed else share for share in shares)


def _use(card: CardUse) -> CardUse:
    return replace(card, pods=("guessed",) * len(card.pods)) if card.assumed else card


def _uses(uses: Iterable[NodeUse]) -> dict[str, tuple[Any, ...]]:
    """Of each node what is in use, resources of which nothing is left out."""
    return {
        one.node.name: (
            {name: much for name, much in one.used.items() if much},
            sorted(map(_use, one.cards), key=str),  # those that only pods speak of stand in any order
            one.pods,
        )
        for one in uses
    }
