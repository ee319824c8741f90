"""Volumes: each of kube-scheduler's rules with both outcomes, what is promised to whom, and whom a change helps."""

from __future__ import annotations

import tracemalloc

import pytest

from dovetail.engine.rules.volume_stock import VolumeError
from dovetail.model.relations import Selector
from dovetail.model.rules import AffinityTerm, Requirement
from dovetail.model.volumes import (
    AttachLimits,
    Attachment,
    Capacity,
    ClaimRef,
    CsiDriver,
    StorageClass,
    Volume,
    VolumeFact,
)
from tests import builders
from tests.engine.storeroom import (
    AT_ONCE,
    GIB,
    HOST,
    LOCAL,
    MADE,
    Storeroom,
    bound,
    claim,
    only_on,
    pod,
    volume,
    volume_of,
)

ZONE, BETA_ZONE = "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"


# ---- the pod's claims, whatever the node ------------------------------------------------------------------------


def test_a_pod_without_claims_is_no_concern() -> None:
    assert not Storeroom(a={}).volumes.concerns(pod("web"))
    assert Storeroom(a={}).volumes.concerns(pod("web", "data"))


def test_a_claim_must_exist() -> None:
    room = Storeroom(volume_of("v", bound()), a={})
    assert room.says(pod("web", "data")) == "CLAIM_MISSING"
    room.now(bound(namespace="other"))
    assert room.says(pod("web", "data")) == "CLAIM_MISSING"
    room.now(bound())
    assert room.says(pod("web", "data")) == {"a": ""}


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        ([claim(kind="at-once")], "CLAIM_UNBOUND"),
        ([claim(kind="")], "CLAIM_UNBOUND"),
        ([claim(kind="nobody-knows")], "CLAIM_UNBOUND"),
        ([claim(volume="v"), volume()], "CLAIM_UNBOUND"),  # told to take a volume: the controller has to bind it first
        ([bound(), volume_of("other", bound())], "CLAIM_UNBOUND"),  # its volume does not exist
        ([bound(lost=True), volume_of("v", bound())], "CLAIM_UNBOUND"),
        ([bound(leaving=True), volume_of("v", bound())], "CLAIM_UNBOUND"),
        ([bound(kind="at-once"), volume_of("v", bound())], {"a": ""}),
        ([bound(kind=""), volume_of("v", bound())], {"a": ""}),
    ],
)
def test_only_claims_of_classes_that_wait_may_be_unbound(facts: list[VolumeFact], says: object) -> None:
    assert Storeroom(AT_ONCE, LOCAL, *facts, a={}).says(pod("web", "data")) == says


def test_a_claim_for_one_pod_is_used_by_one_pod() -> None:
    mine = bound(access_modes=("ReadWriteOncePod",))
    room = Storeroom(mine, volume_of("v", mine), a={}, b={})
    first, second = pod("first", "data"), pod("second", "data")
    assert room.says(second) == {"a": "", "b": ""}
    room.runs(first, "a")
    assert room.says(second) == "CLAIM_IN_USE"
    assert room.says(pod("second", "data", namespace="other")) == "CLAIM_MISSING"
    room.ends(first, "a")
    assert room.says(second) == {"a": "", "b": ""}


def test_a_claim_for_many_pods_is_used_by_many() -> None:
    shared = bound(access_modes=("ReadWriteOnce",))
    room = Storeroom(shared, volume_of("v", shared), a={})
    room.runs(pod("first", "data"), "a")
    assert room.says(pod("second", "data")) == {"a": ""}


def test_a_claim_made_for_a_pod_belongs_to_it() -> None:
    own = bound("web-cache", owner="uid-web", access_modes=("ReadWriteOncePod",))
    room = Storeroom(own, volume_of("v", own), a={})
    web = pod("web", made=("web-cache",))
    assert room.says(web) == {"a": ""}
    assert room.says(pod("web", made=("web-cache",), uid="uid-of-a-later-pod-of-that-name")) == "CLAIM_MISSING"
    room.runs(web, "a")
    assert room.says(pod("thief", "web-cache")) == {"a": ""}  # kube-scheduler does not count the pod it was made for
    room.now(bound("web-cache", access_modes=("ReadWriteOncePod",)))
    assert room.says(web) == "CLAIM_MISSING"  # somebody's claim that happens to have the name
    assert room.says(pod("web", "web-cache")) == {"a": ""}


def test_a_claim_for_one_pod_is_free_when_its_pods_node_is_gone() -> None:
    mine = bound(access_modes=("ReadWriteOncePod",))
    room = Storeroom(mine, volume_of("v", mine), a={}, b={})
    room.runs(pod("first", "data"), "a")
    room.ledger.remove_node("a")
    assert room.volumes.refusal(pod("second", "data")) is None


# ---- bound volumes ----------------------------------------------------------------------------------------------


def test_a_bound_volume_is_used_where_it_can_be() -> None:
    room = Storeroom(bound(), volume_of("v", bound(), node="a"), a={}, b={})
    assert room.says(pod("web", "data")) == {"a": "", "b": "VOLUME_NODE"}
    room.add_node("c", {HOST: "a"})
    assert room.says(pod("web", "data")) == {"a": "", "b": "VOLUME_NODE", "c": ""}


@pytest.mark.parametrize(
    ("terms", "usable"),
    [
        (None, {"a", "b", "c"}),
        ((), set()),
        ((AffinityTerm(),), set()),
        ((AffinityTerm((Requirement("disk", "Exists"),)),), {"a", "b"}),
        ((AffinityTerm((Requirement("disk", "DoesNotExist"),)),), {"c"}),
        ((AffinityTerm((Requirement("disk", "NotIn", ("1",)),)),), {"b", "c"}),
        ((AffinityTerm((Requirement("disk", "Gt", ("1",)),)),), {"b"}),
        ((AffinityTerm((Requirement("disk", "Lt", ("2",)),)),), {"a"}),
        ((*only_on("disk", "1", "2"), *only_on(HOST, "c")), {"a", "b", "c"}),
        ((AffinityTerm((Requirement("disk", "Exists"), Requirement(HOST, "In", ("b", "c")))),), {"b"}),
        # kube-scheduler looks at labels only: fields say nothing, but a term that has some is no empty term.
        ((AffinityTerm((), (Requirement("metadata.name", "In", ("a",)),)),), {"a", "b", "c"}),
    ],
)
def test_where_a_volume_can_be_used(terms: tuple[AffinityTerm, ...] | None, usable: set[str]) -> None:
    there = volume_of("v", bound(), affinity=terms)
    said = Storeroom(bound(), there, a={"disk": "1"}, b={"disk": "2"}, c={}).says(pod("web", "data"))
    assert isinstance(said, dict)
    assert {node for node, reason in said.items() if not reason} == usable


@pytest.mark.parametrize(
    ("labels", "refused"),
    [
        ({}, set()),
        ({ZONE: "x"}, {"in-y", "only-region"}),
        ({ZONE: "x__y"}, {"only-region"}),
        ({ZONE: "x__"}, set()),  # cannot be read
        ({BETA_ZONE: "x"}, {"in-y", "only-region"}),  # the node's label of today counts
        ({"topology.kubernetes.io/region": "r"}, {"in-x", "in-y"}),
    ],
)
def test_a_volume_is_used_in_its_zone(labels: dict[str, str], refused: set[str]) -> None:
    nodes = {
        "in-x": {ZONE: "x"},
        "in-y": {ZONE: "y"},
        "only-region": {"topology.kubernetes.io/region": "r"},
        "bare": {},
    }
    said = Storeroom(bound(), volume_of("v", bound(), labels=labels), **nodes).says(pod("web", "data"))
    assert isinstance(said, dict)
    assert {node for node, reason in said.items() if reason == "VOLUME_ZONE"} == refused


def test_the_old_zone_label_of_a_node_is_not_the_new_one_of_a_volume() -> None:
    room = Storeroom(bound(), volume_of("v", bound(), labels={ZONE: "x"}), a={BETA_ZONE: "x"})
    assert room.says(pod("web", "data")) == {"a": "VOLUME_ZONE"}


def test_zones_are_not_asked_of_a_claim_that_was_made_for_the_pod() -> None:
    own = bound("web-cache", owner="uid-web")
    room = Storeroom(own, volume_of("v", own, labels={ZONE: "x"}), a={ZONE: "y"})
    assert room.says(pod("web", made=("web-cache",))) == {"a": ""}
    assert room.says(pod("web", "web-cache")) == {"a": "VOLUME_ZONE"}


# ---- attach limits ----------------------------------------------------------------------------------------------


def attached(name: str, **facts: object) -> tuple[VolumeFact, VolumeFact]:
    """A volume of a CSI driver and its claim, both called so."""
    owner = bound(name, name)
    return volume_of(name, owner, driver="csi.example.com", handle=f"h-{name}", **facts), owner


def test_drivers_that_no_claim_names_cost_no_memory() -> None:
    """A node may name any drivers. An array over all nodes for each was 500 × 8 bytes × 1,000 drivers = 4 MB."""
    limits = AttachLimits("n0", {"csi.example.com": 0, **{f"driver-{n}": 1 for n in range(1_000)}})
    room = Storeroom(*attached("s"), limits, **{f"n{n}": {} for n in range(500)})
    tracemalloc.start()
    said = room.says(pod("web", "s"))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert isinstance(said, dict)
    assert {node for node, reason in said.items() if reason} == {"n0"}
    assert peak < 1_000_000


def test_a_node_attaches_as_many_volumes_as_its_driver_can() -> None:
    facts = [fact for name in "stuv" for fact in attached(name)]
    room = Storeroom(*facts, AttachLimits("a", {"csi.example.com": 2}), a={}, b={})
    assert room.says(pod("web", "s", "t", "u")) == {"a": "VOLUME_LIMIT", "b": ""}
    assert room.says(pod("web", "s", "t")) == {"a": "", "b": ""}
    room.runs(pod("one", "s"), "a")
    room.runs(pod("two", "s"), "a")  # the same volume counts once
    assert room.says(pod("web", "t")) == {"a": "", "b": ""}
    assert room.says(pod("web", "t", "u")) == {"a": "VOLUME_LIMIT", "b": ""}
    assert room.says(pod("web", "s", "t")) == {"a": "", "b": ""}
    room.ends(pod("one", "s"), "a")
    room.ends(pod("two", "s"), "a")
    assert room.says(pod("web", "t", "u")) == {"a": "", "b": ""}


@pytest.mark.parametrize("most", [{}, {"another.driver": 0}])
def test_drivers_without_a_limit_attach_any_number(most: dict[str, int]) -> None:
    facts = [fact for name in "stu" for fact in attached(name)]
    room = Storeroom(*facts, AttachLimits("a", most), a={})
    assert room.says(pod("web", "s", "t", "u")) == {"a": ""}


def test_a_volume_that_is_still_to_be_made_counts_for_its_provisioner() -> None:
    limits = AttachLimits("a", {"csi.example.com": 1})
    room = Storeroom(MADE, limits, claim("one", "made"), claim("two", "made"), a={})
    assert room.says(pod("web", "one", "two")) == {"a": "VOLUME_LIMIT"}
    room.runs(pod("first", "one"), "a")
    assert room.says(pod("web", "two")) == {"a": "VOLUME_LIMIT"}
    assert room.says(pod("web", "one")) == {"a": ""}


def test_a_migrated_class_counts_for_its_driver() -> None:
    kind = StorageClass("made", waits=True, provisioner="kubernetes.io/aws-ebs", driver="ebs.csi.aws.com")
    for driver, says in (("ebs.csi.aws.com", "VOLUME_LIMIT"), ("kubernetes.io/aws-ebs", "")):
        room = Storeroom(kind, AttachLimits("a", {driver: 0}), claim(kind="made"), a={})
        assert room.says(pod("web", "data")) == {"a": says}


def test_what_is_attached_for_nobody_counts_too() -> None:
    """As kube-scheduler: also when it is the very volume that the pod wants."""
    facts = [fact for name in "st" for fact in attached(name)]
    there = Attachment("x", "a", "csi.example.com", "s")
    room = Storeroom(*facts, there, AttachLimits("a", {"csi.example.com": 1}), a={})
    assert room.says(pod("web", "t")) == {"a": "VOLUME_LIMIT"}
    assert room.says(pod("web", "s")) == {"a": "VOLUME_LIMIT"}
    room.runs(pod("first", "s"), "a")
    assert room.says(pod("web", "s")) == {"a": ""}
    room.volumes.change((), (there,))
    room.ends(pod("first", "s"), "a")
    assert room.says(pod("web", "t")) == {"a": ""}


def test_attachments_and_limits_of_a_node_may_be_heard_of_before_the_node() -> None:
    facts: list[VolumeFact] = [*attached("s"), *attached("t"), Attachment("x", "late", "csi.example.com", "s")]
    room = Storeroom(*facts, AttachLimits("late", {"csi.example.com": 1}), a={})
    assert room.says(pod("web", "t")) == {"a": ""}
    room.add_node("late", {})
    assert room.says(pod("web", "t")) == {"a": "", "late": "VOLUME_LIMIT"}


def test_counts_follow_a_claim_that_gets_its_volume_later() -> None:
    limits = AttachLimits("a", {"csi.example.com": 1})
    room = Storeroom(MADE, limits, claim("one", "made"), *attached("t"), a={})
    room.runs(pod("first", "one"), "a")
    assert room.says(pod("web", "t")) == {"a": "VOLUME_LIMIT"}
    room.now(volume_of("local", claim("one")), bound("one", "local"))  # and no CSI driver counts that one
    assert room.says(pod("web", "t")) == {"a": ""}


# ---- volumes to be bound ----------------------------------------------------------------------------------------


def test_an_unbound_claim_takes_the_smallest_volume_of_each_node() -> None:
    room = Storeroom(
        LOCAL,
        claim(),
        volume("a-30", 30, "a"),
        volume("a-20", 20, "a"),
        volume("a-5", 5, "a"),
        volume("b-5", 5, "b"),
        a={},
        b={},
    )
    assert room.says(pod("web", "data")) == {"a": "", "b": "VOLUME_NONE"}
    assert room.takes(pod("web", "data"), "a") == [("default/data", "a-20")]
    with pytest.raises(VolumeError):
        room.takes(pod("web", "data"), "b")


@pytest.mark.parametrize(
    "unfit",
    [
        volume(size=9),
        volume(kind="other"),
        volume(mode="Block"),
        volume(attributes_class="gold"),
        volume(phase="Released"),
        volume(phase=""),
        volume(leaving=True),
        volume(access_modes=("ReadOnlyMany",)),
        volume(claim_ref=ClaimRef("default", "another")),
        volume(claim_ref=ClaimRef("default", "data", "uid-of-an-earlier-claim")),
        volume(node="b"),
    ],
)
def test_a_volume_must_fit_its_claim(unfit: Volume) -> None:
    assert Storeroom(LOCAL, claim(), unfit, a={}).says(pod("web", "data")) == {"a": "VOLUME_NONE"}
    assert Storeroom(LOCAL, claim(), unfit, volume("w"), a={}).takes(pod("web", "data"), "a") == [("default/data", "w")]


def test_a_claim_may_select_volumes_by_label() -> None:
    wanted = claim(selector=Selector((("disk", "fast"),)))
    room = Storeroom(LOCAL, wanted, volume("slow", labels={"disk": "slow"}), a={})
    assert room.says(pod("web", "data")) == {"a": "VOLUME_NONE"}
    room.now(volume("fast", 100, labels={"disk": "fast"}))
    assert room.takes(pod("web", "data"), "a") == [("default/data", "fast")]


def test_a_volume_kept_for_the_claim_comes_first_and_needs_no_phase() -> None:
    kept = volume("kept", 100, "a", phase="", access_modes=(), claim_ref=ClaimRef("default", "data"))
    room = Storeroom(LOCAL, claim(), kept, volume("small", 10), a={}, b={})
    assert room.takes(pod("web", "data"), "a") == [("default/data", "kept")]
    assert room.says(pod("web", "data")) == {"a": "", "b": "VOLUME_NONE"}  # elsewhere the claim takes no other either
    room.now(volume("kept", 5, "a", claim_ref=ClaimRef("default", "data")))  # too small: as if it were not there
    assert room.takes(pod("web", "data"), "b") == [("default/data", "small")]


def test_of_two_volumes_kept_for_a_claim_one_is_looked_at() -> None:
    """kube-scheduler takes the first it meets, and no other where that one cannot be used."""
    kept = [volume(name, 10, node, claim_ref=ClaimRef("default", "data")) for name, node in (("v", "a"), ("w", "b"))]
    assert Storeroom(LOCAL, claim(), *kept, a={}, b={}).says(pod("web", "data")) == {"a": "", "b": "VOLUME_NONE"}


def test_the_claims_of_one_pod_take_different_volumes_the_smallest_claim_first() -> None:
    room = Storeroom(
        LOCAL, claim("big", size=10), claim("tiny", size=1), volume("v-10", 10), volume("v-20", 20, "a"), a={}, b={}
    )
    both = pod("web", "big", "tiny")
    assert room.says(both) == {"a": "", "b": "VOLUME_NONE"}
    assert room.takes(both, "a") == [("default/tiny", "v-10"), ("default/big", "v-20")]


def test_a_volume_is_made_where_none_is_there() -> None:
    room = Storeroom(MADE, claim(kind="made"), volume("there", 10, "a", kind="made"), a={}, b={})
    assert room.says(pod("web", "data")) == {"a": "", "b": ""}
    assert room.takes(pod("web", "data"), "a") == [("default/data", "there")]
    assert room.takes(pod("web", "data"), "b") == [("default/data", "")]


@pytest.mark.parametrize(
    ("topologies", "usable"),
    [
        (None, {"a", "b"}),
        (only_on("zone", "x"), {"a"}),
        ((AffinityTerm(),), set()),
        ((*only_on("zone", "z"), *only_on("zone", "y")), {"b"}),
        ((AffinityTerm((Requirement("zone", "In", ("x",)), Requirement(HOST, "In", ("b",)))),), set()),
    ],
)
def test_volumes_are_made_in_the_topologies_of_their_class(topologies: object, usable: set[str]) -> None:
    kind = StorageClass("made", True, "csi.example.com", topologies=topologies)  # type: ignore[arg-type]
    said = Storeroom(kind, claim(kind="made"), a={"zone": "x"}, b={"zone": "y"}).says(pod("web", "data"))
    assert isinstance(said, dict)
    assert {node for node, reason in said.items() if not reason} == usable


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        ([], ""),  # nobody says that this driver tracks what it has
        ([CsiDriver("csi.example.com")], ""),
        ([CsiDriver("csi.example.com", tracks_capacity=True)], "VOLUME_NONE"),
        ([CsiDriver("csi.example.com", True), Capacity("s", "c", "made", 10 * GIB, Selector())], ""),
        ([CsiDriver("csi.example.com", True), Capacity("s", "c", "made", 10 * GIB - 1, Selector())], "VOLUME_NONE"),
        ([CsiDriver("csi.example.com", True), Capacity("s", "c", "made", None, Selector())], "VOLUME_NONE"),
        ([CsiDriver("csi.example.com", True), Capacity("s", "c", "made", 10 * GIB, None)], "VOLUME_NONE"),
        ([CsiDriver("csi.example.com", True), Capacity("s", "c", "other", 10 * GIB, Selector())], "VOLUME_NONE"),
        ([CsiDriver("csi.example.com", True), Capacity("s", "c", "made", 10 * GIB, Selector(((HOST, "a"),)))], ""),
        (
            [CsiDriver("csi.example.com", True), Capacity("s", "c", "made", 10 * GIB, Selector(((HOST, "b"),)))],
            "VOLUME_NONE",
        ),
    ],
)
def test_volumes_are_made_where_their_driver_has_room(facts: list[VolumeFact], says: str) -> None:
    assert Storeroom(MADE, claim(kind="made"), *facts, a={}).says(pod("web", "data")) == {"a": says}


def test_a_claim_that_asks_for_no_size_needs_no_room() -> None:
    room = Storeroom(MADE, CsiDriver("csi.example.com", True), claim(kind="made", request=None), a={})
    assert room.says(pod("web", "data")) == {"a": ""}


def test_a_volume_that_is_being_made_for_a_node_binds_the_pod_to_it() -> None:
    room = Storeroom(MADE, claim(kind="made", selected_node="b"), volume("there", 10, "a", kind="made"), a={}, b={})
    assert room.says(pod("web", "data")) == {"a": "VOLUME_NONE", "b": ""}
    assert room.takes(pod("web", "data"), "b") == [("default/data", "")]


def test_the_first_rule_that_is_broken_is_named_in_kube_schedulers_order() -> None:
    here = volume_of("s", bound("s", "s"), driver="csi.example.com", handle="h", node="b", labels={ZONE: "x"})
    facts: list[VolumeFact] = [bound("s", "s"), here, LOCAL, claim("none")]
    nodes = {"a": {ZONE: "y"}, "b": {ZONE: "y"}, "c": {}}
    room = Storeroom(*facts, AttachLimits("a", {"csi.example.com": 0}), **nodes)
    assert room.says(pod("web", "s", "none")) == {"a": "VOLUME_LIMIT", "b": "VOLUME_NONE", "c": "VOLUME_NODE"}
    assert room.says(pod("web", "s")) == {"a": "VOLUME_LIMIT", "b": "VOLUME_ZONE", "c": "VOLUME_NODE"}


def test_a_pod_of_no_concern_is_forgotten_at_once() -> None:
    room = Storeroom(LOCAL, a={})
    room.runs(builders.pod("plain"), "a")
    room.ends(builders.pod("plain"), "a")
    assert room.says(pod("web", "data")) == "CLAIM_MISSING"
