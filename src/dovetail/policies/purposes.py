"""What each policy is for, where it comes from, when to use it and when not: for `dovetail policies`."""

from __future__ import annotations

from typing import NamedTuple

PURPOSES = ("pack", "spread", "fragmentation", "load", "topology", "cost", "baseline")


class Purpose(NamedTuple):
    purpose: str  # one of PURPOSES
    source: str
    use: str  # when to use it
    avoid: str  # when not


_HAMI, _KUBE, _FGD, _PLUGINS = "HAMi", "Kubernetes", "FGD paper (ATC'23)", "scheduler-plugins"
_TRIMARAN, _NUMA = "scheduler-plugins, Trimaran", "scheduler-plugins, NodeResourceTopologyMatch"
_FEW = "large jobs that need whole nodes wait"
_UNMEASURED = "nothing is measured"

NODE_PURPOSES: dict[str, Purpose] = {
    "binpack": Purpose("pack", _HAMI, "whole nodes shall stay free", "pods disturb each other"),
    "spread": Purpose("spread", _HAMI, "pods disturb each other", _FEW),
    "spread-replicas": Purpose("spread", "Dovetail", "replicas shall survive the loss of a node", _FEW),
    "least-allocated": Purpose("spread", _KUBE, "CPU and memory are scarce", _FEW),
    "most-allocated": Purpose("pack", _KUBE, "nodes are switched off when idle", "GPUs are scarcer than CPU"),
    "requested-to-capacity-ratio": Purpose("pack", _KUBE, "you know the use that you want", "GPUs are shared"),
    "kubernetes": Purpose("spread", _KUBE, "pods shall land as with kube-scheduler", _FEW),
    "off-devices": Purpose("cost", "Dovetail", "pods need no GPU", "every node has GPUs"),
    "fit-plus": Purpose("pack", "Koordinator", "GPUs shall be packed and CPU spread", "GPUs are shared"),
    "first-fit": Purpose("baseline", "Dovetail", "you compare policies", "nodes differ in price"),
    "random": Purpose("baseline", "Dovetail", "you compare policies", "in production"),
    "best-fit": Purpose("pack", _FGD, "you compare with the paper", "typical pods are known: fgd and snug are better"),
    "dot-product": Purpose("pack", _FGD, "you compare with the paper", "typical pods are known"),
    "gpu-clustering": Purpose("fragmentation", _FGD, "pods have few sizes", "typical pods are known"),
    "gpu-packing": Purpose("pack", _FGD, "idle nodes shall stay idle", "typical pods are known"),
    "fgd": Purpose("fragmentation", _FGD, "GPUs are shared, and the cluster is nearly full", "load must be even"),
    "snug": Purpose("fragmentation", "Dovetail", "the cluster is nearly full", "CPU runs out before GPUs"),
    "least-allocatable": Purpose("cost", _PLUGINS, "small nodes are cheaper", "small nodes have little CPU for GPUs"),
    "most-allocatable": Purpose("cost", _PLUGINS, "large nodes are cheaper for each GPU", _FEW),
    "scarce-resource-avoidance": Purpose("cost", "Koordinator", "some nodes have no GPUs", "every node has GPUs"),
    "least-numa": Purpose("topology", _NUMA, "jobs suffer from crossing NUMA nodes", "nodes have one NUMA node"),
    "numa-most": Purpose("topology", _NUMA, "large NUMA nodes shall stay free", "pods disturb each other"),
    "numa-least": Purpose("topology", _NUMA, "pods disturb each other", _FEW),
    "numa-balanced": Purpose("topology", _NUMA, "pods ask for odd parts of GPUs", "pods ask for whole GPUs"),
    "target-load": Purpose("load", _TRIMARAN, "pods use less CPU than they ask for", _UNMEASURED),
    "gpu-target-load": Purpose("load", "Dovetail, after Trimaran", "inference needs headroom", _FEW),
    "load-variation": Purpose("load", _TRIMARAN, "load has peaks", _UNMEASURED),
    "gpu-load-variation": Purpose("load", "Dovetail, after Trimaran", "GPU load has peaks", _FEW),
    "balanced-network": Purpose("load", "liang, BNP", "the network is the bottleneck", "pods do not state their need"),
    "topsis": Purpose("load", "liang, CMDN", "several loads shall count at once", _UNMEASURED),
    "opportunistic": Purpose("load", "AntMan", "pods use what others leave", "pods need a guarantee"),
    "yoda": Purpose("cost", "Yoda", "fast cards shall be used first", "GPUs are shared"),
    "yoda-as-written": Purpose("baseline", "Yoda", "you compare with the original", "in production"),
    "vcuda": Purpose("pack", "gpu-admission", "the cluster runs gpu-manager", "it does not"),
    "utility": Purpose("topology", "Amaral et al., SC'17", "training jobs use several GPUs", "pods use one GPU"),
    "utility-postponing": Purpose(
        "topology", "Amaral et al., SC'17", "far GPUs cost more than a wait", "jobs are short"
    ),
}
CARD_PURPOSES: dict[str, Purpose] = {
    "binpack": Purpose("pack", _HAMI, "whole cards shall stay free", "pods disturb each other"),
    "spread": Purpose("spread", _HAMI, "pods disturb each other", "whole cards are needed"),
    "mutex": Purpose("spread", _HAMI, "a pod wants cards that no other uses", "cards are scarce"),
    "numa": Purpose("topology", _HAMI, "in a chain, before another policy", "cards are on one NUMA node"),
    "topology-aware": Purpose("topology", _HAMI, "pods use several connected GPUs", "links are unknown"),
    "first-fit": Purpose("baseline", "Dovetail", "you compare policies", "in production"),
    "random": Purpose("baseline", "Dovetail", "you compare policies", "in production"),
    "best-fit": Purpose("pack", _FGD, "cards are shared in parts of many sizes", "pods disturb each other"),
    "qos": Purpose("spread", "scheduler-plugins, QOSSort", "Guaranteed pods shall not share", "all pods are alike"),
    "gpushare": Purpose("pack", "gpushare-scheduler-extender", "the cluster runs gpushare's plugin", "it does not"),
    "vcuda": Purpose("topology", "gpu-manager", "the cluster runs gpu-manager", "it does not"),
    "link": Purpose("topology", "gpu-manager", "pods use several connected GPUs", "links are unknown"),
    "fragment": Purpose("fragmentation", "gpu-manager", "groups of cards shall stay whole", "links are unknown"),
    "partition-binpack": Purpose("fragmentation", "Koordinator", "jobs use 2, 4 or 8 cards", "cards are shared"),
}
