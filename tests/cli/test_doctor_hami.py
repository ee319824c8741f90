"""`dovetail doctor --from hami` on files: which pods and nodes a change from HAMi to Dovetail concerns, and how."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.kube.manifests import ALLOCATED, CORES, GPU, MEM, PCT, REGISTER, Object, card, container, node, other, pod

HANDSHAKE = "hami.io/node-handshake"
H20, H200 = "NVIDIA H20-3e", "NVIDIA H200"


def hami_pod(name: str, *, record: str = "", where: str = "n", limits: Object | None = None, **more: Any) -> Object:
    """A pod of 1,000 MiB that HAMi's webhook saw; with `record`, it runs on `where`."""
    notes = {**({ALLOCATED: record, "hami.io/vgpu-node": where} if record else {}), **more.pop("notes", {})}
    meta = {"namespace": "ml", "uid": f"uid-{name}", "annotations": notes}
    asks = container(limits or {GPU: 1, MEM: 1000, CORES: 10})
    spec = {"schedulerName": "hami-scheduler", **({"nodeName": where} if record else {}), **more}
    return pod(name, asks, meta=meta, **spec)


def differences(run: Run, tmp_path: Path, *items: Object, options: tuple[str, ...] = ()) -> dict[str, Any]:
    path = tmp_path / "hami.json"
    path.write_text("\n".join(json.dumps(item) for item in items), encoding="utf-8")
    served = ("--scheduler-name", "hami-scheduler")
    result = run("doctor", "--from", "hami", "-f", path, "-o", "json", *served, *options)
    document: dict[str, Any] = json.loads(result.stdout)
    assert result.exit_code == (3 if document["findings"] else 0)
    return document


def found(document: dict[str, Any]) -> set[tuple[str, str]]:
    return {(one["check"], one["object"]) for one in document["findings"]}


NODE = node("n", card("GPU-0", H200), card("GPU-1", H200))
PLAIN = hami_pod("plain", record="GPU-0,NVIDIA,1000,10:;")
SIDECAR = {**container({GPU: 1, MEM: 1000, CORES: 10}, name="side"), "restartPolicy": "Always"}

POD_CASES: dict[str, tuple[Object, str, str]] = {  # difference -> (pod, check, words of the message)
    "H20 as a part of H200": (
        hami_pod("p", notes={"nvidia.com/use-gputype": "H20"}),
        "hami-type-match",
        "H20 matches NVIDIA H200 in HAMi",
    ),
    "a policy that HAMi replaces": (
        hami_pod("p", notes={"hami.io/node-scheduler-policy": "fgd"}),
        "hami-policy-ignored",
        "which uses binpack without a message; Dovetail uses it",
    ),
    "a policy that nobody knows": (
        hami_pod("p", notes={"hami.io/gpu-scheduler-policy": "bin-pack"}),
        "hami-policy-ignored",
        "Dovetail does not place the pod",
    ),
    "memory with a unit": (
        hami_pod("p", limits={GPU: 1, MEM: "2Gi", CORES: 10}),
        "hami-memory-unit",
        "nvidia.com/gpumem: 2Gi is no number of MiB to HAMi",
    ),
    "a request that is refused": (
        hami_pod("p", limits={GPU: "1500m", MEM: 1000, CORES: 10}),
        "hami-refused",
        "Dovetail does not place it",
    ),
    "memory stated twice": (
        hami_pod("p", limits={GPU: 1, MEM: 1000, PCT: 50, CORES: 10}),
        "hami-two-amounts",
        "nvidia.com/gpumem-percentage",
    ),
    "a whole card past the webhook": (
        hami_pod("p", limits={GPU: 1}),
        "hami-exclusive-cores",
        "Dovetail counts 100 % of each card",
    ),
    "a sidecar with a card": (hami_pod("p", initContainers=[SIDECAR]), "hami-sidecar", "sidecar side has GPUs"),
    "topology-aware with numa-bind": (
        hami_pod("p", notes={"hami.io/gpu-scheduler-policy": "topology-aware", "nvidia.com/numa-bind": "true"}),
        "hami-numa",
        "HAMi looks at the last NUMA node only",
    ),
    "a score of the vendor": (
        hami_pod("p", limits={"kunlunxin.com/xpu": 1}),
        "hami-vendor-score",
        "HAMi adds the vendor's own score",
    ),
    "a record that cannot be read": (
        hami_pod("p", record="GPU-0,NVIDIA:;"),
        "hami-record",
        "Dovetail keeps every card",
    ),
}


@pytest.mark.parametrize("case", POD_CASES)
def test_each_difference_names_its_pod_and_leaves_the_other_out(case: str, run: Run, tmp_path: Path) -> None:
    item, check, words = POD_CASES[case]
    document = differences(run, tmp_path, NODE, PLAIN, item)
    assert found(document) == {(check, "Pod ml/p")}
    (one,) = document["findings"]
    assert words in one["message"]
    assert one["advice"]
    assert document["differences"] == {"pods": 2, "unaffected_pods": 1, "nodes": 1, "unaffected_nodes": 1}


def test_nothing_differs(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "hami.json"
    path.write_text(json.dumps(NODE) + "\n" + json.dumps(PLAIN), encoding="utf-8")
    result = run("doctor", "--from", "hami", "-f", path, "--scheduler-name", "hami-scheduler")
    assert result.exit_code == 0
    assert "Nothing differs for 1 of 1 pods with GPUs, and for 1 of 1 nodes with GPUs." in result.stdout


def test_a_type_that_is_a_whole_word_does_not_differ(run: Run, tmp_path: Path) -> None:
    both = node("n", card("GPU-0", H20), card("GPU-1", H20))
    assert found(differences(run, tmp_path, both, hami_pod("p", notes={"nvidia.com/use-gputype": "h20"}))) == set()


def test_nodes(run: Run, tmp_path: Path) -> None:
    """Mixed cards, a cordoned card, cards split by MIG, a card of two nodes, equal scores, HAMi's plugin."""
    items = [
        node("mixed", card("GPU-m0", H20, 8000), card("GPU-m1", H200, 9000)),
        node(
            "cordon", card("GPU-c", H200), annotations={"hami.io/device-cordon": "GPU-c", HANDSHAKE: "Requesting_now"}
        ),
        node("mig", card("GPU-g", H200, mode="mig")),
        node("twin", card("GPU-c", H200)),
    ]
    document = differences(run, tmp_path, *items)
    assert found(document) == {
        ("hami-mixed-node", "Node mixed"),
        ("hami-cordon", "Node cordon"),
        ("hami-mig", "Node mig"),
        ("hami-node-doubtful", "Node twin"),
        ("hami-ties", "Nodes"),
        ("hami-node-lock", "Nodes"),
    }
    assert document["differences"] == {"pods": 0, "unaffected_pods": 0, "nodes": 4, "unaffected_nodes": 0}


def test_cards_that_only_records_name_and_cards_given_twice(run: Run, tmp_path: Path) -> None:
    """HAMi ignores the first and caused the second (its read, score and reserve are not atomic)."""
    pods = [hami_pod(f"p{n}", record="GPU-0,NVIDIA,8000,10:;", limits={GPU: 1, MEM: 8000, CORES: 10}) for n in range(2)]
    ghost = hami_pod("ghost", record="GPU-9,NVIDIA,1000,10:;")
    document = differences(run, tmp_path, NODE, *pods, ghost)
    messages = [one["message"] for one in document["findings"] if one["check"] == "hami-node-doubtful"]
    assert any("memory 16,000 of 8,000 MiB" in text for text in messages)
    assert any("GPU-9 is not registered" in text for text in messages)


def test_the_installation(run: Run, tmp_path: Path) -> None:
    """HAMi's scheduler, its flags, webhook, device configuration, quotas, and the names that must be served."""
    labels = {"app.kubernetes.io/component": "hami-scheduler"}
    flags = ["scheduler", "--node-scheduler-policy=spread", "--node-label-selector=gpu=a100"]
    scheduler = pod("hami-scheduler-0", {"name": "e", "command": flags}, meta={"namespace": "hami", "labels": labels})
    hook = {"name": "vgpu.hami.io", "clientConfig": {"service": {"namespace": "hami", "name": "hami-scheduler"}}}
    webhook = other("MutatingWebhookConfiguration", "admissionregistration.k8s.io/v1", "hami-webhook", webhooks=[hook])
    config = "nvidia:\n  resourceCountName: nvidia.com/gpu\n  defaultMemory: 5000\n"
    config_map = other("ConfigMap", name="hami-scheduler-device", data={"device-config.yaml": config})
    quotas = [
        other("ResourceQuota", name=name, spec={"hard": {"limits.nvidia.com/gpumem": 9000}}) for name in ("one", "two")
    ]
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": "dovetail-scheduler",
            "namespace": "kube-system",
            "labels": {"dovetail.dev/scheduler": "true"},
            "annotations": {"dovetail.dev/scheduler-names": "hami-scheduler"},
        },
        "spec": {"holderIdentity": "one"},
    }
    elsewhere = hami_pod("other")
    elsewhere["spec"]["schedulerName"] = "volcano"
    document = differences(run, tmp_path, NODE, scheduler, webhook, config_map, *quotas, lease, elsewhere)
    assert found(document) == {
        ("hami-flags", "Pod hami/hami-scheduler-0"),
        ("hami-scheduler-running", "Pod hami/hami-scheduler-0"),
        ("hami-webhook-registered", "MutatingWebhookConfiguration hami-webhook"),
        ("hami-device-config", "ConfigMap /hami-scheduler-device"),
        ("hami-quotas", "Namespace default"),
        ("hami-scheduler-name", "schedulerName volcano"),
    }
    said = {one["check"]: one["message"] + one["advice"] for one in document["findings"]}
    assert "defaultMemory is 5000, not 0" in said["hami-device-config"]
    assert "both decide for the same pods" in said["hami-scheduler-running"]
    flags_said = [one["advice"] for one in document["findings"] if one["check"] == "hami-flags"]
    assert [text.split(" to keep")[0] for text in flags_said] == [
        "start Dovetail with --node-policy spread",
        "start Dovetail with --node-selector gpu=a100",
    ]

    path = tmp_path / "device-config.yaml"
    path.write_text(config, encoding="utf-8")
    told = differences(run, tmp_path, NODE, config_map, options=("--device-config", str(path)))
    assert found(told) == set()


def test_a_pod_that_is_fine_on_a_broken_register(run: Run, tmp_path: Path) -> None:
    half = node("n", card("GPU-0"), annotations={REGISTER: json.dumps([card("GPU-0"), {}])})
    assert found(differences(run, tmp_path, half, PLAIN)) == {("hami-node-doubtful", "Node n")}
