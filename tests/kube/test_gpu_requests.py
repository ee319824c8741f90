"""HAMi's rules of what a container asks of cards (V24), and the annotations beside them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dovetail.kube.conversion.settings import Settings
from dovetail.kube.conversion.vendors import DEFAULT_VENDORS
from dovetail.model.pod import ContainerKind, DeviceAsk, DeviceRules, Profile
from dovetail.model.reason import Reason
from tests.kube.manifests import (
    CORES,
    GPU,
    MEM,
    PCT,
    ask_of,
    container,
    gpu_pod,
    node,
    only_pod,
    other,
    pod,
    read,
    said,
)
from tests.kube.manifests import card as registered


def nvidia(**changes: object) -> Settings:
    row = replace(DEFAULT_VENDORS.by_word["NVIDIA"], **changes)  # type: ignore[arg-type]
    return Settings(vendors=DEFAULT_VENDORS.with_rows([row]))


def asks(count: int, mib: int = 0, percent: int | None = None, cores: int = 0) -> DeviceAsk:
    return DeviceAsk("NVIDIA", count, mib, percent, cores * 10)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"gpu": 2, "gpumem": 4096}, asks(2, 4096)),
        ({"gpu": 1, "gpumem": "5k"}, asks(1, 5000)),
        ({"gpu": 1, "pct": 50}, asks(1, 0, 50)),
        ({"gpu": 1, "pct": 150}, asks(1, 0, 100)),
        ({"gpu": 1, "pct": 101}, asks(1, 0, 100)),
        ({"gpu": 1, "pct": 2**32 + 50}, asks(1, 0, 100)),
        ({"gpu": 1, "pct": 0}, asks(1, 0, 100)),
        ({"gpu": 1, "pct": -1}, asks(1, 0, 100)),
        ({"gpu": 1, "gpumem": 2000, "pct": 0}, asks(1, 2000)),
        ({"gpu": 1, "gpumem": 2000, "pct": 50}, asks(1, 2000)),  # if both are given, gpumem wins
        ({"gpu": 1, "gpumem": 0}, asks(1, 0, 100)),
        ({"gpu": 1, "gpumem": "16Gi"}, asks(1, 16384)),
        ({"gpu": 1, "gpumem": "16.0Gi"}, asks(1, 16384)),
        ({"gpu": 0}, None),
        ({"cpu": 1}, None),
        ({"gpu": 1, "gpumem": 1000, "gpucores": 120}, asks(1, 1000, None, 100)),
    ],
)
def test_v24_what_is_written_and_what_is_asked(limits: dict[str, Any], expected: DeviceAsk | None) -> None:
    assert ask_of(gpu_pod(**limits)) == expected


@pytest.mark.parametrize(
    ("limits", "cores"),
    [
        ({"gpu": 1}, 100),
        ({"gpu": 1, "pct": 100}, 100),
        ({"gpu": 1, "pct": 50}, 0),
        ({"gpu": 1, "gpumem": 8192}, 0),
        ({"gpu": 1, "gpucores": 70}, 70),
        ({"gpu": 1, "gpucores": 0}, 0),
    ],
)
def test_v24_a_whole_card_is_exclusive_unless_cores_are_stated(limits: dict[str, Any], cores: int) -> None:
    ask = ask_of(gpu_pod(**limits))
    assert ask is not None
    assert ask.compute_milli == cores * 10


def test_v24_without_a_memory_resource_every_card_is_whole() -> None:
    ask = ask_of(gpu_pod(gpu=1, gpumem=8192), nvidia(memory=""))
    assert ask == replace(asks(1, 0, 100, 100), plain=True)


def test_v24_factor_and_defaults() -> None:
    assert ask_of(gpu_pod(gpu=1, gpumem=1024), nvidia(memory_factor=2)) == asks(1, 2048)
    assert ask_of(gpu_pod(gpu=1, pct=-1), nvidia(default_memory=512)) == asks(1, 512)
    assert ask_of(gpu_pod(gpu=1, gpumem=100), nvidia(default_cores=20)) == asks(1, 100, None, 20)


def test_v24_requests_are_honoured_and_limits_come_first() -> None:
    assert ask_of(pod("p", container({}, {GPU: 2, MEM: 4096}))) == asks(2, 4096)
    assert ask_of(pod("p", container({GPU: 1, MEM: 1000}, {GPU: 2, MEM: 4096}))) == asks(1, 1000)


def test_a_part_of_a_card_without_a_count_is_one_card_by_the_webhook() -> None:
    given = read(gpu_pod(gpumem=1000))
    assert ask_of(gpu_pod(gpumem=1000)) == asks(1, 1000)
    assert ask_of(gpu_pod(gpumem=1000), nvidia(default_count=2)) == asks(2, 1000)
    assert said(given, "note", GPU)
    assert ask_of(pod("p", container({}, {MEM: 1000}))) is None  # the webhook looks at limits only


@pytest.mark.parametrize(
    ("written", "mib"),
    [
        ("8Gi", 8192),
        ("8000Mi", 8000),
        ("8589934592Ki", 8 << 20),
        ("1.5Gi", 1536),
        ("8G", 7630),  # 8,000,000,000 / 1,048,576 = 7,629.4, rounded up
        ("500M", 477),  # 500,000,000 / 1,048,576 = 476.8
        (8_000_000_000, 7630),  # what the API server stores as 8G
        ("64Mi", 64),
    ],
)
def test_a_unit_of_memory_is_understood_and_noted(written: str | int, mib: int) -> None:
    source = gpu_pod(gpu=1, gpumem=written)
    assert ask_of(source) == asks(1, mib)
    given = read(source)
    (note,) = said(given, "note", MEM)
    assert f"{written} is read as {mib:,} MiB per card" in note.message
    assert note.tell
    assert note.field == "spec.containers[0].resources.limits.nvidia.com/gpumem"
    assert note.where == "m.json#1 Pod default/p"
    assert not said(given, "warning")


@pytest.mark.parametrize(("written", "mib"), [("8k", 8000), (8000, 8000), (8192, 8192), ("8192", 8192), ("2e3", 2000)])
def test_a_plain_number_is_mib_and_thousands_are_no_unit(written: str | int, mib: int) -> None:
    """The API server stores 8000 as 8k."""
    source = gpu_pod(gpu=1, gpumem=written)
    assert ask_of(source) == asks(1, mib)
    assert not said(read(source), "note", MEM)
    assert not said(read(source), "warning")


@pytest.mark.parametrize(
    ("hard", "mib"),
    [("2000", 2000), (2000, 2000), ("2k", 2000), ("1M", 1_000_000), ("16Gi", 16384), ("16G", 15258), ("0", 0)],
)
def test_a_quota_of_memory_is_mib_or_has_a_unit(hard: str | int, mib: int) -> None:
    """1000000 is stored as 1M; 16,000,000,000 / 1,048,576 = 15,258.8, rounded down: a limit is not exceeded."""
    (quota,) = read(other("ResourceQuota", name="q", spec={"hard": {"limits.nvidia.com/gpumem": hard}})).quotas
    assert quota.device_memory_mib == {"NVIDIA": mib}


def test_a_unit_needs_no_factor() -> None:
    assert ask_of(gpu_pod(gpu=1, gpumem="1Gi"), nvidia(memory_factor=2)) == asks(1, 1024)


@pytest.mark.parametrize(("written", "hint"), [(8, "8Gi"), ("8Mi", "8Gi"), (63, "63Gi")])
def test_a_few_mib_are_doubted(written: str | int, hint: str) -> None:
    source = gpu_pod(gpu=1, gpumem=written)
    assert ask_of(source) == asks(1, int(str(written).removesuffix("Mi")))
    (doubt,) = said(read(source), "warning", MEM)
    assert "hardly meant" in doubt.message
    assert f"write {hint}" in doubt.message


@pytest.mark.parametrize("part", [{"gpumem": 8000}, {"pct": 50}, {"gpucores": 30}, {"gpumem": "8Gi"}])
def test_a_part_of_no_card_is_doubted(part: dict[str, Any]) -> None:
    """Without a word the pod would be placed without a GPU."""
    source = gpu_pod(gpu=0, **part)
    assert ask_of(source) is None
    (doubt,) = said(read(source), "warning", GPU)
    assert "is 0, so that the pod gets no card" in doubt.message
    assert "write nvidia.com/gpu: 1" in doubt.message
    assert said(read(gpu_pod(gpu=0, gpumem=0)), "warning", GPU) == []


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        (17_179_869_184, "write 16384Mi"),  # 16 GiB in bytes, and a plain number is MiB
        ("2147483648", "write 2048Mi"),
        ("1000.5", "not a whole number"),
        ("16Ki", "16,384 bytes"),
        (1_000_000, "1,000,000 bytes"),  # stored as 1M: neither a megabyte nor a million MiB is an amount of memory
        ("1Ei", "more than any card"),
        ("8GB", "not a quantity"),
    ],
)
def test_what_can_be_no_amount_of_memory_is_refused_and_the_card_stays_counted(written: str | int, hint: str) -> None:
    source = gpu_pod(gpu=1, gpumem=written)
    found = only_pod(source)
    assert found.refusal is not None
    assert found.refusal.reason is Reason.INVALID_REQUEST
    assert found.refusal.message.startswith("nvidia.com/gpumem: ")
    (error,) = said(read(source), "error", MEM)
    assert hint in error.message
    assert found.resources == {GPU: 1}
    (running,) = read(node("n", registered("GPU-a")), pod("p", container({GPU: 1, MEM: written}), nodeName="n")).running
    assert [ask.count for ask in running.pod.containers[0].asks] == [1]  # it runs: its card is held


@pytest.mark.parametrize(
    ("limits", "field"),
    [
        ({"gpu": -1}, GPU),
        ({"gpu": "0.5"}, GPU),
        ({"gpu": "many"}, GPU),
        ({"gpu": 1, "gpumem": -5}, MEM),
        ({"gpu": 1, "gpucores": -5}, CORES),
        ({"gpu": 1, "gpucores": "2.5"}, CORES),
        ({"gpu": 1, "pct": "12.5"}, PCT),
        ({"gpu": "9" * 30}, GPU),
    ],
)
def test_nonsense_is_refused_and_the_field_named(limits: dict[str, Any], field: str) -> None:
    given = read(gpu_pod(**limits))
    refusal = only_pod(gpu_pod(**limits)).refusal
    assert refusal is not None
    assert refusal.reason is Reason.INVALID_REQUEST
    assert said(given, "error", f"spec.containers[0].resources.limits.{field}")


def test_parts_of_cards_are_not_counted_on_nodes_but_the_count_is() -> None:
    found = only_pod(gpu_pod(gpu=2, gpumem=1000, gpucores=10))
    assert found.resources == {GPU: 2}


def test_other_vendors_are_rows() -> None:
    found = only_pod(pod("p", container({"hygon.com/dcunum": 1, "hygon.com/dcumem": 2000, "hygon.com/dcucores": 15})))
    assert found.containers[0].asks == (DeviceAsk("DCU", 1, 2000, None, 150),)
    assert only_pod(pod("p", container({"vastaitech.com/va": 2}))).containers[0].asks == (
        DeviceAsk("Vastai", 2, 0, 100, plain=True),
    )


def test_v13_containers_keep_their_positions_init_first() -> None:
    found = only_pod(
        pod(
            "p",
            container({GPU: 1, MEM: 1000, CORES: 30}, name="app"),
            initContainers=[
                container(name="empty"),
                container({GPU: 1, MEM: 1000, CORES: 30}, name="gpu", restartPolicy="Always"),
            ],
        )
    )
    kinds = [(c.name, c.kind, c.asks) for c in found.containers]
    ask = (asks(1, 1000, None, 30),)
    assert kinds == [
        ("empty", ContainerKind.INIT, ()),
        ("gpu", ContainerKind.SIDECAR, ask),
        ("app", ContainerKind.APP, ask),
    ]


def test_annotations_say_which_cards() -> None:
    annotations = {
        "nvidia.com/use-gputype": "A100, H20,",
        "nvidia.com/nouse-gputype": "T4",
        "nvidia.com/use-gpuuuid": " GPU-a ,GPU-b",
        "nvidia.com/nouse-gpuuuid": " ",
        "nvidia.com/numa-bind": "true",
        "nvidia.com/vgpu-mode": "hami-core",
    }
    (rules,) = only_pod(gpu_pod(annotations, gpu=1)).device_rules
    assert rules == DeviceRules("NVIDIA", ("A100", "H20"), ("T4",), ("GPU-a", "GPU-b"), (), True, "hami-core")


def test_policies_ours_before_hamis_before_the_default() -> None:
    hami = {"hami.io/node-scheduler-policy": "spread", "hami.io/gpu-scheduler-policy": "binpack,numa"}
    ours = {"dovetail.dev/node-policy": "binpack", "hami.io/device-scoring-weights": "slot=0,core=1,memory=3"}
    assert only_pod(gpu_pod(hami, gpu=1)).profile == Profile("spread", ("binpack", "numa"))
    assert only_pod(gpu_pod({**hami, **ours}, gpu=1)).profile == Profile("binpack", ("binpack", "numa"), (0, 1, 3))
    default = Settings(profile=Profile("spread", ("mutex",)))
    assert only_pod(gpu_pod(gpu=1), settings=default).profile == default.profile


@pytest.mark.parametrize(
    ("key", "value", "hint"),
    [
        ("hami.io/node-scheduler-policy", "binpak", "binpack, spread"),
        ("dovetail.dev/gpu-policy", "binpack,nume", "mutex, numa, spread"),
        ("dovetail.dev/gpu-policy", "binpack,binpack", "twice"),
        ("dovetail.dev/gpu-policy", "binpack,spread,numa,mutex,topology-aware", "more than 4"),
        ("hami.io/device-scoring-weights", "slot=1,core=1", "slot=1,core=1,memory=1"),
        ("hami.io/device-scoring-weights", "slot=0,core=0,memory=0", "positive"),
        ("hami.io/device-scoring-weights", "slot=-1,core=1,memory=1", "weights"),
    ],
)
def test_a_wrong_policy_is_an_error_that_lists_the_right_ones(key: str, value: str, hint: str) -> None:
    source = gpu_pod({key: value}, gpu=1)
    refusal = only_pod(source).refusal
    assert refusal is not None
    assert refusal.reason is Reason.INVALID_REQUEST
    (error,) = said(read(source), "error", key)
    assert hint in error.message


def test_a_type_that_only_a_substring_would_match_is_warned_of() -> None:
    source = gpu_pod({"nvidia.com/use-gputype": "H20"}, gpu=1)
    h200, h20 = registered("a", "NVIDIA H200"), registered("b", "NVIDIA H20")
    (warning,) = said(read(source, node("n", h20, h200)), "warning", "use-gputype")
    assert "not NVIDIA H200" in warning.message
    assert not said(read(source, node("n", h20)), "warning", "use-gputype")
    (nothing,) = said(read(source, node("n", registered("a", "Tesla T4"))), "warning", "use-gputype")
    assert "matches no card" in nothing.message
