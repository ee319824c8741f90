"""The commands of docs/install.md and docs/upgrade.md, in their order, on a control plane with its own controllers.

Deployments make pods, kube-scheduler places them and a stand-in kubelet runs them, so rollouts are real ones. Where
pods with GPUs matter, the shipped container runs as a process.
"""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from tests.live.faults import create_all, everybody_settled
from tests.live.rendered import Programs, objects
from tests.live.test_install import ShippedProcess
from tools.controlplane.access import DEPLOY
from tools.controlplane.binaries import Binaries
from tools.controlplane.client import Client, Object
from tools.controlplane.kubelet import Kubelet
from tools.controlplane.objects import gpu_limits, node, pod
from tools.controlplane.plane import ControlPlane

DOCS = DEPLOY.parent / "docs"
CLUSTER_WIDE_AND_OURS = "app.kubernetes.io/part-of=dovetail"


def sections(page: str) -> dict[str, str]:
    parts = re.split(r"(?m)^## (.+)$", (DOCS / page).read_text(encoding="utf-8"))
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def commands(text: str, *programs: str) -> list[list[str]]:
    """The indented lines that call one of these programs."""
    lines = re.findall(rf"(?m)^    ((?:{'|'.join(programs)}) .+)$", text)
    assert lines
    return [shlex.split(line) for line in lines]


def files(text: str) -> dict[str, str]:
    """path -> content of the YAML blocks that say in their first line where they belong."""
    return dict(re.findall(r"(?ms)^```yaml\n# ([\w./-]+)\n(.*?)^```$", text))


class Reader:
    """A person with a shell who follows the pages."""

    def __init__(self, programs: Programs) -> None:
        self.programs, self.room = programs, programs.room

    def writes(self, text: str) -> None:
        for path, content in files(text).items():
            (self.room / path).parent.mkdir(exist_ok=True)
            (self.room / path).write_text(content, encoding="utf-8")

    def types(self, text: str, *programs: str) -> list[str]:
        """What each command printed."""
        return [
            self.programs.run(words[0], *words[1:])[0] for words in commands(text, *(programs or ("kubectl", "helm")))
        ]

    def tags(self, path: str, tag: str) -> None:
        file = self.room / path
        file.write_text(re.sub(r"(?m)^(\s*(?:newTag|tag): ).*$", rf"\g<1>{tag}", file.read_text()), encoding="utf-8")


@pytest.fixture
def reader(helm_binaries: Binaries, plane: ControlPlane, api: Client, kubelet: Kubelet, tmp_path: Path) -> Reader:
    plane.start_controller_manager()
    plane.start_scheduler()
    create_all(api, [node(name, labels={"kubernetes.io/os": "linux"}) for name in ("a", "b")])
    if api.find("Namespace", "kube-system") is None:
        api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}})
    shutil.copytree(DEPLOY, tmp_path / "dovetail" / "deploy")
    return Reader(Programs(helm_binaries, tmp_path, plane.kubeconfig()))


def running(api: Client) -> list[Object]:
    pods = api.list("Pod", "kube-system", labelSelector="app.kubernetes.io/name=dovetail-scheduler")
    return [item for item in pods if "deletionTimestamp" not in item["metadata"]]


def images(api: Client) -> set[str]:
    return {item["spec"]["containers"][0]["image"].rpartition(":")[2] for item in running(api)}


def what_is_left(reader: Reader) -> list[str]:
    """By the last commands of the uninstall section."""
    text = sections("upgrade.md")["Uninstall"]
    _, _, after = text.partition("To see that nothing is left:")
    return [line for said in reader.types(after) for line in said.splitlines()]


def test_install_upgrade_roll_back_move_to_helm_and_uninstall(reader: Reader, api: Client) -> None:
    install, upgrade = sections("install.md"), sections("upgrade.md")
    first, _, second = install["With kustomize"].partition("To change the configuration")
    reader.writes(first)
    reader.types(first)
    assert images(api) == {"0.1.0"}
    assert len(running(api)) == 2
    assert len({item["spec"]["nodeName"] for item in running(api)}) == 2  # on two nodes

    overlay = reader.room / "platform" / "kustomization.yaml"
    (patch,) = re.findall(r"(?ms)^```yaml\n# the last lines of .*?\n(.*?)^```$", second)
    reader.writes(second)
    overlay.write_text(overlay.read_text(encoding="utf-8") + patch, encoding="utf-8")
    before = {item["metadata"]["uid"] for item in running(api)}
    reader.types(second)
    assert not before & {item["metadata"]["uid"] for item in running(api)}  # restarted
    config = api.get("ConfigMap", "dovetail-scheduler", "kube-system")
    assert "nodePolicy: spread" in config["data"]["config.yaml"]

    kustomize, _, helm = upgrade["Upgrade"].partition("With Helm:")
    reader.tags("platform/kustomization.yaml", "0.2.0")
    reader.types(kustomize)
    assert images(api) == {"0.2.0"}
    reader.types(upgrade["Roll back"].partition("With kustomize")[2])
    assert images(api) == {"0.1.0"}

    reader.writes(install["With Helm"])
    reader.tags("values.yaml", "0.3.0")
    reader.types(upgrade["From kustomize to Helm"])
    reader.types("    kubectl -n kube-system rollout status deployment dovetail-scheduler\n")
    assert images(api) == {"0.3.0"}
    reader.tags("values.yaml", "0.4.0")
    reader.types(helm)
    assert images(api) == {"0.4.0"}
    reader.types(upgrade["Roll back"].partition("With kustomize")[0])
    assert images(api) == {"0.3.0"}

    whole = upgrade["Uninstall"].partition("What is left:")[0]
    create_all(api, [_lease()])
    reader.types(whole)
    assert running(api) == []
    assert what_is_left(reader) == []


def _lease() -> Object:
    meta = {"name": "dovetail-scheduler", "namespace": "kube-system", "labels": {"dovetail.dev/scheduler": "true"}}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": {}}


def test_after_an_uninstall_running_pods_go_on_and_a_new_installation_continues(
    reader: Reader, plane: ControlPlane, api: Client
) -> None:
    """Pods keep what they hold; those that wait have the epoch of a leader whose Lease is gone, and are bound later."""
    reader.writes(sections("install.md")["With kustomize"].partition("To change")[0])
    apply = "    kubectl apply -k platform/\n"
    reader.types(apply)
    said, _ = reader.programs.run("kubectl", "kustomize", "platform/")
    made = objects(said)
    create_all(api, [node("gpus", gpus=2)])
    first = ShippedProcess(plane, made, reader.room, "first")
    first.start("--interpreted")
    try:
        create_all(api, (pod(f"runs{number}", gpu_limits(1, memory=15360, cores=100)) for number in range(2)))
        create_all(api, [pod("waits", gpu_limits(1, memory=15360, cores=100))])
        everybody_settled(api)
    finally:
        first.stop()
    # As after seven leaders: higher than anything that a new Lease counts to.
    api.patch("Pod", "waits", {"metadata": {"annotations": {"dovetail.dev/epoch": "7.first"}}})
    before = {name: _holds(api, name) for name in ("runs0", "runs1")}
    reader.types(sections("upgrade.md")["Uninstall"].partition("What is left:")[0], "kubectl")
    assert what_is_left(reader) == []
    assert {name: _holds(api, name) for name in before} == before
    assert not api.get("Pod", "waits")["spec"].get("nodeName")
    api.delete("Pod", "runs0")
    reader.types(apply)
    again = ShippedProcess(plane, made, reader.room, "again")  # with a token of the new ServiceAccount
    again.start("--interpreted")
    try:
        api.wait_until(lambda: api.get("Pod", "waits")["spec"].get("nodeName") == "gpus", "the pod that waits is bound")
        everybody_settled(api)
        assert _holds(api, "runs1") == before["runs1"]
        lease = api.get("Lease", "dovetail-scheduler", "kube-system")
        assert lease["spec"].get("leaseTransitions", 0) == 0  # a new Lease
    finally:
        again.stop()


def _holds(api: Client, name: str) -> tuple[str, str, Object]:
    item = api.get("Pod", name)
    return item["status"]["phase"], item["spec"]["nodeName"], item["metadata"]["annotations"]
