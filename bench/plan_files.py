"""How long `dovetail plan` takes with typical files: kubectl's dump of all nodes, or a short cluster file.

A node has what HAMi's plugin, kubelet and feature discovery write: 8 cards in the register, labels, conditions and 20
images. The files are written line by line in kubectl's format, because PyYAML would take a minute.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

NODES, PODS, CARDS, IMAGES = 5_000, 512, 8, 20
RUNS = 4
Json = dict[str, Any]
MODELS = (("NVIDIA A100-SXM4-80GB", 81920), ("NVIDIA H100 80GB HBM3", 81559), ("NVIDIA L40S", 46068))
CONDITIONS = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)
WIDTH = 80
NUMBER_OR_TIME = re.compile(r"[-+]?[0-9]*\.?[0-9]+(e[-+]?[0-9]+)?\Z|[0-9]{4}-[0-9]{2}-[0-9]{2}T")
QUOTED = ("true", "false", "True", "False", "null", "yes", "no", "on", "off", "")


def node(number: int) -> Json:
    """A Node of v1 as the API server returns it."""
    name = f"gpu-{number:05d}"
    model, memory = MODELS[number % len(MODELS)]
    capacity = {
        "cpu": "128",
        "ephemeral-storage": "1855354800Ki",
        "hugepages-1Gi": "0",
        "hugepages-2Mi": "0",
        "memory": "1056498764Ki",
        "nvidia.com/gpu": "80",
        "pods": "110",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "annotations": _annotations(number, model, memory),
            "creationTimestamp": f"2025-11-03T{number % 23:02d}:14:{number % 57:02d}Z",
            "labels": _labels(name, model, memory, number),
            "name": name,
            "resourceVersion": str(90_000_000 + number),
            "uid": f"5f0c2a51-7f7c-4d0f-9d0b-{number:012d}",
        },
        "spec": {
            "podCIDR": f"10.{number // 256}.{number % 256}.0/24",
            "providerID": f"metal://rack-{number % 50}/{name}",
        },
        "status": {
            "addresses": [
                {"address": f"172.16.{number // 256}.{number % 256}", "type": "InternalIP"},
                {"address": name, "type": "Hostname"},
            ],
            "allocatable": {**capacity, "cpu": "127", "ephemeral-storage": "1709894981107", "memory": "1045910476Ki"},
            "capacity": capacity,
            "conditions": [
                {
                    "lastHeartbeatTime": f"2026-01-20T10:{number % 5:02d}:{number % 59:02d}Z",
                    "lastTransitionTime": f"2025-11-03T{number % 23:02d}:15:{number % 57:02d}Z",
                    "message": message,
                    "reason": reason,
                    "status": status,
                    "type": kind,
                }
                for kind, status, reason, message in CONDITIONS
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "images": [_image((number * 7 + n) % 300) for n in range(IMAGES)],
            "nodeInfo": {
                "architecture": "amd64",
                "bootID": f"0b7c1c9a-58a3-4f1c-8f53-{number:012d}",
                "containerRuntimeVersion": "containerd://1.7.27",
                "kernelVersion": "5.15.0-139-generic",
                "kubeProxyVersion": "v1.33.4",
                "kubeletVersion": "v1.33.4",
                "machineID": f"{number:032x}",
                "operatingSystem": "linux",
                "osImage": "Ubuntu 22.04.5 LTS",
                "systemUUID": f"4c4c4544-0042-3510-8052-{number:012d}",
            },
        },
    }


def _annotations(number: int, model: str, memory: int) -> Json:
    cards = [
        {
            "id": f"GPU-{(number * CARDS + card) * 0x9E3779B1 % 2**32:08x}-6f1c-43c1-b6a5-0d5f0e0c9a11",
            "index": card,
            "count": 10,
            "devmem": memory,
            "devcore": 100,
            "type": model,
            "numa": card // 4,
            "mode": "hami-core",
            "health": True,
        }
        for card in range(CARDS)
    ]
    return {
        "csi.volume.kubernetes.io/nodeid": json.dumps({"csi.example.com": f"gpu-{number:05d}"}, separators=(",", ":")),
        "hami.io/node-handshake": "Reported 2026-01-20 10:11:12.000000 +0000 UTC m=+4838401.123456789",
        "hami.io/node-nvidia-register": json.dumps(cards, separators=(",", ":")),
        "node.alpha.kubernetes.io/ttl": "0",
        "volumes.kubernetes.io/controller-managed-attach-detach": "true",
    }


def _labels(name: str, model: str, memory: int, number: int) -> Json:
    return {
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "gpu": "on",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": f"gpu-{number % len(MODELS)}",
        "nvidia.com/gpu.count": str(CARDS),
        "nvidia.com/gpu.family": "ampere",
        "nvidia.com/gpu.memory": str(memory),
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.product": model.replace(" ", "-"),
        "topology.kubernetes.io/region": "eu-1",
        "topology.kubernetes.io/zone": f"eu-1{'abc'[number % 3]}",
    }


def _image(number: int) -> Json:
    name = f"registry.example.com/team-{number % 17}/service-{number}"
    return {"names": [f"{name}@sha256:{number:064x}", f"{name}:v1.{number}"], "sizeBytes": 20_000_000 + number * 31_337}


def node_list(count: int = NODES) -> Json:
    """What `kubectl get nodes -o json` prints."""
    return {
        "apiVersion": "v1",
        "items": [node(n) for n in range(count)],
        "kind": "List",
        "metadata": {"resourceVersion": ""},
    }


def workload(pods: int = PODS) -> str:
    """Manifests of Jobs with 1, 2, 4 and 8 cards per pod."""
    texts = []
    for n, cards in enumerate((1, 2, 4, 8)):
        replicas = pods // 4 + (n < pods % 4)
        texts.append(
            f"apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: train-{cards}\nspec:\n  parallelism: {replicas}\n"
            f"  completions: {replicas}\n  template:\n    spec:\n      restartPolicy: Never\n      containers:\n"
            "      - name: main\n        image: registry.example.com/train:1\n        resources:\n"
            f"          limits: {{nvidia.com/gpu: {cards}, cpu: {cards}, memory: {8 * cards}Gi}}\n"
        )
    return "---\n".join(texts)


def pools(count: int = NODES) -> str:
    """The same cluster in Dovetail's short cluster format."""
    lines = ["apiVersion: dovetail.dev/v1", "kind: Cluster", "nodes:"]
    for n, (model, memory) in enumerate(MODELS):
        own = count // len(MODELS) + (n < count % len(MODELS))
        lines += [f"- name: pool-{n}", f"  count: {own}", "  cpu: 127", "  memory: 1Ti"]
        lines += [f"  gpus: {{model: {model}, count: {CARDS}, memory: {memory}, numa: [0, 0, 0, 0, 1, 1, 1, 1]}}"]
    return "\n".join(lines) + "\n"


def yaml_lines(value: Any, indent: str = "") -> Iterator[str]:
    """Block YAML as kubectl writes it: lists not indented, quotes only where needed, long texts folded at spaces."""
    if isinstance(value, dict):
        for key, part in value.items():
            if isinstance(part, (dict, list)) and part:
                yield f"{indent}{key}:"
                yield from yaml_lines(part, indent if isinstance(part, list) else indent + "  ")
            else:
                yield from _folded(f"{indent}{key}: ", _scalar(part), indent)
    elif isinstance(value, list):
        for part in value:
            if not isinstance(part, dict):
                yield from _folded(f"{indent}- ", _scalar(part), indent)
                continue
            first, *rest = yaml_lines(part, indent + "  ")
            yield f"{indent}- {first.removeprefix(indent + '  ')}"
            yield from rest


def _folded(head: str, text: str, indent: str) -> Iterator[str]:
    """Lines, broken at the first space beyond column 80, as go-yaml does."""
    line, *words = text.split(" ")
    line = head + line
    for word in words:
        if len(line) > WIDTH and not text.startswith('"'):
            yield line
            line = f"{indent}  {word}"
        else:
            line += f" {word}"
    yield line


def _scalar(value: Any) -> str:
    if not isinstance(value, str):
        return json.dumps(value)
    if '"' in value:
        return "'" + value.replace("'", "''") + "'"
    return f'"{value}"' if value in QUOTED or NUMBER_OR_TIME.match(value) or ": " in value else value


def write(folder: Path) -> dict[str, list[Path]]:
    """Name of the case -> files for `-f`: kubectl's YAML, kubectl's JSON, our cluster file."""
    listed = node_list()
    texts = {
        "yaml": "\n".join(yaml_lines(listed)) + "\n",
        "json": json.dumps(listed, indent=4) + "\n",
        "pools": pools(),
    }
    (folder / "jobs.yaml").write_text(workload())
    found = {}
    for case, text in texts.items():
        path = folder / f"{case}.{'json' if case == 'json' else 'yaml'}"
        path.write_text(text)
        found[case] = [path, folder / "jobs.yaml"]
    return found


def seconds(files: list[Path]) -> float:
    """Wall-clock time of one `dovetail plan`, from the start of the process to its end."""
    named = [argument for path in files for argument in ("-f", str(path))]
    started = perf_counter()
    subprocess.run([sys.executable, "-m", "dovetail", "plan", *named], check=True, capture_output=True)
    return perf_counter() - started


def measure() -> dict[str, object]:
    """The best of several runs, because other processes use the machine too. The first run may compile kernels."""
    print(f"\n`dovetail plan` of {PODS} pods on {NODES:,} nodes, seconds")
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for case, files in write(Path(folder)).items():
            size = files[0].stat().st_size / 1e6
            found[case] = round(min(seconds(files) for _ in range(RUNS)), 2)
            print(f"{case:6} {size:6.1f} MB {found[case]:6.2f}", flush=True)
    return {f"plan_{PODS}_on_{NODES}_seconds": found}


if __name__ == "__main__":
    print(json.dumps(measure()))
