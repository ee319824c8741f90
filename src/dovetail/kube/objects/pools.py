"""Our short cluster file, for people without a cluster: pools of equal nodes and their contents.

    apiVersion: dovetail.dev/v1
    kind: Cluster
    nodes:
    - name: train          # with count: train-0, train-1, …; without: one node called train
      count: 2
      labels: {zone: a}
      taints: ["gpu=yes:NoSchedule"]      # or {key, value, effect}
      cpu: 96              # default 64
      memory: 1Ti          # default 256Gi
      storage: 2Ti         # ephemeral; default 1Ti
      pods: 110            # default 110
      extended: {example.com/dongle: 8}
      enforcer: dovetail   # gives a container its card: dovetail (default), hami or stock (whole cards only)
      gpus:                # one kind of card, or a list of kinds
        model: NVIDIA A100-SXM4-80GB
        count: 8
        memory: 81920      # MiB, or a quantity such as 80Gi
        slots: 10          # containers per card; 1 on a stock node
        compute: 100       # per cent; more is overcommit
        numa: [0, 0, 0, 0, 1, 1, 1, 1]    # a number per card, or one for all; default 0
        links: nvlink      # nvlink | pcie | groups [[0, 1], [2, 3]] joined by nvlink | a matrix of pair scores
        vendor: NVIDIA     # HAMi's vendor word

Pair scores are HAMi's (pkg/device/nvidia/calculate_score.go): 100 per NVLink, so `nvlink` is 600 (six links); over PCIe
20 within a NUMA node and 10 across.
"""

from __future__ import annotations

from typing import Any

from msgspec import field

from dovetail.kube.objects.core import Quantities, Quantity, Struct, Taint, Texts

API_VERSION = "dovetail.dev/v1"


class Gpus(Struct, frozen=True):
    model: str
    count: int
    memory: Quantity
    slots: int | None = None
    compute: int = 100
    numa: int | list[int] = 0
    links: str | list[Any] = ""
    vendor: str = "NVIDIA"


class Pool(Struct, frozen=True):
    name: str
    count: int | None = None
    labels: Texts = field(default_factory=dict)
    taints: list[Taint | str] = field(default_factory=list)
    cpu: Quantity = 64
    memory: Quantity = "256Gi"
    storage: Quantity = "1Ti"
    pods: int = 110
    extended: Quantities = field(default_factory=dict)
    gpus: Gpus | list[Gpus] = field(default_factory=list)
    enforcer: str = "dovetail"


class Cluster(Struct, frozen=True):
    nodes: list[Pool] = field(default_factory=list)
