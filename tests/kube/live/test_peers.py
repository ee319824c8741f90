"""Other Dovetails, by their Leases: which are alive, which have the same nodes, and who has the older right."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
import yaml

from dovetail.cli.commands.scheduler import scheduler
from dovetail.kube.api.errors import Forbidden
from dovetail.kube.api.retry import World
from dovetail.kube.live.election import OtherNames, Terms
from dovetail.kube.live.lease import Lease, LeaseMeta, LeaseSpec, Marks
from dovetail.kube.live.peers import LONGEST_LEASE_SECONDS, MOST_MARKS, REMIND, Overlap, Peers, disjoint
from dovetail.kube.live.times import to_microsecond
from dovetail.kube.log import ERROR, INFO, Field, Level
from tests.kube.live.test_election import Clock, Leases, candidate

pytestmark = pytest.mark.asyncio
NOW = 1_700_000_000.0
A, B = (("pool", "a"),), (("pool", "b"),)


def _lease(name: str, acquired: float = 0.0, renewed: float = 0.0, **more: Any) -> Lease:
    marks = Marks((name,), more.get("selector", ()))
    times = to_microsecond(NOW + acquired), to_microsecond(NOW + renewed)
    return Lease(
        LeaseMeta(name, more.get("namespace", "kube-system"), "", marks.metadata()["annotations"]),
        LeaseSpec(more.get("holder", name), more.get("seconds", 15), *times, 0),
    )


class Cluster:
    """Leases as the API server lists them, by a clock that sleeping turns."""

    def __init__(self, *others: Lease, own: Lease | None = None, namespaces: tuple[str, ...] = ()) -> None:
        self.namespaces = namespaces
        self.own, self.others = own or _lease("me", acquired=10.0), list(others)
        self.clock, self.asked, self.log = Clock(), [], []  # type: ignore[var-annotated]
        self.forbidden: tuple[str, ...] = ()
        self.levels: list[Level] = []
        self.said: list[str] = []
        self.turns: dict[int, Any] = {}  # what happens at the nth list

    async def get(self, path: str, params: Any) -> bytes:
        self.asked.append((path, params))
        if path in self.forbidden:
            raise Forbidden("may not", code=403)
        if change := self.turns.get(len(self.asked)):
            change()
        return msgspec.json.encode({"items": [self.own, *self.others]})

    def renew(self, n: int = 0) -> None:
        spec = msgspec.structs.replace(self.others[n].spec, renew_time=to_microsecond(NOW + self.clock.now))
        self.others[n] = Lease(self.others[n].metadata, spec)

    @property
    def peers(self) -> Peers:
        api: Any = self
        world = World(now=lambda: self.clock.now, sleep=self.clock.sleep, chance=lambda: 0.0)
        return Peers(
            api,
            lambda: self.own,
            terms=Terms(),
            now=lambda: NOW + self.clock.now,
            log=self._note,
            namespaces=self.namespaces,
            world=world,
        )

    def _note(self, text: str, level: Level = INFO, /, **fields: Field) -> None:
        self.log.append(text)
        self.levels.append(level)

    async def until_alone(self) -> float:
        """Seconds until it could go on."""
        await asyncio.wait_for(self.peers.until_alone(self.said.append), 20)
        return self.clock.now


async def test_alone_it_goes_on_at_once() -> None:
    cluster = Cluster()
    assert await cluster.until_alone() == 0
    assert cluster.asked == [("/apis/coordination.k8s.io/v1/leases", {"labelSelector": "dovetail.dev/scheduler"})]


async def test_an_older_one_that_falls_silent_is_waited_for_as_long_as_its_lease_holds() -> None:
    cluster = Cluster(_lease("old"))
    cluster.turns = dict.fromkeys(range(5), cluster.renew)
    waited = await cluster.until_alone()
    assert 3 * 3 + 15 <= waited < 3 * 3 + 15 + 6
    assert len(cluster.said) == 1  # said once
    for word in ("kube-system/old", "kube-system/me", "--node-selector"):
        assert word in cluster.said[0]


async def test_an_older_one_that_is_renewed_is_never_overtaken() -> None:
    cluster = Cluster(_lease("old"))
    cluster.turns = dict.fromkeys(range(100), cluster.renew)
    cluster.turns[100] = cluster.others.clear  # it says goodbye
    assert await cluster.until_alone() >= 99 * 3


async def test_a_younger_one_gets_the_time_to_see_us() -> None:
    """Its clock may be wrong, or it may have started in the same moment: it must have looked before we go on."""
    cluster = Cluster(_lease("young", acquired=20.0))
    cluster.turns = dict.fromkeys(range(100), cluster.renew)
    assert 10 <= await cluster.until_alone() <= 15


async def test_of_two_of_the_same_moment_the_smaller_name_goes_on() -> None:
    assert await Cluster(_lease("z", acquired=10.0)).until_alone() <= 15
    cluster = Cluster(_lease("a", acquired=10.0))
    cluster.turns = dict.fromkeys(range(20), cluster.renew)
    assert await cluster.until_alone() > 20


@pytest.mark.parametrize(
    "other",
    [
        _lease("released", holder=""),
        _lease("long-dead", renewed=-3600.0),
        _lease("elsewhere", selector=B),
    ],
    ids=lambda lease: lease.metadata.name,
)
async def test_who_is_not_in_the_way(other: Lease) -> None:
    assert await Cluster(other, own=_lease("me", acquired=10.0, selector=A)).until_alone() == 0


async def test_a_lease_taken_for_dead_is_alive_again_once_it_is_renewed() -> None:
    cluster = Cluster(_lease("late", acquired=-9999.0, renewed=-3600.0))
    peers = cluster.peers
    await peers.until_alone(cluster.said.append)
    cluster.renew()
    watching = asyncio.create_task(peers.watch())
    peers.notice("kube-system/late", "ml/p")  # a pod that it bound: looked at once
    with pytest.raises(Overlap, match="kube-system/late"):
        await asyncio.wait_for(watching, 20)
    assert any("pod ml/p was bound by another Dovetail, of Lease kube-system/late" in line for line in cluster.log)


async def test_marks_of_one_with_nodes_of_its_own_and_marks_seen_before_are_no_news() -> None:
    cluster = Cluster(_lease("other", selector=B), own=_lease("me", selector=A))
    peers = cluster.peers
    await peers.until_alone(cluster.said.append)
    for mark in ("kube-system/other", "kube-system/former", "kube-system/former"):
        peers.notice(mark, "ml/p")
    assert cluster.log == ["pod ml/p was bound by another Dovetail, of Lease kube-system/former"]


async def test_without_the_right_to_list_all_our_own_namespace_is_looked_at() -> None:
    cluster = Cluster()
    root = "/apis/coordination.k8s.io/v1"
    cluster.forbidden = (f"{root}/leases",)
    await cluster.until_alone()
    assert [path for path, _ in cluster.asked] == [f"{root}/leases", f"{root}/namespaces/kube-system/leases"]
    assert any("not looked for in all namespaces" in line for line in cluster.log)


async def test_without_any_right_to_list_it_goes_on_and_says_so_again_and_again() -> None:
    cluster = Cluster(_lease("old"))
    root = "/apis/coordination.k8s.io/v1"
    cluster.forbidden = (f"{root}/leases", f"{root}/namespaces/kube-system/leases")
    peers = cluster.peers
    await asyncio.wait_for(peers.until_alone(cluster.said.append), 20)
    assert "may not" in peers.refused
    for _ in range(3):
        await peers._look()
    assert cluster.levels.count(ERROR) == 1
    cluster.clock.now += REMIND
    await peers._look()
    assert cluster.levels.count(ERROR) == 2
    cluster.forbidden = ()
    await peers._look()
    assert peers.refused == ""


async def _watched(cluster: Cluster, peers: Peers, looks: int) -> asyncio.Task[None]:
    """A scheduler that works, after so many looks more."""
    watching = asyncio.create_task(peers.watch())
    for number in range(looks):
        asked = len(cluster.asked)
        peers.notice(f"kube-system/mark-{asked}-{number}", "ml/p")  # looked at once
        while len(cluster.asked) == asked and not watching.done():
            await asyncio.sleep(0)
        for _ in range(5):
            await asyncio.sleep(0)
    return watching


async def test_a_dead_lease_is_not_alive_again_after_leases_could_not_be_read() -> None:
    """An API server that has just started forbids everything: for a moment the Leases are not there."""
    cluster = Cluster(_lease("dead", seconds=1))
    peers = cluster.peers
    await peers.until_alone(cluster.said.append)
    root = "/apis/coordination.k8s.io/v1"
    cluster.forbidden = (f"{root}/leases", f"{root}/namespaces/kube-system/leases")
    await peers._look()
    cluster.forbidden = ()
    watching = await _watched(cluster, peers, 2)
    assert not watching.done()
    watching.cancel()


async def test_an_older_lease_ends_a_scheduler_that_works_only_when_it_is_renewed() -> None:
    cluster = Cluster()
    peers = cluster.peers
    await peers.until_alone(cluster.said.append)
    cluster.others.append(_lease("old"))
    watching = await _watched(cluster, peers, 2)
    assert not watching.done()
    watching.cancel()
    cluster.clock.now += 1
    cluster.renew()
    watching = await _watched(cluster, peers, 1)
    with pytest.raises(Overlap, match="kube-system/old"):
        await asyncio.wait_for(watching, 20)


async def test_the_role_allows_to_list_leases_where_the_cluster_role_does_not() -> None:
    manifest = Path(__file__).parents[3] / "deploy" / "rbac.yaml"
    (role,) = [one for one in yaml.safe_load_all(manifest.read_text(encoding="utf-8")) if one["kind"] == "Role"]
    rules = [rule for rule in role["rules"] if "leases" in rule["resources"] and "resourceNames" not in rule]
    assert any("list" in rule["verbs"] for rule in rules)


FORGED = {"acquired": -NOW, "renewed": 2_000_000_000.0, "seconds": 2**31 - 1}


async def test_a_lease_that_a_tenant_wrote_stops_nothing() -> None:
    cluster = Cluster(_lease("forged", namespace="tenant", **FORGED))
    assert await cluster.until_alone() == 0


async def test_a_lease_in_another_namespace_that_lives_is_warned_of_and_stops_nothing() -> None:
    cluster = Cluster(_lease("old", namespace="tenant", holder="a\nready"))
    peers = cluster.peers
    await asyncio.wait_for(peers.until_alone(cluster.said.append), 20)
    assert (cluster.clock.now, cluster.said, peers.elsewhere) == (0, [], 1)
    watching = asyncio.create_task(peers.watch())
    looks = len(cluster.asked)
    for number in range(5):
        cluster.others[0] = _lease("old", renewed=number, namespace="tenant", holder=f"h{number}")
        peers.notice(f"tenant/{number}", "ml/p")
        while len(cluster.asked) == looks + number:
            await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not watching.done()
    watching.cancel()
    (warning,) = [line for line in cluster.log if "tenant/old" in line]  # once, though its holder changes
    assert "--peer-namespace" in warning
    assert "\n" not in warning


async def test_many_leases_in_other_namespaces_do_not_fill_the_log() -> None:
    cluster = Cluster(*(_lease(f"l{number}", namespace="tenant") for number in range(3 * MOST_MARKS)))
    await cluster.until_alone()
    assert len(cluster.log) == MOST_MARKS


async def test_a_lease_in_a_configured_namespace_has_its_right() -> None:
    cluster = Cluster(_lease("old", namespace="other"), namespaces=("other",))
    cluster.turns = dict.fromkeys(range(10), cluster.renew)
    assert await cluster.until_alone() > 9 * 3
    assert "other/old" in cluster.said[0]


async def test_the_configured_namespaces_are_looked_at_where_all_may_not_be() -> None:
    cluster = Cluster(namespaces=("other", "kube-system"))
    root = "/apis/coordination.k8s.io/v1"
    cluster.forbidden = (f"{root}/leases",)
    await cluster.until_alone()
    assert [path for path, _ in cluster.asked[1:]] == [
        f"{root}/namespaces/{name}/leases" for name in ("kube-system", "other")
    ]


async def test_a_duration_without_end_is_not_believed() -> None:
    cluster = Cluster(_lease("old", seconds=2**31 - 1))
    assert LONGEST_LEASE_SECONDS <= await cluster.until_alone() < LONGEST_LEASE_SECONDS + 6


async def test_every_duration_that_can_be_configured_is_believed() -> None:
    """A Dovetail with a long Lease renews it seldom, and must not be taken for dead in between."""
    (seconds,) = [option for option in scheduler.params if option.name == "lease_seconds"]
    assert isinstance(seconds.type, click.IntRange)
    assert seconds.type.max == LONGEST_LEASE_SECONDS


async def test_a_renewal_far_in_the_future_counts_only_once_the_lease_changes() -> None:
    cluster = Cluster(_lease("old", **FORGED))
    peers = cluster.peers
    await asyncio.wait_for(peers.until_alone(cluster.said.append), 20)
    assert cluster.clock.now == 0
    cluster.renew()
    assert [seen.lease.key for seen in await peers._look()] == ["kube-system/old"]


async def test_a_clock_that_is_a_little_ahead_is_alive() -> None:
    assert await Cluster(_lease("old", renewed=30.0)).until_alone() >= 15


async def test_nodes_that_no_two_selectors_match() -> None:
    assert disjoint(A, B)
    assert disjoint((("zone", "x"), *A), B)
    assert not disjoint(A, A)
    assert not disjoint(A, ())
    assert not disjoint(A, (("other", "b"),))  # a node may have both labels


async def test_marks_are_read_as_they_are_written() -> None:
    marks = Marks(("dovetail", "hami-scheduler"), (("pool", "a"), ("zone", "x")))
    assert Marks.of(marks.metadata()["annotations"]) == marks
    assert Marks.of({}) == Marks()


@pytest.mark.parametrize(("ours", "ends"), [(("one",), False), (("one", "two"), True)])
async def test_a_standby_ends_where_its_pods_would_wait_for_ever(ours: tuple[str, ...], ends: bool) -> None:
    api, clock = Leases(), Clock()
    first = candidate(api, clock, "first")
    first._marks = Marks(("one", "three"))
    await first.acquire()
    second = candidate(api, clock, "second", quick=False)
    second._marks, second._seen = Marks(ours), None
    said: list[str] = []
    second.says = said.append

    async def renewing() -> None:
        for _ in range(60):
            await asyncio.sleep(0)
            await first._renew()

    both = asyncio.gather(second.acquire(), renewing())
    if ends:
        with pytest.raises(OtherNames, match="which schedules one, three: pods of two are not scheduled"):
            await asyncio.wait_for(both, 20)
        assert "--lease-name" in said[0]
    else:
        await asyncio.wait_for(both, 20)  # the first falls silent
        assert said == ["waiting for the lease, held by first"]
