"""Two Dovetails on one cluster: refused loudly, unless their nodes are split."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial

from tests.live.dovetail_process import Dovetail, scheduling
from tests.live.faults import Witness, create_all
from tools.controlplane.access import USER, grant_dovetail
from tools.controlplane.client import Client, Object
from tools.controlplane.kubelet import Kubelet
from tools.controlplane.objects import gpu_limits, node, pod
from tools.controlplane.plane import ControlPlane

TERMS = ("--lease-seconds", "4")
TWO = ("--lease-name", "dovetail-two", "--scheduler-name", "dovetail-two", "--identity", "two")
WHOLE = gpu_limits(1, memory=15360, cores=100)
SHARE = gpu_limits(1, memory=1000, cores=10)


def _grant_second_lease(api: Client) -> None:
    """As the shipped role, for a Lease of another name."""
    grant_dovetail(api)
    rbac = "rbac.authorization.k8s.io"
    meta = {"name": "dovetail-two", "namespace": "kube-system"}
    rule = {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "resourceNames": ["dovetail-two"],
        "verbs": ["get", "update"],
    }
    api.create({"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": meta, "rules": [rule]})
    role = {"apiGroup": rbac, "kind": "Role", "name": "dovetail-two"}
    api.create(
        {"apiVersion": f"{rbac}/v1", "kind": "RoleBinding", "metadata": meta, "roleRef": role, "subjects": [USER]}
    )


@contextmanager
def _second(plane: ControlPlane, *options: str) -> Iterator[Dovetail]:
    """Another one, started and not waited for."""
    second = Dovetail(plane, *TERMS, *options)
    second.log = plane.path / "second.log"
    second.log.unlink(missing_ok=True)
    try:
        second.start(wait=False)
        yield second
    finally:
        second.stop()


def _bound(api: Client, scheduler: str) -> list[Object]:
    mine = [item for item in api.list("Pod") if item["spec"]["schedulerName"] == scheduler]
    return [item for item in mine if item["spec"].get("nodeName")]


def _has_bound(api: Client, scheduler: str, count: int) -> bool:
    return len(_bound(api, scheduler)) == count


def test_a_second_lease_on_the_same_nodes_is_refused(plane: ControlPlane, api: Client, kubelet: Kubelet) -> None:
    _grant_second_lease(api)
    create_all(api, (node(f"n{number}", gpus=4) for number in range(4)))
    names = ("dovetail", "dovetail-two")
    with scheduling(plane, *TERMS) as first, _second(plane, *TWO) as second, Witness(api) as witness:
        api.wait_until(lambda: "not scheduling" in second.get("/readyz")[1], "the second one refuses")
        status, text = second.get("/readyz")
        assert status == 503
        assert "kube-system/dovetail-scheduler" in text
        assert "kube-system/dovetail-two" in text
        assert "--node-selector" in text
        assert text.strip() in second.words()
        create_all(api, (pod(f"p{number}", WHOLE, scheduler=names[number % 2]) for number in range(40)))
        api.wait_until(lambda: len(_bound(api, names[0])) == 16, "the first one places its pods")
        api.wait_until(lambda: "dovetail-two" in first.words(), "the first one says so, too")
        assert _bound(api, names[1]) == []
        assert not second.is_ready()
        mark = _bound(api, names[0])[0]["metadata"]["annotations"]["dovetail.dev/bound-by"]
        assert mark == "kube-system/dovetail-scheduler"

        first.kill()
        api.wait_until(second.is_ready, "the second one goes on once the first is gone")
        first.start(wait=False)  # it is the younger one now
        api.wait_until(lambda: "not scheduling" in first.get("/readyz")[1], "the first one refuses")
        for item in _bound(api, names[0])[:6]:
            api.delete("Pod", item["metadata"]["name"])
        api.wait_until(lambda: len(_bound(api, names[1])) == 6, "the second one places its pods")
    assert witness.wrong == []


def test_of_two_that_start_at_once_one_goes_on(plane: ControlPlane, api: Client, kubelet: Kubelet) -> None:
    _grant_second_lease(api)
    create_all(api, (node(f"n{number}", gpus=4) for number in range(2)))
    names = ("dovetail", "dovetail-two")
    with _second(plane, *TWO) as second, Witness(api) as witness:
        first = Dovetail(plane, *TERMS)
        try:
            first.start(wait=False)
            create_all(api, (pod(f"p{number}", WHOLE, scheduler=names[number % 2]) for number in range(20)))
            both = (first, second)
            api.wait_until(lambda: any(one.is_ready() for one in both), "one of them goes on")
            api.wait_until(lambda: any("not scheduling" in one.get("/readyz")[1] for one in both), "and one refuses")
            api.wait_until(lambda: sum(len(_bound(api, name)) for name in names) == 8, "every card is given once")
            assert sorted(len(_bound(api, name)) for name in names) == [0, 8]
        finally:
            first.stop()
    assert witness.wrong == []


def test_two_with_nodes_of_their_own_work_side_by_side(plane: ControlPlane, api: Client, kubelet: Kubelet) -> None:
    _grant_second_lease(api)
    pools = ("a", "b")
    create_all(api, (node(f"n-{pool}", gpus=4, labels={"pool": pool}) for pool in pools))
    names = ("dovetail", "dovetail-two")
    with (
        scheduling(plane, *TERMS, "--node-selector", "pool=a") as first,
        _second(plane, *TWO, "--node-selector", "pool=b") as second,
        Witness(api) as witness,
    ):
        api.wait_until(second.is_ready, "both are ready")
        create_all(api, (pod(f"p{number}", WHOLE, scheduler=names[number % 2]) for number in range(12)))
        for name, pool in zip(names, pools, strict=True):
            api.wait_until(partial(_has_bound, api, name, 4), "each fills its own node")
            assert {item["spec"]["nodeName"] for item in _bound(api, name)} == {f"n-{pool}"}
        assert first.is_ready()
        assert second.is_ready()
    assert witness.wrong == []


def test_a_standby_of_other_names_says_so_and_ends(plane: ControlPlane, api: Client, kubelet: Kubelet) -> None:
    create_all(api, [node("a", gpus=4)])
    with scheduling(plane, *TERMS), _second(plane, "--scheduler-name", "dovetail-two", "--identity", "two") as second:
        api.create(pod("p", SHARE, scheduler="dovetail-two"))
        said = "which schedules dovetail: pods of dovetail-two are not scheduled"
        api.wait_until(lambda: said in second.get("/readyz")[1], "/readyz says so")
        assert said in second.words()
        process = second.process
        assert process is not None
        api.wait_until(lambda: not process.running(), "it ends", 80)
        assert _bound(api, "dovetail-two") == []


def _is_seen_to_change(api: Client, dovetail: Dovetail) -> bool:
    second = datetime.now(UTC).second
    api.patch("Lease", "forged", {"spec": {"renewTime": f"2099-01-01T00:00:{second:02}.000000Z"}})
    return dovetail.metric("dovetail_peers_elsewhere") == 1


def test_a_lease_that_a_tenant_wrote_stops_nothing(plane: ControlPlane, api: Client, kubelet: Kubelet) -> None:
    create_all(api, [node("a", gpus=4)])
    forged: Object = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "forged", "namespace": "default", "labels": {"dovetail.dev/scheduler": "true"}},
        "spec": {
            "holderIdentity": "tenant",
            "leaseDurationSeconds": 2**31 - 1,
            "acquireTime": "1970-01-01T00:00:00.000000Z",
            "renewTime": "2099-01-01T00:00:00.000000Z",
        },
    }
    with scheduling(plane, *TERMS) as dovetail:
        api.create(forged)
        api.wait_until(lambda: _is_seen_to_change(api, dovetail), "it is seen to be alive")
        assert dovetail.is_ready()
        dovetail.kill()
        dovetail.start()
        api.create(pod("p", SHARE))
        api.wait_until(lambda: _has_bound(api, "dovetail", 1), "the pod is bound")
