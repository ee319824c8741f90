"""The table of policies. A new policy is a file, its test and a row here."""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.policies import (
    device_best_fit,
    device_binpack,
    device_first_fit,
    device_mutex,
    device_numa,
    device_random,
    device_spread,
    device_topology_aware,
    node_best_fit,
    node_binpack,
    node_dot_product,
    node_fgd,
    node_first_fit,
    node_fit_plus,
    node_gpu_clustering,
    node_gpu_packing,
    node_kubernetes,
    node_least_allocated,
    node_most_allocated,
    node_off_devices,
    node_random,
    node_requested_to_capacity,
    node_snug,
    node_spread,
    node_spread_replicas,
)
from dovetail.policies.rows import DevicePolicy, NodePolicy

NODE_POLICIES: Mapping[str, NodePolicy] = {
    policy.name: policy
    for policy in (
        node_binpack.POLICY,
        node_spread.POLICY,
        node_spread_replicas.POLICY,
        node_least_allocated.POLICY,
        node_most_allocated.POLICY,
        node_requested_to_capacity.POLICY,
        node_kubernetes.POLICY,
        node_off_devices.POLICY,
        node_fit_plus.POLICY,
        node_first_fit.POLICY,
        node_random.POLICY,
        node_best_fit.POLICY,
        node_dot_product.POLICY,
        node_gpu_clustering.POLICY,
        node_gpu_packing.POLICY,
        node_fgd.POLICY,
        node_snug.POLICY,
    )
}

DEVICE_POLICIES: Mapping[str, DevicePolicy] = {
    policy.name: policy
    for policy in (
        device_binpack.POLICY,
        device_spread.POLICY,
        device_mutex.POLICY,
        device_numa.POLICY,
        device_topology_aware.POLICY,
        device_first_fit.POLICY,
        device_random.POLICY,
        device_best_fit.POLICY,
    )
}
