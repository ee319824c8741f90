"""Vectors that live in the manifests themselves: what a user writes, what `dovetail plan -o json` answers."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.builders import ask, card, node, pod
from tests.hami.scene import Json, Scene, manifests, plan, pod_manifest, running_pod, scene

LIMITS = "nvidia.com/"


def asking(limits: Mapping[str, object], annotations: dict[str, str] | None = None) -> Json:
    made = pod_manifest(pod("p", ask(1, 1)))
    made["spec"]["containers"][0]["resources"] = {"limits": {LIMITS + name: value for name, value in limits.items()}}
    made["metadata"]["annotations"] = annotations or {}
    return made


def devices(document: Json) -> list[tuple[str, int, int]]:
    (placed,) = document["placements"]
    return [(d["uuid"], d["memory_mib"], d["compute_milli"]) for d in placed["devices"]]


def one_card(model: str) -> Scene:
    return scene(node("n", card("GPU-a", 11264)), model=model)


@pytest.mark.parametrize(
    ("limits", "memory", "milli"),
    [
        ({"gpu": 1}, 11264, 1000),  # a whole card, exclusively
        ({"gpu": 1, "gpumem-percentage": 0}, 11264, 0),  # V19: 0 % is unset
        ({"gpu": 1, "gpumem": 2000, "gpumem-percentage": 0}, 2000, 0),
        ({"gpu": 1, "gpumem-percentage": 50}, 5632, 0),
        ({"gpu": 1, "gpumem": 512, "gpucores": 120}, 512, 1000),  # V19: booked cores 100
        ({"gpu": 1, "gpumem": 2000, "gpumem-percentage": 50}, 2000, 0),  # gpumem wins
        ({"gpu": 1, "gpumem": 2000, "gpumem-percentage": 100}, 2000, 1000),  # but 100 % makes it exclusive all the same
        ({"gpumem": 3000}, 3000, 0),  # the webhook adds the count
        ({"gpu": "1", "gpumem": "5k"}, 5000, 0),
    ],
)
def test_what_is_written_is_what_is_booked(model: str, limits: dict[str, object], memory: int, milli: int) -> None:
    assert devices(plan(*manifests(one_card(model)), asking(limits))) == [("GPU-a", memory, milli)]


def test_v19_a_percentage_of_0_on_a_nearly_full_card(model: str) -> None:
    document = plan(
        *manifests(one_card(model)),
        running_pod("r", "n", "GPU-a,NVIDIA,11260,0:;"),
        asking({"gpu": 1, "gpumem-percentage": 0, "gpucores": 10}),
    )
    assert document["pending"][0]["nodes"] == {"n": "1/1 CardInsufficientMemory"}


def test_the_register_may_be_the_old_text(model: str) -> None:
    """uuid,count,mem,core,type,numa,health: of HAMi before 2.7."""
    (made,) = manifests(one_card(model))
    made["metadata"]["annotations"]["hami.io/node-nvidia-register"] = (
        f"GPU-x,10,8000,100,{model},0,true:GPU-y,10,8000,100,{model},0,false:"
    )
    assert devices(plan(made, asking({"gpu": 1, "gpumem": 1000}))) == [("GPU-x", 1000, 0)]


def test_a_card_without_health_is_unhealthy(model: str) -> None:
    (made,) = manifests(scene(node("n", card("GPU-a", healthy=False)), model=model))
    assert "health" not in made["metadata"]["annotations"]["hami.io/node-nvidia-register"]
    document = plan(made, asking({"gpu": 1, "gpumem": 1}))
    assert document["pending"][0]["nodes"] == {"n": "1/1 CardNotHealth"}
    assert document["pending"][0]["reasons"] == {"CardNotHealth": 1}


def test_a_cordon_is_a_list_with_blanks(model: str) -> None:
    """V21: `dev-1, `."""
    (made,) = manifests(scene(node("n", card("dev-0"), card("dev-1")), model=model))
    made["metadata"]["annotations"]["hami.io/device-cordon"] = "dev-1, "
    assert devices(plan(made, asking({"gpu": 1, "gpumem": 512})))[0][0] == "dev-0"


@pytest.mark.parametrize("segments", ["GPU-a,NVIDIA,6000,75:;", ";GPU-a,NVIDIA,6000,75:;", "GPU-a,NVIDIA,6000,75:;;"])
def test_use_comes_from_the_device_strings_whatever_their_segments(model: str, segments: str) -> None:
    """Segments need not match the containers: the use counts all the same (8000 − 6000 < 2001)."""
    given = scene(node("n", card("GPU-a")), model=model)
    document = plan(*manifests(given), running_pod("r", "n", segments), asking({"gpu": 1, "gpumem": 2001}))
    assert document["pending"][0]["nodes"] == {"n": "1/1 CardInsufficientMemory"}
    (gpu,) = document["nodes"][0]["devices"]
    assert (gpu["before"]["memory_mib"], gpu["before"]["compute_milli"]) == (6000, 750)


def test_a_terminating_pod_still_holds_its_card_and_a_finished_one_does_not(model: str) -> None:
    given = manifests(scene(node("n", card("GPU-a")), model=model))
    leaving = running_pod("r", "n", "GPU-a,NVIDIA,6000,75:;")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    wants = asking({"gpu": 1, "gpumem": 2001})
    assert plan(*given, leaving, wants)["pending"]
    ended = running_pod("r", "n", "GPU-a,NVIDIA,6000,75:;")
    ended["status"]["phase"] = "Succeeded"
    assert plan(*given, ended, wants)["placements"]


def test_annotations_of_the_pod_choose_the_policies_and_ours_win(model: str) -> None:
    given = manifests(scene(node("n", card("full"), card("empty")), model=model))
    used = running_pod("r", "n", "full,NVIDIA,2000,0:;")
    wants = {"gpu": 1, "gpumem": 1000}
    hami = {"hami.io/gpu-scheduler-policy": "binpack"}
    assert devices(plan(*given, used, asking(wants, hami)))[0][0] == "full"
    both = hami | {"dovetail.dev/gpu-policy": "spread"}
    assert devices(plan(*given, used, asking(wants, both)))[0][0] == "empty"
    assert devices(plan(*given, used, asking(wants), options=["--gpu-policy", "binpack"]))[0][0] == "full"


@pytest.mark.parametrize("weights", ["slot=1,core=1", "slot=0,core=0,memory=0", "slot=-1,core=1,memory=1", "nonsense"])
def test_v17_weights_that_mean_nothing_are_refused(model: str, weights: str) -> None:
    """HAMi fails the whole Filter call; here the pod stays pending and the field is named."""
    document = plan(
        *manifests(one_card(model)), asking({"gpu": 1, "gpumem": 1}, {"hami.io/device-scoring-weights": weights})
    )
    assert document["placements"] == []
    said = " ".join(document["errors"] + [waiting["message"] for waiting in document["pending"]])
    assert "device-scoring-weights" in said


def test_gpumem_counts_in_the_cards_score_where_a_percentage_is_given_too(model: str) -> None:
    """binpack, 6,000 MiB and 100 %: with 6,000 of 8,000 MiB the small card would be fuller than the one of 12,000.

    HAMi's score would take 100 % of either: a tie, which its registration order decides.
    """
    both = {"gpu": 1, "gpumem": 6000, "gpumem-percentage": 100, "gpucores": 10}
    for cards in ((card("small", 8000), card("large", 12000)), (card("large", 12000), card("small", 8000))):
        given = manifests(scene(node("n", *cards), model=model))
        document = plan(*given, asking(both, {"hami.io/gpu-scheduler-policy": "binpack"}))
        assert devices(document) == [("small", 6000, 100)]


def test_a_namespace_over_its_core_quota_still_takes_a_pod_that_asks_for_no_cores(model: str) -> None:
    """A quota limits what a pod adds, as in Kubernetes; HAMi denies every GPU pod of such a namespace."""
    running = running_pod("r", "n", "GPU-a,NVIDIA,100,60:;")
    running["metadata"]["namespace"] = "default"
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": "default"},
        "spec": {"hard": {"limits.nvidia.com/gpucores": "50"}},  # 60 are in use
    }
    given = (*manifests(one_card(model)), running, quota)
    assert devices(plan(*given, asking({"gpu": 1, "gpumem": 512, "gpucores": 0}))) == [("GPU-a", 512, 0)]
    refused = plan(*given, asking({"gpu": 1, "gpumem": 512, "gpucores": 1}))
    assert refused["pending"][0]["nodes"] == {"n": "1/1 ResourceQuotaNotFit"}
