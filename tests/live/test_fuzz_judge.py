"""The fuzz run's judge sees what it is for, and its attackers are repeatable: no control plane is needed."""

from __future__ import annotations

import json
import random
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.live.assigned import ALLOCATED
from tests.live.chaos.machines import CANARY, CANARY_TAINT, Machine
from tests.live.fuzz.churn import MOST_NAMESPACES, Churn, piled_up, stuck
from tests.live.fuzz.judge import Judge, gpus_of, number
from tests.live.fuzz.node import LyingNode
from tests.live.fuzz.parts import POLICY, BareWatch, bindings, of_the_scheduler
from tests.live.fuzz.pods import SOUND, sound
from tests.live.fuzz.run import MOST_MEMORY, tracebacks, verdict_on_memory, verdict_on_waits
from tests.live.fuzz.tenant import Tenant
from tests.live.fuzz.twists import HOSTILE, hostile
from tools.controlplane.client import Access, Client, Object
from tools.controlplane.objects import GPU, GPU_MEMORY, gpu_limits, pod

HAMI, STOCK = Machine("h", "hami", 2), Machine("s", "stock", 2)
NUMBERS = count()


@pytest.fixture
def judge(tmp_path: Path) -> Judge:
    return Judge(Client(Access(1, None, tmp_path)), {"h": HAMI, "s": STOCK}, {"default": 20_000})


def bound(where: str, record: str = "", name: str = "", limits: Object | None = None, **spec: Any) -> Object:
    item = pod(name or f"p{next(NUMBERS)}", limits or gpu_limits(1), nodeName=where, **spec)
    item["metadata"] |= {"uid": item["metadata"]["name"], "annotations": {ALLOCATED: record} if record else {}}
    return {**item, "status": {"phase": "Running"}}


def part(index: int, memory: int = 4000, cores: int = 30) -> str:
    return f"GPU-h-{index},NVIDIA,{memory},{cores}:;"


def told(judge: Judge, *items: Object) -> list[str]:
    for item in items:
        judge.hear(item, gone=False)
    return judge.wrong


def test_pods_that_fit_are_no_findings(judge: Judge) -> None:
    assert told(judge, bound("h", part(0)), bound("h", part(0)), bound("h", part(1)), bound("s"), bound("s")) == []
    assert judge.placed == 5


def test_a_card_beyond_its_memory_or_compute(judge: Judge) -> None:
    # 4,000 + 12,000 of 15,360 MiB; 30 + 80 of 100 %
    assert any("16000 of 15360 MiB" in what for what in told(judge, bound("h", part(0)), bound("h", part(0, 12000))))
    assert any("110 of 100 % compute" in what for what in told(judge, bound("h", part(1)), bound("h", part(1, 1, 80))))


def test_more_whole_gpus_than_a_stock_node_has(judge: Judge) -> None:
    assert any("3 GPUs on a machine of 2" in what for what in told(judge, bound("s"), bound("s"), bound("s")))


def test_a_card_of_another_machine_and_a_missing_record(judge: Judge) -> None:
    assert any("no card of this machine" in what for what in told(judge, bound("h", "GPU-x-0,NVIDIA,1,1:;")))
    assert any("asks for 2 cards, and 0" in what for what in told(judge, bound("h", limits=gpu_limits(2))))


def test_a_quota(judge: Judge) -> None:
    # 15,000 + 5,000 of 20,000 MiB are allowed, 1 more is not
    assert told(judge, bound("h", part(0, 15000)), bound("h", part(1, 5000))) == []
    assert any("quota: 20001 MiB of 20000" in what for what in told(judge, bound("h", part(1, 1))))


def test_a_quota_on_a_stock_node_counts_no_more_than_the_card_has(judge: Judge) -> None:
    """`16Gi` may mean 16,384 MiB or 17 billion: a whole card of 15,360 MiB is charged in either case."""
    limits = {GPU: "1", GPU_MEMORY: "16Gi"}
    assert told(judge, bound("s", limits=limits)) == []
    assert any("quota: 30720 MiB" in what for what in told(judge, bound("s", limits=limits)))


def test_what_was_bound_is_held_whatever_is_written_later(judge: Judge) -> None:
    first = bound("h", part(0, 12000))
    forged = {**first, "metadata": {**first["metadata"], "annotations": {ALLOCATED: part(0, 0, 0)}}}
    assert told(judge, first, forged) == []
    assert told(judge, bound("h", part(0, 12000, 1)))


def test_a_scheduler_that_was_started_anew_cannot_know_a_record_that_was_written_over(judge: Judge) -> None:
    first = bound("h", part(0, 12000))
    forged = {**first, "metadata": {**first["metadata"], "annotations": {ALLOCATED: "x"}}}
    told(judge, first, forged)
    judge.restarted = True
    assert told(judge, bound("h", part(0, 8000, 1))) == []
    assert told(judge, bound("h", part(1, 12000)), bound("h", part(1, 12000)))  # of this card it can


def test_pods_that_no_scheduler_placed_do_not_count(judge: Judge) -> None:
    for item in (bound("h", part(0, 15360, 100), "direct-1"), bound("h", part(0, 15360, 100), schedulerName="other")):
        assert told(judge, item) == []
    assert judge.placed == 0


def test_a_pod_bound_twice(judge: Judge) -> None:
    assert any("bound twice" in what for what in told(judge, bound("h", part(0), "one"), bound("s", name="one")))


@pytest.mark.parametrize(
    ("text", "value"),
    [("16Gi", 2**34), ("1e3", 1000), ("1E18", 10**18), ("1E", 10**18), ("500m", 0.5), ("100k", 10**5)],
)
def test_quantities(text: str, value: float) -> None:
    assert number(text) == value


def test_a_part_without_a_count_is_one_card() -> None:
    assert gpus_of(pod("p", {GPU_MEMORY: 2000})) == 1
    assert gpus_of(pod("p", {GPU_MEMORY: 2000}, labels={"hami.io/webhook": "ignore"})) == 0


def test_a_traceback_is_told_by_its_error_and_our_places() -> None:
    text = 'Traceback (most recent call last):\n  File "/x/dovetail/a.py", line 1, in f\n    g()\nValueError: no\n'
    assert tracebacks(f"said\n{text}said\n{text}") == [
        'traceback: ValueError: no: File "/x/dovetail/a.py", line 1, in f'
    ]


# --- the attackers


class Deaf(Client):
    """Puts down what it is asked, and answers that it was done."""

    def __init__(self) -> None:
        super().__init__(Access(1, None, Path()))
        self.asked: list[str] = []

    def request(self, verb: str, path: str, body: Any = None, content: str = "", **query: Any) -> tuple[int, Any]:
        self.asked.append(f"{verb} {path} {json.dumps(body, sort_keys=True)}")
        return 200, {}

    def status(self, verb: str, path: str, body: Any = None, content: str = "", **query: Any) -> int:
        return self.request(verb, path, body, content, **query)[0]


@pytest.mark.parametrize("who", ["tenant", "node"])
def test_a_seed_gives_the_same_attacks_within_the_attackers_rights(who: str) -> None:
    def attacks(seed: int) -> list[str]:
        client, dice = Deaf(), random.Random(seed)
        actor = Tenant(client, "mine", dice, "t", ()) if who == "tenant" else LyingNode(client, "liar", dice, ())
        for _ in range(200):
            actor.act()
        return client.asked

    first = attacks(7)
    assert first == attacks(7) != attacks(8)
    own = ("/namespaces/mine/pods", "/namespaces/mine/podgroups") if who == "tenant" else ("/api/v1/nodes/liar",)
    assert all(any(path in one.split()[1] for path in own) for one in first)


@pytest.mark.parametrize("twist", [*SOUND, *HOSTILE], ids=lambda twist: twist.__name__)
def test_no_pod_of_an_attacker_can_take_the_canaries_node(twist: Any) -> None:
    for seed in range(30):
        dice = random.Random(seed)
        item, _ = sound(dice, "p", "mine") if twist in SOUND else hostile(dice, "p", "mine", [twist])
        twist(dice, item)
        everything = [one for one in item["spec"].get("tolerations", []) if not one.get("key")]
        assert not everything or item["spec"]["nodeSelector"]["kubernetes.io/hostname"] != CANARY
        assert CANARY_TAINT["key"] not in [one.get("key") for one in item["spec"].get("tolerations", [])]
        assert item["spec"].get("nodeName") != CANARY


# --- whose time a wait is


def audited(name: str, at: str) -> str:
    """A line of the API server's audit log, as of a Binding."""
    ref = {"resource": "pods", "namespace": CANARY, "name": name, "subresource": "binding"}
    return json.dumps({"verb": "create", "objectRef": ref, "requestReceivedTimestamp": at})


def test_the_schedulers_part_ends_when_its_first_binding_reaches_the_api_server() -> None:
    start = 1_767_225_600.0  # 2026-01-01T00:00:00Z
    log = "\n".join(
        [
            audited("canary-1", "2026-01-01T00:00:00.250000Z"),
            audited("canary-1", "2026-01-01T00:00:09.000000Z"),  # sent again
            audited("canary-2", "2026-01-01T00:00:01.000000Z"),
            audited("canary-3", "2026-01-01T00:00:01.000000Z")[:-5],  # still being written
        ]
    )
    told = {"canary-1": start, "canary-2": start + 1.5, "canary-3": start}  # of canary-2 the bare watch heard later
    assert of_the_scheduler(told, bindings(log)) == [0.25, 0.0]


def test_a_bare_watch_knows_a_canary_by_the_first_bytes_of_its_event(tmp_path: Path) -> None:
    bare = BareWatch(Client(Access(1, None, tmp_path)))
    head = (
        b'{"type":"%b","object":{"kind":"Pod","metadata":{"name":"%b","namespace":"%b","uid":"u","resourceVersion":"%b"'
    )
    for event in (
        (b"ADDED", b"canary-17", b"canary", b"40"),
        (b"MODIFIED", b"canary-18", b"canary", b"41"),  # it was told before
        (b"ADDED", b"canary-19", b"tenant-a", b"42"),  # another tenant's
    ):
        bare.hear(head % event)
    assert list(bare.told) == ["canary-17"]
    assert bare._version == "42"  # where the next watch begins: what comes meanwhile is not missed
    bare.hear(b'{"type":"ERROR","object":{"kind":"Status","metadata":{},"code":410}}')
    assert bare._version is None


def test_only_bindings_of_canaries_are_audited() -> None:
    first, last = POLICY["rules"]
    assert (first["namespaces"], first["resources"]) == ([CANARY], [{"group": "", "resources": ["pods/binding"]}])
    assert last == {"level": "None"}


SLOW = [2.0] * 100


@pytest.mark.parametrize(
    ("waits", "own", "is_wrong", "is_said"),
    [
        ([0.9] * 100, [], False, False),
        (SLOW, [1.1] * 100, True, False),  # the scheduler's
        (SLOW, [0.4] * 100, False, True),  # the API server's: said, and not judged
        (SLOW, [0.4] * 89, True, False),  # not known of enough of them
        ([0.9] * 200 + [9.0], [], False, False),  # one in 201
    ],
)
def test_a_slow_canary_is_the_schedulers_fault_unless_its_own_part_is_known_to_be_short(
    waits: list[float], own: list[float], is_wrong: bool, is_said: bool
) -> None:
    found, said = verdict_on_waits(waits, own, 1.0)
    assert (bool(found), bool(said)) == (is_wrong, is_said)


def test_a_churn_whose_objects_pile_up_is_no_measure_of_memory() -> None:
    """Claims whose finalizer nobody took away kept their namespaces: 240 of 290 after 200 s."""
    assert piled_up([(11, 150), (24, 300), (20, 150)]) == []
    assert piled_up([(11, 150), (240, 300), (20, 150)])
    assert piled_up([(11, 150), (24, 1300), (20, 150)])


def test_a_churn_whose_namespaces_are_not_deleted_is_no_churn_of_namespaces() -> None:
    assert stuck(namespaces=300, seconds=600) == []
    assert stuck(namespaces=6, seconds=600)


class Crowded(Deaf):
    """Every namespace that is deleted stays."""

    def __init__(self) -> None:
        super().__init__()
        self.there: set[str] = set()

    def request(self, verb: str, path: str, body: Any = None, content: str = "", **query: Any) -> tuple[int, Any]:
        if verb == "POST" and path.endswith("/namespaces"):
            self.there.add(body["metadata"]["name"])
        return (200, {"items": []}) if verb == "GET" else super().request(verb, path, body, content, **query)


def test_a_churn_makes_no_namespaces_while_many_are_being_deleted() -> None:
    """They piled up where the controller did not keep up, and memory with them."""
    api = Crowded()
    churn = Churn(api, {}, seed=7)
    for _ in range(3_000):
        churn.crowded = len(api.there) >= MOST_NAMESPACES
        churn.step()
    assert len(api.there) == MOST_NAMESPACES
    assert churn.made["Pod"] > 500  # the others come and go all the same


def test_memory_that_grows_after_the_caches_are_full() -> None:
    """The median of the last fifth against that of the second: 109 % passes, 111 % does not."""
    warm_up, level = [150.0] * 20, [200.0] * 60
    assert verdict_on_memory([*warm_up, *level, *[218.0] * 20], 600) == []
    (found,) = verdict_on_memory([*warm_up, *level, *[222.0] * 20], 600)
    assert found == "memory: 200 MiB in the second fifth of the run, 222 MiB in the last"


def test_caches_may_fill_during_a_short_run() -> None:
    """200 + 20 + 32 MiB."""
    assert verdict_on_memory([*[200.0] * 80, *[251.0] * 20], 30) == []
    assert len(verdict_on_memory([*[200.0] * 80, *[253.0] * 20], 30)) == 1


def test_more_memory_than_is_documented() -> None:
    (found,) = verdict_on_memory([*[MOST_MEMORY - 1.0] * 99, MOST_MEMORY + 1.0], 600)
    assert f"at most {MOST_MEMORY} are documented" in found
