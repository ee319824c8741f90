"""The doctor's checks of the installation: leader, other Dovetails, policies, flow control, versions."""

from __future__ import annotations

from collections.abc import Iterator

from dovetail.kube.conversion.times import seconds_of
from dovetail.kube.doctor.finding import Check, Finding
from dovetail.kube.doctor.survey import Survey
from dovetail.kube.live.lease import Lease
from dovetail.kube.live.peers import disjoint
from dovetail.kube.live.pod_group_watches import WATCHED_POD_GROUPS
from dovetail.kube.live.queue_watches import WATCHED_QUEUES
from dovetail.kube.objects.gangs import KUBERNETES

OLDEST, NEWEST = (1, 30), (1, 37)  # Kubernetes: policies need 1.30; newer versions than this are not tested
LEASE_PATIENCE = 4  # lease durations without a renewal
POLICIES = ("dovetail-scheduler-bindings", "dovetail-scheduler-evictions")
FLOW_SCHEMAS = ("dovetail-scheduler", "dovetail-scheduler-lease")
APPLY = "kubectl apply -k deploy/"
READ_LOGS = "kubectl -n kube-system get pods -l app.kubernetes.io/name=dovetail-scheduler; read their logs"


def _leader(survey: Survey) -> Iterator[Finding]:
    if survey.knows("Lease") and not survey.leases:
        names = ", ".join(sorted(survey.names))
        text = f"there is no Lease of a Dovetail: none ever ran, and pods with schedulerName {names} wait"
        yield Finding("leader-missing", "Lease", "", text, f"install it: {APPLY} (docs/live.md)")
        return
    for lease in survey.leases:
        if not lease.spec.holder_identity:
            text = "no process holds it: no Dovetail schedules"
            yield Finding("leader-missing", f"Lease {lease.key}", "", text, READ_LOGS)


def _stale(survey: Survey) -> Iterator[Finding]:
    for lease in survey.leases:
        holder, age = lease.spec.holder_identity, _silent(lease, survey.now)
        if holder and age is not None:
            text = f"{holder} holds it and last renewed it {age:,.0f} s ago, for {_duration(lease):g} s: it is dead"
            yield Finding("leader-stale", f"Lease {lease.key}", "", text, READ_LOGS)


def _duration(lease: Lease) -> float:
    return float(lease.spec.lease_duration_seconds or 15)


def _silent(lease: Lease, now: float) -> float | None:
    """Seconds since the last renewal, if that is too long; None = the leader is alive."""
    renewed = seconds_of(lease.spec.renew_time or "") or 0.0
    return now - renewed if now - renewed > max(60.0, LEASE_PATIENCE * _duration(lease)) else None


def _overlap(survey: Survey) -> Iterator[Finding]:
    live = [one for one in survey.leases if one.spec.holder_identity and _silent(one, survey.now) is None]
    for number, one in enumerate(live):
        for other in live[number + 1 :]:
            if not disjoint(one.marks().selector, other.marks().selector):
                text = f"has the same nodes as Lease {other.key} ({one.marks().nodes} and {other.marks().nodes})"
                advice = "run one of them, or give each its own nodes: --node-selector KEY=VALUE, with different values"
                yield Finding("leader-overlap", f"Lease {one.key}", "", text, advice)


def _policies(survey: Survey) -> Iterator[Finding]:
    """The policies that limit what the ServiceAccount may write, and their bindings."""
    if survey.version is not None and survey.version < OLDEST:
        return
    kind = "ValidatingAdmissionPolicy"
    policies = {one.metadata.name for one in survey.of(kind)}
    deny = {
        one.spec.policy_name
        for one in survey.of(f"{kind}Binding")
        if "Deny" in (one.spec.validation_actions or ["Deny"])
    }
    for name in POLICIES:
        missing = name not in policies and survey.knows(kind)
        unbound = name in policies and name not in deny and (survey.knows(f"{kind}Binding") or not survey.complete)
        if missing or unbound:
            text = "is not installed" if missing else "has no binding that denies: it limits nothing"
            text += ", so a stolen token of the scheduler may write more than it needs"
            yield Finding("policy-missing", f"{kind} {name}", "", text, "kubectl apply -f deploy/admission-policy.yaml")


def _flow(survey: Survey) -> Iterator[Finding]:
    there = {one.metadata.name for one in survey.of("FlowSchema")}
    for name in FLOW_SCHEMAS:
        if survey.knows("FlowSchema") and name not in there:
            text = "is not installed: a flood of other clients' requests keeps pods waiting"
            yield Finding("flow-missing", f"FlowSchema {name}", "", text, "kubectl apply -f deploy/flowschema.yaml")


def _versions(survey: Survey) -> Iterator[Finding]:
    if survey.version is None or OLDEST <= survey.version <= NEWEST:
        return
    said, oldest, newest = (".".join(map(str, one)) for one in (survey.version, OLDEST, NEWEST))
    advice = f"Dovetail is tested with Kubernetes {oldest} to {newest}: upgrade Kubernetes, or try it on a test cluster"
    yield Finding("version-unsupported", "Kubernetes", "", f"is version {said}", advice)


def _definitions(survey: Survey) -> Iterator[Finding]:
    """API groups of gangs and queues that are served, but not in the version that Dovetail reads."""
    wanted: dict[str, set[str]] = {}
    for group, version in (*WATCHED_POD_GROUPS, *((one.api_group, one.version) for one in WATCHED_QUEUES)):
        if group != KUBERNETES:
            wanted.setdefault(group, set()).add(version)
    for group, versions in sorted(wanted.items()):
        served = (survey.served or {}).get(group)
        if served and not served & versions:
            text = f"is served as {', '.join(sorted(served))}; Dovetail reads {', '.join(sorted(versions))}"
            advice = (
                "upgrade the CustomResourceDefinitions (deploy/crds), or Dovetail: gangs and queues of it do not count"
            )
            yield Finding("version-of-crd", f"API group {group}", "", text, advice)


INSTALLATION_CHECKS = (
    Check("leader-missing", "error", "No Dovetail holds a Lease: nothing is scheduled.", _leader),
    Check("leader-stale", "error", "The leader does not renew its Lease.", _stale),
    Check("leader-overlap", "error", "Two Dovetails may place pods on the same nodes.", _overlap),
    Check("policy-missing", "warning", "What the scheduler may write is not limited by a policy.", _policies),
    Check("flow-missing", "warning", "The scheduler's requests have no seats of their own.", _flow),
    Check("version-unsupported", "warning", "This version of Kubernetes is not tested with Dovetail.", _versions),
    Check(
        "version-of-crd", "warning", "A kind of gang or queue is served in a version that is not read.", _definitions
    ),
)
