"""What is promised to a pod is nobody else's, until it leaves or the promise becomes true; and whom a change helps."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dovetail.engine.rules.volume_records import HELPS_ALL_PODS, HELPS_NO_POD, Helps
from dovetail.model.events import Bind, GroupArrived, PodBound, PodGone, Wait
from dovetail.model.pod import Pod
from dovetail.model.reason import Reason
from dovetail.model.relations import Selector
from dovetail.model.rules import AffinityTerm, Requirement
from dovetail.model.volumes import (
    AttachLimits,
    Attachment,
    Capacity,
    Claim,
    ClaimRef,
    CsiDriver,
    StorageClass,
    Volume,
    VolumeFact,
)
from tests import builders
from tests.engine.storeroom import GIB, HOST, LOCAL, MADE, Storeroom, bound, claim, pod, volume, volume_of
from tests.engine.volumes_by_definition import find_pod_volumes

# ---- promises ---------------------------------------------------------------------------------------------------


def test_a_volume_is_promised_once() -> None:
    room = Storeroom(LOCAL, claim("one"), claim("two"), volume("v", 10, "a"), volume("w", 20, "a"), a={})
    first, second = pod("first", "one"), pod("second", "two")
    assert [choice.volume for choice in room.places(first, "a")] == ["v"]
    assert [choice.volume for choice in room.places(second, "a")] == ["w"]
    room.ends(first, "a")
    assert room.takes(pod("third", "two"), "a") == [("default/two", "w")]  # still promised to its claim
    assert room.takes(pod("fourth", "one"), "a") == [("default/one", "v")]


def test_pods_that_share_a_claim_share_its_promise() -> None:
    room = Storeroom(LOCAL, MADE, claim("one"), claim("made", "made"), volume("v", 10, "a"), a={}, b={})
    first, second = pod("first", "one", "made"), pod("second", "one", "made")
    assert room.places(first, "a") == room.places(second, "a")
    assert room.says(pod("third", "made")) == {"a": "", "b": "VOLUME_NONE"}  # it is being made for a
    room.ends(first, "a")
    assert room.says(pod("third", "made")) == {"a": "", "b": "VOLUME_NONE"}
    room.ends(second, "a")
    assert room.says(pod("third", "made")) == {"a": "", "b": ""}


def test_a_promise_that_became_true_is_not_taken_back() -> None:
    room = Storeroom(LOCAL, MADE, claim("one"), claim("made", "made"), volume("v", 10), a={}, b={})
    first = pod("first", "one", "made")
    room.places(first, "a")
    room.now(volume("v", 10, claim_ref=ClaimRef("default", "one", "uid-one")), claim("made", "made", selected_node="a"))
    room.ends(first, "a")
    assert room.says(pod("third", "made")) == {"a": "", "b": "VOLUME_NONE"}
    room.now(claim("two"))
    assert room.says(pod("fourth", "two")) == {"a": "VOLUME_NONE", "b": "VOLUME_NONE"}


def test_a_change_of_a_promised_volume_that_says_nothing_of_claims_keeps_the_promise() -> None:
    room = Storeroom(LOCAL, claim("one"), claim("two"), volume("v", 10), a={})
    room.places(pod("first", "one"), "a")
    room.now(volume("v", 10, labels={"seen": "yes"}))
    assert room.says(pod("second", "two")) == {"a": "VOLUME_NONE"}


def test_a_claim_that_got_another_volume_gives_its_promise_back() -> None:
    room = Storeroom(LOCAL, claim("one"), claim("two"), volume("v", 10), volume("w", 20), a={})
    room.places(pod("first", "one"), "a")
    room.now(volume_of("w", claim("one")), bound("one", "w"))
    assert room.takes(pod("second", "two"), "a") == [("default/two", "v")]


def test_an_undone_transaction_takes_its_promises_back() -> None:
    room = Storeroom(LOCAL, claim("one"), claim("two"), volume("v", 10), volume("w", 20), a={})
    room.places(pod("first", "one"), "a")
    with room.ledger.transaction():
        room.volumes.assume(room.volumes.choice(pod("second", "two"), "a"))
        room.now(claim("three"))
        assert room.says(pod("third", "three")) == {"a": "VOLUME_NONE"}
    assert room.takes(pod("third", "three"), "a") == [("default/three", "w")]


def test_pods_that_the_scheduler_places_are_promised_their_volumes() -> None:
    scheduler = builders.cluster(builders.node("a"))
    volumes = scheduler.related.volumes
    volumes.change([LOCAL, claim("one"), claim("two"), volume("v", 10), volume("w", 20)])
    gang = builders.group(pod("first", "one"), pod("second", "two"))
    first, second = scheduler.handle(GroupArrived(0.0, gang))
    assert isinstance(first, Bind)
    assert isinstance(second, Bind)
    assert [choice.volume for bind in (first, second) for choice in bind.volumes] == ["v", "w"]
    scheduler.handle(PodGone(1.0, first.pod.uid))
    assert [choice.volume for choice in volumes.choice(pod("third", "one"), "a")] == ["v"]
    assert [choice.volume for choice in volumes.choice(pod("fourth", "two"), "a")] == ["w"]


def test_a_gang_that_finds_too_few_volumes_is_promised_none() -> None:
    scheduler = builders.cluster(builders.node("a"))
    scheduler.related.volumes.change([LOCAL, claim("one"), claim("two"), volume("v", 10)])
    effects = scheduler.handle(GroupArrived(0.0, builders.group(pod("first", "one"), pod("second", "two"))))
    assert all(isinstance(effect, Wait) for effect in effects)
    (bind,) = scheduler.handle(GroupArrived(1.0, builders.group(pod("third", "two"))))
    assert isinstance(bind, Bind)
    assert [choice.volume for choice in bind.volumes] == ["v"]


def test_a_bound_pod_that_is_put_back_has_its_promise_back() -> None:
    """Preemption and what-if release pods and put them back, perhaps before we heard that their volumes are bound."""
    scheduler = builders.cluster(builders.node("a"))
    volumes, first = scheduler.related.volumes, pod("first", "one")
    volumes.change([LOCAL, claim("one"), claim("two"), volume("v", 10)])
    (bind,) = scheduler.handle(GroupArrived(0.0, builders.group(first)))
    assert isinstance(bind, Bind)
    scheduler.handle(PodBound(1.0, first.uid))
    with scheduler.ledger.transaction():
        scheduler.ledger.release(first.uid)
        assert volumes.take(first, "a") == ()
    assert volumes.take(first, "a") == bind.volumes
    assert volumes.refusals(pod("second", "two")).tolist() == [Reason.VOLUME_NONE]


def test_a_pod_that_runs_already_is_promised_nothing() -> None:
    """Somebody else put it there, and kube-scheduler takes no volume for it either."""
    room = Storeroom(LOCAL, claim("one"), claim("two"), volume("v", 10), a={})
    room.runs(pod("first", "one"), "a")
    assert room.volumes.take(pod("first", "one"), "a") == ()
    assert room.takes(pod("second", "two"), "a") == [("default/two", "v")]


# ---- whom a change helps ----------------------------------------------------------------------------------------


def helps(room: Storeroom, change: Helps, *waiting: Pod) -> list[str]:
    return [one.name for one in waiting if room.volumes.helped(one, change)]


def test_a_change_helps_those_who_wait_for_it() -> None:
    room = Storeroom(LOCAL, MADE, claim("one"), claim("made", "made"), a={})
    one, made, missing, none = pod("one", "one"), pod("made", "made"), pod("missing", "late"), pod("none")
    everybody = (one, made, missing, none)
    for fact, helped in (
        (claim("late"), ["missing"]),
        (claim("late", version="2"), []),
        (volume("v"), ["one", "missing"]),
        (volume("v", version="2"), []),
        (volume_of("w", claim("one")), ["one"]),
        (MADE, ["made"]),
        (Capacity("s", "c", "made", 1, Selector()), ["made"]),
        (CsiDriver("csi.example.com"), ["made"]),
        (CsiDriver("csi.example.com", tracks_capacity=True), []),
        (AttachLimits("a", {"csi.example.com": 3}), []),
        (AttachLimits("a", {"csi.example.com": 2}), []),
        (AttachLimits("a", {"csi.example.com": 4}), ["one", "made", "missing"]),
        (AttachLimits("a", {}), ["one", "made", "missing"]),
        (Attachment("x", "a", "csi.example.com", "v"), []),
    ):
        assert helps(room, room.volumes.change((fact,)), *everybody) == helped, fact


def test_what_is_gone_helps_only_where_it_stood_in_the_way() -> None:
    there = Attachment("x", "a", "csi.example.com", "v")
    limits = AttachLimits("a", {"csi.example.com": 4})
    room = Storeroom(LOCAL, MADE, claim("one"), volume("v"), there, limits, CsiDriver("csi.example.com", True), a={})
    for gone, change in (
        (claim("one"), HELPS_NO_POD),
        (volume("v"), HELPS_NO_POD),
        (LOCAL, HELPS_NO_POD),
        (there, HELPS_ALL_PODS),
        (there, HELPS_NO_POD),
        (limits, HELPS_ALL_PODS),
        (limits, HELPS_NO_POD),
        (CsiDriver("csi.example.com"), Helps(classes=frozenset(("made",)))),
    ):
        assert room.volumes.change((), (gone,)) == change, gone
    assert room.volumes.freed_by(pod("web", "data")) == HELPS_ALL_PODS
    assert room.volumes.freed_by(pod("web")) == HELPS_NO_POD


# ---- properties -------------------------------------------------------------------------------------------------

NODES = ("a", "b", "c")
ZONES = {"a": "x", "b": "y", "c": "y"}
places = st.sampled_from((None, *((AffinityTerm((Requirement(HOST, "In", (node,)),)),) for node in NODES))) | st.just(
    (AffinityTerm((Requirement("zone", "In", ("y",)),)),)
)
refs = st.none() | st.builds(
    ClaimRef, st.just("default"), st.sampled_from(("c0", "c1")), st.sampled_from(("", "uid-c0"))
)
volumes = st.builds(
    Volume,
    name=st.sampled_from([f"v{n}" for n in range(6)]),
    capacity=st.integers(1, 4).map(lambda size: size * GIB),
    storage_class=st.sampled_from(("local", "made")),
    access_modes=st.sampled_from((("ReadWriteOnce",), ("ReadWriteOnce", "ReadOnlyMany"), ())),
    mode=st.sampled_from(("Filesystem", "Filesystem", "Block")),
    phase=st.sampled_from(("Available", "Available", "Released", "")),
    claim_ref=refs,
    affinity=places,
    labels=st.sampled_from(({}, {"disk": "fast"})),
    leaving=st.sampled_from((False, False, True)),
)
claims = st.builds(
    Claim,
    namespace=st.just("default"),
    name=st.sampled_from([f"c{n}" for n in range(4)]),
    storage_class=st.sampled_from(("local", "made")),
    access_modes=st.sampled_from((("ReadWriteOnce",), ())),
    request=st.none() | st.integers(1, 4).map(lambda size: size * GIB),
    selector=st.none() | st.just(Selector((("disk", "fast"),))),
    mode=st.sampled_from(("Filesystem", "Filesystem", "Block")),
    selected_node=st.sampled_from((None, None, None, "b")),
).map(lambda one: Claim(**{**{f: getattr(one, f) for f in Claim.__slots__}, "uid": f"uid-{one.name}"}))
classes = st.builds(
    StorageClass,
    st.just("made"),
    st.just(True),
    st.sampled_from(("csi", "kubernetes.io/no-provisioner")),
    topologies=places,
)
making = st.lists(
    st.builds(CsiDriver, st.just("csi"), st.booleans())
    | st.builds(
        Capacity,
        st.just("s"),
        st.sampled_from(("c", "d")),
        st.just("made"),
        st.none() | st.integers(1, 4).map(lambda size: size * GIB),
        st.sampled_from((None, Selector(), Selector((("zone", "x"),)))),
    ),
    max_size=4,
    unique_by=lambda fact: (type(fact), fact.name),
)


@given(
    st.lists(volumes, max_size=6, unique_by=lambda one: one.name),
    st.lists(claims, min_size=1, max_size=4, unique_by=lambda one: one.name),
    classes,
    making,
)
def test_every_node_gives_what_kube_schedulers_loops_give(
    there: list[Volume], wanted: list[Claim], kind: StorageClass, more: list[CsiDriver | Capacity]
) -> None:
    facts: list[VolumeFact] = [LOCAL, kind, *more, *there, *wanted]
    room = Storeroom(*facts, **{node: {"zone": zone} for node, zone in ZONES.items()})
    web = pod("web", *(one.name for one in wanted))
    said = room.says(web)
    assert isinstance(said, dict)
    for node, zone in ZONES.items():
        expected = find_pod_volumes(node, {HOST: node, "zone": zone}, wanted, facts)
        assert (said[node] == "") == (expected is not None)
        if expected is not None:
            assert sorted(room.takes(web, node)) == sorted(expected)


steps = st.lists(
    st.tuples(st.sampled_from(("comes", "leaves", "becomes true")), st.integers(0, 5), st.sampled_from(NODES))
)


@given(st.lists(volumes, max_size=6, unique_by=lambda one: one.name), st.lists(claims, min_size=1, max_size=4), steps)
def test_no_volume_is_ever_promised_to_two_claims(
    there: list[Volume], wanted: list[Claim], happens: list[tuple[str, int, str]]
) -> None:
    room = Storeroom(LOCAL, MADE, *there, *wanted, **{node: {} for node in NODES})
    running: dict[str, tuple[Pod, str]] = {}
    for what, number, node in happens:
        one = pod(f"p{number}", *{f"c{number % 4}", f"c{number // 2}"})
        said = room.says(one)
        if what == "comes" and one.name not in running and isinstance(said, dict) and not said[node]:
            room.places(one, node)
            running[one.name] = (one, node)
        elif what == "leaves" and one.name in running:
            room.ends(*running.pop(one.name))
        elif what == "becomes true" and one.name in running:
            for choice in room.volumes.take(*running[one.name]):
                fact = room.volumes.volume(choice.volume)
                if fact is not None and fact.claim_ref is None:
                    namespace, _, name = choice.claim.partition("/")
                    ref = ClaimRef(namespace, name, choice.claim_uid)
                    room.now(Volume(**{**{f: getattr(fact, f) for f in Volume.__slots__}, "claim_ref": ref}))
        promised: dict[str, set[str]] = {}
        for holder in running.values():
            for choice in room.volumes.take(*holder):
                promised.setdefault(choice.volume or f"made for {choice.claim}", set()).add(choice.claim)
        assert all(len(owners) == 1 for owners in promised.values())


@given(st.lists(volumes, max_size=6, unique_by=lambda one: one.name), st.lists(claims, min_size=2, max_size=4))
def test_forgetting_is_the_inverse_of_assuming(there: list[Volume], wanted: list[Claim]) -> None:
    room = Storeroom(LOCAL, MADE, *there, *wanted, **{node: {} for node in NODES})
    pods = [pod(f"p{n}", f"c{n}") for n in range(4)]

    def everything() -> list[object]:
        said = [room.says(one) for one in pods]
        return [
            (node, reason or room.takes(one, node))
            for one, answer in zip(pods, said, strict=True)
            for node, reason in (answer.items() if isinstance(answer, dict) else [("", answer)])
        ]

    before = [everything()]
    assumed = []
    for one in pods:
        said = room.says(one)
        free = [node for node, reason in said.items() if not reason] if isinstance(said, dict) else []
        if free:
            assumed.append(room.volumes.choice(one, free[0]))
            room.volumes.assume(assumed[-1])
            before.append(everything())
    for choices in reversed(assumed):
        assert everything() == before.pop()
        room.volumes.forget(choices)
    assert everything() == before.pop()
    for choices in assumed:
        room.volumes.forget(choices)  # once more changes nothing
