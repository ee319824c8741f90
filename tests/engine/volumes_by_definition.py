"""VolumeBinding's FindPodVolumes for one node, as loops written from kube-scheduler's Go, with nothing kept or shared.

pkg/scheduler/framework/plugins/volumebinding/binder.go and component-helpers/storage/volume/pv_helpers.go.
"""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.model.rules import AffinityTerm
from dovetail.model.volumes import Capacity, Claim, CsiDriver, StorageClass, Volume, VolumeFact

Labels = dict[str, str]
Binding = tuple[str, str]  # (claim, volume); "" = provisioned


def find_pod_volumes(
    node: str, labels: Labels, claims: Sequence[Claim], facts: Sequence[VolumeFact]
) -> list[Binding] | None:
    """What the claims get on the node, or None where it cannot be."""
    to_find: list[Claim] = []
    to_provision: list[Claim] = []
    for claim in claims:
        if claim.selected_node is not None:
            if claim.selected_node != node:
                return None
            to_provision.append(claim)
        else:
            to_find.append(claim)
    chosen: list[Binding] = []
    for claim in sorted(to_find, key=lambda claim: claim.request or 0):
        taken = {volume for _, volume in chosen}
        volumes = [one for one in facts if isinstance(one, Volume) and one.storage_class == claim.storage_class]
        found = find_matching_volume(claim, volumes, labels, taken)
        if found is None:
            to_provision.append(claim)
        else:
            chosen.append((claim.key, found.name))
    if not all(can_provision(claim, labels, facts) for claim in to_provision):
        return None
    return chosen + [(claim.key, "") for claim in to_provision]


def find_matching_volume(claim: Claim, volumes: Sequence[Volume], labels: Labels, taken: set[str]) -> Volume | None:
    smallest: Volume | None = None
    for volume in sorted(volumes, key=lambda volume: volume.name):  # Go: in any order
        if volume.name in taken:
            continue
        if volume.claim_ref is not None and not volume.claim_ref.means(claim):
            continue
        if volume.capacity < (claim.request or 0):
            continue
        if volume.mode != claim.mode or volume.attributes_class != claim.attributes_class or volume.leaving:
            continue
        usable = volume.affinity is None or matches_any(volume.affinity, labels)
        if volume.claim_ref is not None:
            return volume if usable else None
        if volume.phase != "Available":
            continue
        if claim.selector is not None and not claim.selector.matches(volume.labels):
            continue
        if not usable or not set(claim.access_modes) <= set(volume.access_modes):
            continue
        if smallest is None or smallest.capacity > volume.capacity:
            smallest = volume
    return smallest


def can_provision(claim: Claim, labels: Labels, facts: Sequence[VolumeFact]) -> bool:
    kind = next(one for one in facts if isinstance(one, StorageClass) and one.name == claim.storage_class)
    if kind.provisioner in ("", "kubernetes.io/no-provisioner"):
        return False
    if kind.topologies is not None and not matches_any(kind.topologies, labels):
        return False
    driver = next((one for one in facts if isinstance(one, CsiDriver) and one.name == kind.provisioner), None)
    if claim.request is None or driver is None or not driver.tracks_capacity:
        return True
    for one in facts:
        if (
            isinstance(one, Capacity)
            and one.storage_class == kind.name
            and one.largest is not None
            and one.largest >= claim.request
            and one.nodes is not None
            and one.nodes.matches(labels)
        ):
            return True
    return False


def matches_any(terms: Sequence[AffinityTerm], labels: Labels) -> bool:
    for term in terms:
        if not term.expressions and not term.fields:
            continue
        if all(row.matches(labels) for row in term.expressions):
            return True
    return False
