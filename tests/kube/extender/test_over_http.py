"""The extender over HTTP, as kube-scheduler asks: `/preempt` in both of its forms, and pods with volumes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import aiohttp
import msgspec
import pytest

from dovetail.kube.api.watch import Changed
from dovetail.kube.live.rights import PreemptionOptions, live_rights
from dovetail.kube.live.service import LiveScheduler
from dovetail.kube.live.volume_mirror import TYPES, VolumeMirror
from dovetail.model.events import VolumesChanged
from dovetail.web.extender import LIMITS, ExtenderRoutes
from dovetail.web.serving import WebServer
from tests.kube.extender.asked_stage import AskedStage, bound, waiting
from tests.kube.manifests import Object, card, node

pytestmark = pytest.mark.asyncio
HOST = "127.0.0.1"
PREEMPTING = live_rights(PreemptionOptions(), ("dovetail",))
HOSTNAME = "kubernetes.io/hostname"


class Asked:
    """An extender that listens, and what is around it."""

    def __init__(self, stage: AskedStage, session: aiohttp.ClientSession, port: int) -> None:
        self.stage, self._session, self._port, self._volumes = stage, session, port, VolumeMirror()

    async def post(self, verb: str, body: Any) -> tuple[int, Any]:
        """Status, and the decoded answer or its text."""
        async with self._session.post(f"http://{HOST}:{self._port}/{verb}", json=body) as answer:
            is_json = answer.content_type == "application/json"
            return answer.status, await (answer.json() if is_json else answer.text())

    async def filter(self, item: Object, *nodes: str) -> Any:
        return (await self.post("filter", {"Pod": item, "NodeNames": list(nodes)}))[1]

    async def preempt(self, item: Object, **victims: list[str]) -> Any:
        """The answer to NodeNameToMetaVictims, which kube-scheduler sends where nodeCacheCapable is true."""
        given = {
            name: {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": 0} for name, uids in victims.items()
        }
        return (await self.post("preempt", {"Pod": item, "NodeNameToMetaVictims": given}))[1]

    def hear(self, kind: str, name: str, namespace: str = "", **parts: Any) -> None:
        """The API server reports an object of volumes."""
        meta: Object = {"name": name, "namespace": namespace}
        if kind == "PersistentVolumeClaim":  # as the controller leaves one that is bound
            meta |= {"uid": f"uid-{name}", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
        body = {"metadata": meta, **parts}
        news = self._volumes.hear(kind, [Changed(msgspec.convert(body, TYPES[kind]))])
        self.stage.driver.happened((VolumesChanged(self.stage.clock, news.facts, news.gone),))

    def volume_on(self, where: str, claim: str = "data") -> None:
        """A claim that is bound to a volume which only this node can reach."""
        terms = [{"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [where]}]}]
        self.hear("StorageClass", "local", provisioner="kubernetes.io/no-provisioner")
        self.hear(
            "PersistentVolume",
            f"pv-{claim}",
            spec={
                "capacity": {"storage": "10Gi"},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "local",
                "claimRef": {"kind": "PersistentVolumeClaim", "namespace": "ml", "name": claim, "uid": f"uid-{claim}"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
            },
            status={"phase": "Bound"},
        )
        self.hear(
            "PersistentVolumeClaim",
            claim,
            "ml",
            spec={
                "volumeName": f"pv-{claim}",
                "storageClassName": "local",
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "10Gi"}},
            },
            status={"phase": "Bound"},
        )

    async def runs(self, name: str, where: str, priority: int = 1) -> None:
        """A pod that has been given the card of a node, and runs there."""
        item = _rank(waiting(name), priority)
        assert (await self.filter_reported(item, where))["NodeNames"] == [where]
        bind = self.stage.driver.on_the_way[f"uid-{name}"]
        self.stage.pods(_rank(bound(name, bind), priority))
        await self.stage.settle()

    async def filter_reported(self, item: Object, *nodes: str) -> Any:
        self.stage.pods(item)
        return await self.filter(item, *nodes)


@asynccontextmanager
async def asking(**more: Any) -> AsyncIterator[Asked]:
    async with AskedStage(**more) as stage:
        routes = ExtenderRoutes(stage.extender, cast(LiveScheduler, stage.service)).by_path()
        server = WebServer(routes, stage.log, limits=LIMITS)
        async with server.listening(HOST, 0), aiohttp.ClientSession() as session:
            yield Asked(stage, session, server.port)


def _rank(item: Object, priority: int) -> Object:
    item["spec"]["priority"] = priority
    return item


def _with_claim(item: Object, claim: str = "data") -> Object:
    item["spec"]["volumes"] = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}}]
    return item


def _nodes(*names: str) -> list[Object]:
    return [node(name, card(f"GPU-{name}-0"), labels={HOSTNAME: name}) for name in names]


def _cpu_only(name: str, where: str) -> Object:
    """A running pod that kube-scheduler would stop for its CPU."""
    item = _rank(waiting(name, limits={"cpu": "1"}), 1)
    item["spec"]["nodeName"] = where
    return item


def _meta(*uids: str) -> Object:
    return {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": 0}


async def test_preempt_names_the_victims_that_the_cards_need() -> None:
    async with asking(rights=PREEMPTING) as asked:
        asked.stage.nodes(*_nodes("n", "m"))
        await asked.runs("big", "n")
        await asked.runs("equal", "m", priority=9)
        asked.stage.pods(_cpu_only("small", "n"), _cpu_only("tiny", "m"), urgent := _rank(waiting("urgent"), 9))
        said = await asked.preempt(urgent, n=["uid-small"], m=["uid-tiny"], unknown=["uid-x"])
        # big goes too; on m the card is held by a pod of the same priority, so the node is left out
        assert said == {"NodeNameToMetaVictims": {"n": _meta("uid-small", "uid-big")}}
        assert asked.stage.holders() >= {"big", "equal"}  # nothing was done
        assert asked.stage.evictors.evictions == []


async def test_preempt_with_whole_pods_is_answered_with_their_uids() -> None:
    """NodeNameToVictims, which kube-scheduler sends where nodeCacheCapable is false."""
    async with asking(rights=PREEMPTING) as asked:
        asked.stage.nodes(*_nodes("n"))
        await asked.runs("big", "n")
        asked.stage.pods(urgent := _rank(waiting("urgent"), 9))
        victims = {"n": {"Pods": [{"metadata": {"name": "big", "uid": "uid-big"}}], "NumPDBViolations": 1}}
        status, said = await asked.post("preempt", {"Pod": urgent, "NodeNameToVictims": victims})
        assert (status, said) == (
            200,
            {"NodeNameToMetaVictims": {"n": {"Pods": [{"UID": "uid-big"}], "NumPDBViolations": 1}}},
        )


async def test_without_preemption_of_our_own_only_victims_that_free_the_cards_count() -> None:
    """As the extender runs by default: nothing is added to what kube-scheduler has chosen."""
    async with asking() as asked:
        asked.stage.nodes(*_nodes("n", "m"))
        await asked.runs("big", "n")
        await asked.runs("other", "m")
        asked.stage.pods(_cpu_only("tiny", "m"), urgent := _rank(waiting("urgent"), 9))
        said = await asked.preempt(urgent, n=["uid-big"], m=["uid-tiny"])
        assert said == {"NodeNameToMetaVictims": {"n": _meta("uid-big")}}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "Pod is missing"),
        ({"Pod": _rank(waiting("gone"), 9)}, "the pod is gone, or not reported"),
        ({"Pod": waiting("a"), "NodeNameToMetaVictims": {"n": {"Pods": [{}]}}}, "a victim on node n has no UID"),
        ({"Pod": waiting("a"), "NodeNameToMetaVictims": ["n"]}, "NodeNameToMetaVictims: an object of nodes"),
    ],
)
async def test_what_preempt_cannot_answer_has_status_400(body: Object, said: str) -> None:
    async with asking() as asked:
        asked.stage.nodes(*_nodes("n"))
        status, text = await asked.post("preempt", body)
        assert status == 400
        assert said in text


async def test_preempt_waits_for_the_report_of_its_pod() -> None:
    """kube-scheduler may know a pod before Dovetail does; it would not ask again for minutes."""
    async with asking(rights=PREEMPTING) as asked:
        asked.stage.nodes(*_nodes("n"))
        await asked.runs("big", "n")
        urgent = _rank(waiting("urgent"), 9)
        asking_now = asyncio.create_task(asked.preempt(urgent, n=["uid-big"]))
        await asyncio.sleep(0.05)
        assert not asking_now.done()
        asked.stage.pods(urgent)
        assert await asking_now == {"NodeNameToMetaVictims": {"n": _meta("uid-big")}}


async def test_a_replica_that_does_not_lead_preempts_nothing() -> None:
    async with asking() as asked:
        asked.stage.service.ready = False
        status, text = await asked.post("preempt", {"Pod": waiting("a"), "NodeNameToMetaVictims": {}})
        assert (status, "does not serve now" in text) == (400, True)


async def test_filter_and_prioritize_keep_a_pod_where_its_volume_is() -> None:
    async with asking() as asked:
        asked.stage.nodes(*_nodes("n", "m", "k"))
        asked.volume_on("m")
        item = _with_claim(waiting("a"))
        said = await asked.filter_reported(item, "n", "m", "k")
        assert said["NodeNames"] == ["m"]
        _, scores = await asked.post("prioritize", {"Pod": item, "NodeNames": ["n", "m"]})
        assert scores == [{"Host": "n", "Score": 0}, {"Host": "m", "Score": 10}]


async def test_a_volume_elsewhere_is_a_reason_that_no_preemption_ends() -> None:
    """kube-scheduler does not try to make room on nodes of FailedAndUnresolvableNodes."""
    async with asking() as asked:
        asked.stage.nodes(*_nodes("n", "m"))
        asked.volume_on("m")
        await asked.runs("holder", "m")
        said = await asked.filter_reported(_with_claim(waiting("a")), "n", "m")
        assert said["NodeNames"] == []
        assert set(said["FailedNodes"]) == {"m"}  # its card is in use
        assert set(said["FailedAndUnresolvableNodes"]) == {"n"}


async def test_a_claim_that_does_not_exist_yet_holds_its_pod_back() -> None:
    async with asking() as asked:
        asked.stage.nodes(*_nodes("n"))
        item = _with_claim(waiting("a"))
        said = await asked.filter_reported(item, "n")
        assert said["NodeNames"] == []
        asked.volume_on("n")
        assert (await asked.filter(item, "n"))["NodeNames"] == ["n"]


async def test_preempt_leaves_out_nodes_that_the_pods_volume_cannot_reach() -> None:
    async with asking(rights=PREEMPTING) as asked:
        asked.stage.nodes(*_nodes("n", "m"))
        asked.volume_on("m")
        for name, where in (("low-n", "n"), ("low-m", "m")):
            await asked.runs(name, where)
        asked.stage.pods(urgent := _with_claim(_rank(waiting("urgent"), 9)))
        said = await asked.preempt(urgent, n=["uid-low-n"], m=["uid-low-m"])
        assert said == {"NodeNameToMetaVictims": {"m": _meta("uid-low-m")}}


async def test_preempt_counts_the_volumes_that_victims_give_back() -> None:
    """The node attaches one volume, and `holder` has it."""
    async with asking(rights=PREEMPTING) as asked:
        asked.stage.nodes(*_nodes("n"))
        asked.hear("CSINode", "n", spec={"drivers": [{"name": "x.csi", "nodeID": "n", "allocatable": {"count": 1}}]})
        for claim in ("one", "two"):
            _csi_volume(asked.hear, claim)
        holder = _with_claim(_rank(waiting("holder", limits={"cpu": "1"}), 1), "one")
        holder["spec"]["nodeName"] = "n"
        asked.stage.pods(holder)
        await asked.runs("big", "n")
        asked.stage.pods(urgent := _with_claim(_rank(waiting("urgent"), 9), "two"))
        enough = await asked.preempt(urgent, n=["uid-big", "uid-holder"])
        assert enough == {"NodeNameToMetaVictims": {"n": _meta("uid-big", "uid-holder")}}
        more = await asked.preempt(urgent, n=["uid-big"])  # the attached volume of `holder` is in the way
        assert more == {"NodeNameToMetaVictims": {"n": _meta("uid-big", "uid-holder")}}


def _csi_volume(hear: Callable[..., None], claim: str) -> None:
    source = {"driver": "x.csi", "volumeHandle": claim}
    reference = {"kind": "PersistentVolumeClaim", "namespace": "ml", "name": claim, "uid": f"uid-{claim}"}
    modes, amount = ["ReadWriteOnce"], {"storage": "1Gi"}
    volume = {"capacity": amount, "csi": source, "claimRef": reference, "accessModes": modes}
    hear("PersistentVolume", f"pv-{claim}", spec=volume, status={"phase": "Bound"})
    spec = {"volumeName": f"pv-{claim}", "accessModes": modes, "resources": {"requests": amount}}
    hear("PersistentVolumeClaim", claim, "ml", spec=spec, status={"phase": "Bound"})


async def test_bind_of_a_pod_with_a_volume_names_the_node_of_its_volume_only() -> None:
    async with asking() as asked:
        asked.stage.nodes(*_nodes("n", "m"))
        asked.volume_on("m")
        item = _with_claim(waiting("a"))
        asked.stage.pods(item)
        elsewhere = {"PodName": "a", "PodNamespace": "ml", "PodUID": "uid-a", "Node": "n"}
        status, said = await asked.post("bind", elsewhere)
        assert status == 200
        assert said["Error"].startswith("node n: ")
        assert asked.stage.sender.binds == []
