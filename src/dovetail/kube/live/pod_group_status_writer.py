"""Writes the status of PodGroups, and says in Events why a PodGroup waits.

Only the leader writes, a few objects at a time, and each object only when what we would say has changed: where another
controller writes the same fields, its word stays until then. Without the permission (deploy/optional/
pod-group-status) no status is written, which the log says once; Events need no further permission.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any

from dovetail.kube.api.client import Api
from dovetail.kube.api.errors import ApiError, Forbidden, NotFound
from dovetail.kube.api.retry import REAL, World
from dovetail.kube.conversion.amounts import amount, written_amount
from dovetail.kube.conversion.groups import KUBERNETES, queue_of
from dovetail.kube.conversion.queues import model_amounts
from dovetail.kube.conversion.vendors import Vendors
from dovetail.kube.live.deployed import remedy
from dovetail.kube.live.driver import Driver
from dovetail.kube.live.gang_reasons import same_but_numbers
from dovetail.kube.live.known import Stand
from dovetail.kube.live.pod_group_objects import PodGroupObject
from dovetail.kube.live.pod_group_status import Fields, GangState, is_written, stamped, wanted
from dovetail.kube.live.queue_status_writer import FORBIDDEN_SECONDS, MAX_STATUS_WRITES, STATUS_SECONDS
from dovetail.kube.live.tell import EventSubject, Note
from dovetail.kube.live.words import cut
from dovetail.kube.log import WARNING, Log
from dovetail.kube.objects.bounds import POD_GROUP_RESOURCES
from dovetail.kube.objects.queues import VOLCANO_GROUP
from dovetail.model.node import Node
from dovetail.model.pod import Pod
from dovetail.model.quantity import QuantityError


class ClusterTotals:
    """What all nodes have, counted once, when it is first asked for."""

    def __init__(self, nodes: Iterable[Node], vendors: Vendors) -> None:
        self._nodes, self._vendors = nodes, vendors

    @cached_property
    def _counted(self) -> tuple[Counter[str], Counter[str]]:
        """Amounts by resource, cards by vendor."""
        amounts, cards = Counter[str](), Counter[str]()
        for node in self._nodes:
            cards.update(device.vendor for device in node.devices)
            for name, has in node.allocatable.items():
                amounts[name] += has
        return amounts, cards

    def of(self, name: str) -> int | None:
        """What there is of the resource; None = it is not counted by node (parts of cards)."""
        if name in self._vendors.share_names:
            return None
        amounts, cards = self._counted
        vendor = self._vendors.by_count.get(name)
        return amounts[name] if vendor is None else cards[vendor.word]


class PodGroupStatusWriter:
    def __init__(
        self,
        api: Api,
        driver: Driver,
        may_write: Callable[[], bool],  # whether we are certain to be the leader at this moment
        vendors: Vendors,
        log: Log,
        world: World = REAL,
    ) -> None:
        self._api, self._driver, self._may_write = api, driver, may_write
        self._vendors, self._log, self._world = vendors, log, world
        self._not_before: dict[str, float] = {}  # API group -> when it is tried again after a refusal
        self._said: dict[str, tuple[str, Fields]] = {}  # key -> uid of the object, what was last written or found
        self._told: dict[str, tuple[str, str]] = {}  # key -> reason and message of its last Event
        self._first = 0  # the position in the list of PodGroups from which the next round starts
        self.written = 0

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._world.sleep(STATUS_SECONDS)
            try:
                await self.write_some()
            except Exception as error:
                self._driver.set_aside.other("Status of PodGroups", error)

    async def write_some(self) -> None:
        """Write the status of at most MAX_STATUS_WRITES objects, each PodGroup in its turn."""
        groups = dict(self._driver.mirror.pod_groups)
        self._said = {key: said for key, said in self._said.items() if key in groups}
        self._told = {key: told for key, told in self._told.items() if key in groups}
        if self._driver.paused or not groups:
            return
        states, names, sent = self._states(groups), list(groups), 0
        started = self._first % len(names)
        for key in (*names[started:], *names[:started]):
            if sent == MAX_STATUS_WRITES or not self._may_write():
                return
            self._first += 1
            state, pod = states[key]
            self._tell(key, groups[key], state, pod)
            fields = self._due(key, groups[key], state)
            if fields is not None:
                sent += 1
                await self._write(key, groups[key], fields)

    # ---- what is known ------------------------------------------------------------------------------------------

    def _states(self, groups: Mapping[str, PodGroupObject]) -> dict[str, tuple[GangState, Pod | None]]:
        """The state of each PodGroup, and one of its waiting pods."""
        mirror, said = self._driver.mirror, self._driver.reasons.gangs_said
        counts = {key: [0, 0, 0, 0] for key in groups}  # waiting, with a node, running, placed by us
        waits: dict[str, Pod] = {}
        for known in mirror.pods.values():
            count = counts.get(known.pod.group)
            if count is None:
                continue
            if known.stand is Stand.HOLDS:
                count[1] += 1
                count[2] += known.runs
                count[3] += known.pod.scheduler in self._driver.releases.schedulers
            elif known.stand is Stand.WAITS:
                count[0] += 1
                waits.setdefault(known.pod.group, known.pod)
        result: dict[str, tuple[GangState, Pod | None]] = {}
        totals = ClusterTotals(mirror.nodes.values(), self._vendors)
        for key, (waiting, holding, running, ours) in counts.items():
            done, failed = mirror.past.succeeded(key), mirror.past.failed(key)
            why = said[key].message if waiting and key in said else ""
            there = waiting + holding + done + failed
            refused = "" if there else self._refused(groups[key], totals)
            state = GangState(mirror.gangs.minimum(key), there, holding, running, done, failed, why, refused=refused)
            state = state._replace(is_ours=bool(waiting or ours or key in self._said))
            result[key] = (state, waits.get(key))
        return result

    def _refused(self, group: PodGroupObject, totals: ClusterTotals) -> str:
        """Why a Volcano PodGroup cannot be admitted: its minResources are more than the cluster or its queue has."""
        if group.name.api_group != VOLCANO_GROUP or self._may_not_yet(group):
            return ""
        asked = group.source.spec.min_resources
        if len(asked) > POD_GROUP_RESOURCES.most:
            return f"spec.minResources: {POD_GROUP_RESOURCES.exceeded(len(asked))}"
        for name, value in sorted(asked.items()):
            try:
                needs, has = amount(name, value), totals.of(name)
            except QuantityError as error:
                return cut(f"spec.minResources.{name}: {error}")
            if has is not None and needs > has:
                asks, have = written_amount(name, needs), written_amount(name, has)
                return cut(f"spec.minResources: {asks} of {name} are asked for, all nodes have {have}")
        queue = queue_of(group.name.api_group, group.source.spec)
        ceiling = self._driver.scheduler.claims.queues.ceiling_of(queue)
        for name, needs in sorted(model_amounts(asked, self._vendors).items()):
            if needs > ceiling.get(name, needs):
                more = f"{name} {needs} is more than the ceiling {ceiling[name]} of queue {queue}"
                return cut(f"spec.minResources: {more}")
        return ""

    # ---- what is said -------------------------------------------------------------------------------------------

    def _tell(self, key: str, group: PodGroupObject, state: GangState, pod: Pod | None) -> None:
        """Send an Event about the PodGroup when the reason why it waits has changed, or when it has its minimum."""
        now = ("Unschedulable", state.why) if state.why else ("", "")
        if not state.why and state.is_whole and key in self._told:
            now = ("Scheduled", f"{state.scheduled} members have a node, {state.minimum} are needed.")
        before = self._told.get(key, ("", ""))
        if now == ("", "") or same_but_numbers(before, now):
            return
        self._told[key] = now
        sender = pod or next((one.pod for one in self._members(key)), None)
        if sender is not None:
            about = EventSubject.of_pod_group(group)
            self._driver.teller.note(Note(sender, *now, warning=bool(state.why), about=about))

    def _members(self, key: str) -> Iterable[Any]:
        return (known for known in self._driver.mirror.pods.values() if known.pod.group == key)

    def _due(self, key: str, group: PodGroupObject, state: GangState) -> Fields | None:
        """The fields that must be written; None = nothing new is to be said, or not now."""
        is_ours = state.is_ours or (not state.there and group.name.api_group == VOLCANO_GROUP)
        fields = wanted(group, state) if state.minimum and is_ours else None
        uid = group.source.metadata.uid
        if fields is None or self._said.get(key) == (uid, fields):
            return None
        if self._may_not_yet(group):
            return None
        if is_written(group.source.status, fields):
            self._said[key] = (uid, fields)
            return None
        return fields

    def _may_not_yet(self, group: PodGroupObject) -> bool:
        """Whether we lack the right, and do not try again yet."""
        return self._not_before.get(group.name.api_group, 0.0) > self._world.now()

    async def _write(self, key: str, group: PodGroupObject, fields: Fields) -> None:
        status = stamped(group.source.status, fields, self._driver.now())
        kind = "strategic" if group.name.api_group == KUBERNETES else "merge"
        body = {"metadata": {"uid": group.source.metadata.uid}, "status": status}
        try:
            await self._api.patch(f"{group.path}/status", body, kind)  # type: ignore[arg-type]
            self.written += 1
        except NotFound:
            pass  # it is gone, or its kind has no status; the watch will tell
        except Forbidden as error:
            self._not_before[group.name.api_group] = self._world.now() + FORBIDDEN_SECONDS
            hint = f"{remedy('pod-group-status')}, or ignore this where another controller writes it"
            self._log(f"the status of {group.name} cannot be written: {error}; {hint}", WARNING)
            return
        except ApiError as error:
            self._log(f"the status of {group.name} is not written: {error}; it is tried again", WARNING)
            return
        self._said[key] = (group.source.metadata.uid, fields)
