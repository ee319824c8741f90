"""The table of quota arithmetics."""

from __future__ import annotations

from dovetail.policies.quota import capacity, drf, kai, koordinator, kueue, volcano

QUOTA_POLICIES = {
    policy.name: policy
    for policy in (
        capacity.POLICY,
        koordinator.POLICY,
        kai.POLICY,
        drf.POLICY,
        kueue.POLICY,
        volcano.POLICY,
    )
}
