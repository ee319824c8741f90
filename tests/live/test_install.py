"""deploy/ on a real control plane: applied by kubectl and by Helm, and run with its own arguments and rights."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.live.accounts import kubeconfig_of_account
from tests.live.dovetail_process import DOVETAIL
from tests.live.faults import create_all, everybody_settled
from tests.live.rendered import TOGETHER, Failure, Programs, by_key, key_of, same_but_for_helm, switched_on
from tools.controlplane.access import DEPLOY
from tools.controlplane.binaries import Binaries
from tools.controlplane.client import ApiError, Client, Object
from tools.controlplane.kubelet import Kubelet
from tools.controlplane.objects import gpu_limits, node, pod
from tools.controlplane.plane import ControlPlane
from tools.controlplane.process import Process, free_ports

FLOW_CONTROL = ("FlowSchema", "PriorityLevelConfiguration")
CHOSEN_BY_SERVER = ("clusterIP", "clusterIPs")
OURS = "app.kubernetes.io/part-of=dovetail"
TEXT: Object = {"type": "string"}
TEXTS: Object = {"type": "object", "additionalProperties": TEXT}


def _object(required: str = "", **fields: Object) -> Object:
    return {"type": "object", "required": required.split(), "properties": fields}


def _list(item: Object) -> Object:
    return {"type": "array", "items": item}


def _operators_kind(kind: str, spec: Object) -> Object:
    """A definition of the Prometheus Operator with the fields that we write, and no others."""
    plural, group = f"{kind.lower()}s", "monitoring.coreos.com"
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": _object(spec=spec)}}
    names = {"kind": kind, "plural": plural, "singular": kind.lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]},
    }


EXPRESSION = _object("key operator", key=TEXT, operator=TEXT, values=_list(TEXT))
ENDPOINT = _object(port=TEXT, path=TEXT, interval=TEXT)
RULE = _object("expr", alert=TEXT, expr=TEXT, labels=TEXTS, annotations=TEXTS, **{"for": TEXT})
OPERATORS_KINDS = [
    _operators_kind(
        "ServiceMonitor",
        _object(
            "selector endpoints",
            selector=_object(matchExpressions=_list(EXPRESSION)),
            endpoints=_list(ENDPOINT),
        ),
    ),
    _operators_kind("PrometheusRule", _object(groups=_list(_object("name", name=TEXT, rules=_list(RULE))))),
]


@pytest.fixture
def programs(helm_binaries: Binaries, plane: ControlPlane, api: Client, tmp_path: Path) -> Programs:
    _namespace(api, "kube-system")
    for kind in OPERATORS_KINDS:
        api.create(kind)
        path = f"/apis/monitoring.coreos.com/v1/{kind['spec']['names']['plural']}"
        api.wait_until(lambda path=path: api.request("GET", path)[0] == 200, f"{path} is served")  # type: ignore[misc]
    return Programs(helm_binaries, tmp_path, plane.kubeconfig())


def _namespace(api: Client, name: str, **labels: str) -> None:
    try:
        api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    except ApiError as error:
        if error.status != 409:
            raise


def _stored(programs: Programs, folder: Path) -> dict[Any, Object]:
    said, _ = programs.run("kubectl", "get", "-k", folder, "-o", "json")
    return by_key(json.loads(said)["items"])


def _wanted(items: dict[Any, Object]) -> dict[Any, tuple[Any, ...]]:
    """What the object asks for, without what the API server chooses.

    It gives a Service another address when the Service is made again, and writes the status of a FlowSchema.
    """
    wanted = {}
    for key, item in items.items():
        spec = {name: value for name, value in item.get("spec", {}).items() if name not in CHOSEN_BY_SERVER}
        wanted[key] = (spec, item.get("rules"), item.get("data"))
    return wanted


def test_kustomize_applies_strictly_without_a_warning_and_again_without_a_change(programs: Programs) -> None:
    overlay = programs.overlay(*TOGETHER)
    for way in (("--server-side", "--validate=strict"), ("--server-side", "--validate=strict", "--dry-run=server")):
        _, complaints = programs.run("kubectl", "apply", *way, "-k", overlay)
        assert complaints == ""
    before = _stored(programs, overlay)
    assert set(before) == set(by_key(programs.kustomized(overlay)))
    _, complaints = programs.run("kubectl", "apply", "--server-side", "--validate=strict", "-k", overlay)
    assert complaints == ""
    assert _versions(_stored(programs, overlay)) == _versions(before)
    programs.run("kubectl", "delete", "--wait=false", "-k", overlay)


def _versions(items: dict[Any, Object]) -> dict[Any, str]:
    return {key: item["metadata"]["resourceVersion"] for key, item in items.items() if item["kind"] != "FlowSchema"}


def test_kubectl_apply_says_unchanged_the_second_time(programs: Programs) -> None:
    said, complaints = programs.run("kubectl", "apply", "--validate=strict", "-k", DEPLOY)
    assert complaints == ""
    assert all(line.endswith(" created") for line in said.splitlines())
    said, complaints = programs.run("kubectl", "apply", "--validate=strict", "-k", DEPLOY)
    assert complaints == ""
    # kubectl sends the selector of a disruption budget each time (patchStrategy replace), and nothing of it changes.
    others = [line for line in said.splitlines() if not line.startswith(("flowschema", "poddisruptionbudget"))]
    assert all(line.endswith(" unchanged") for line in others), said


def test_apply_of_the_folder_as_files_is_refused_before_anything_is_created(programs: Programs, api: Client) -> None:
    """`kubectl apply -f deploy/` was the way of older versions: it says so with an error, and the pages say -k."""
    with pytest.raises(Failure) as refused:
        programs.run("kubectl", "apply", "--dry-run=server", "-f", DEPLOY)
    assert "Chart.yaml" in str(refused.value)
    assert "kustomization.yaml" in str(refused.value)


def test_helm_installs_upgrades_rolls_back_and_leaves_nothing(programs: Programs, api: Client) -> None:
    place = ("--namespace", "kube-system")
    values = programs.values(switched_on(*TOGETHER))
    programs.run("helm", "upgrade", "--install", "dovetail", DEPLOY, *place, "--values", values, "--dry-run=server")
    assert api.find("Deployment", "dovetail-scheduler", "kube-system") is None
    said, complaints = programs.run("helm", "install", "dovetail", DEPLOY, *place, "--values", values)
    assert complaints == ""
    assert "WARNING: the image is dovetail:dev, which is in no registry" in said
    assert "It places the pods with one of these in spec.schedulerName: dovetail" in said
    stored = _stored(programs, programs.overlay(*TOGETHER))  # the objects that kustomize would make are all there
    first = _generation(api)
    programs.run("helm", "upgrade", "dovetail", DEPLOY, *place, "--values", values)
    again = _stored(programs, programs.overlay(*TOGETHER))
    assert (_generation(api), _wanted(again)) == (first, _wanted(stored))
    programs.run("helm", "upgrade", "dovetail", DEPLOY, *place, "--set", "image.tag=v2", "--set", "replicas=3")
    deployment = api.get("Deployment", "dovetail-scheduler", "kube-system")
    assert _image(deployment) == "dovetail:v2"
    assert api.find("ClusterRole", "dovetail-scheduler-hami-lock") is None  # switched off again
    programs.run("helm", "rollback", "dovetail", "1", *place)
    deployment = api.get("Deployment", "dovetail-scheduler", "kube-system")
    assert (_image(deployment), deployment["spec"]["replicas"]) == ("dovetail:dev", 2)
    assert _wanted(_stored(programs, programs.overlay(*TOGETHER))) == _wanted(stored)
    programs.run("helm", "uninstall", "dovetail", *place, "--wait=false")
    for kind in sorted({item["kind"] for item in stored.values()}):
        said, _ = programs.run("kubectl", "get", kind, "-A", "-l", OURS, "-o", "name")
        assert said == "", said


def _generation(api: Client) -> int:
    return int(api.get("Deployment", "dovetail-scheduler", "kube-system")["metadata"]["generation"])


def _image(deployment: Object) -> str:
    return f"{deployment['spec']['template']['spec']['containers'][0]['image']}"


@pytest.mark.parametrize("way", ["kustomize", "helm"])
def test_the_pod_passes_pod_security_restricted(way: str, programs: Programs, api: Client) -> None:
    modes = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn", "audit")}
    _namespace(api, "restricted", **modes)
    made = programs.kustomized(DEPLOY) if way == "kustomize" else programs.templated({})
    (deployment,) = [item for item in made if item["kind"] == "Deployment"]
    template = deployment["spec"]["template"]
    meta = {"name": "scheduler", "namespace": "restricted", "labels": template["metadata"]["labels"]}
    api.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template["spec"]})
    spec = api.get("Pod", "scheduler", "restricted")["spec"]
    assert spec["automountServiceAccountToken"] is True  # the ServiceAccount says no: no other pod gets its token
    assert spec["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True
    spec["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    with pytest.raises(ApiError) as refused:  # the namespace does refuse
        api.create({"apiVersion": "v1", "kind": "Pod", "metadata": {**meta, "name": "more"}, "spec": spec})
    assert "violates PodSecurity" in str(refused.value)


class ShippedProcess:
    """The container of a Deployment as a process: its arguments, its variables, its files, its ServiceAccount's token.

    Only paths and addresses differ: what the pod mounts is in a folder, and the pod's address is loopback.
    """

    def __init__(self, plane: ControlPlane, made: list[Object], room: Path, name: str) -> None:
        (deployment,) = [item for item in made if item["kind"] == "Deployment"]
        (config,) = [item for item in made if key_of(item)[1::2] == ("ConfigMap", "dovetail-scheduler")]
        self.namespace, self.name, self._room = str(deployment["metadata"]["namespace"]), name, room / name
        self.port = free_ports(1)[0]
        for folder in ("etc/dovetail", "etc/dovetail-seal", "var/cache/dovetail", "tmp"):
            (self._room / folder).mkdir(parents=True)
        for file, text in config["data"].items():
            (self._room / "etc" / "dovetail" / file).write_text(text, encoding="utf-8")
        (self._room / "etc" / "dovetail-seal" / "keys").write_text(f"{'k' * 40}\n", encoding="utf-8")
        (self._room / "etc" / "dovetail-seal" / "keys").chmod(0o440)
        spec = deployment["spec"]["template"]["spec"]
        (self._container,) = spec["containers"]
        kubeconfig = kubeconfig_of_account(plane, self.namespace, spec["serviceAccountName"], self._room)
        self._environment = {"KUBECONFIG": str(kubeconfig)}
        for variable in self._container["env"]:
            field = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
            value = self._field(field) if field else self._here(variable["value"])
            self._environment[variable["name"]] = value
        # The image has compiled kernels; here the tests' own cache stands for them.
        self._environment["DOVETAIL_CACHE_DIR"] = os.environ.get("DOVETAIL_CACHE_DIR", "") or str(
            self._room / "var/cache/dovetail"
        )
        self.log = self._room / "log"
        self.process: Process | None = None

    def _field(self, path: str) -> str:
        return {"metadata.namespace": self.namespace, "metadata.name": self.name, "status.podIP": "127.0.0.1"}[path]

    def _here(self, text: str) -> str:
        """Paths of the container as paths of this machine."""
        return re.sub(r"(?<![\w.])/(etc|var|tmp)\b", lambda found: f"{self._room}/{found[1]}", text)

    def arguments(self) -> list[str]:
        """As kubelet expands $(NAME)."""
        words = [self._here(word) for word in self._container["args"]]
        expanded = [re.sub(r"\$\((\w+)\)", lambda found: self._environment[found[1]], word) for word in words]
        return [word.replace(":9396", f":{self.port}") for word in expanded]

    def start(self, *more: str) -> None:
        self.process = Process(self.name, [DOVETAIL, *self.arguments(), *more], self.log, **self._environment)

    def words(self) -> str:
        return self.log.read_text(encoding="utf-8") if self.log.exists() else ""

    def stop(self) -> None:
        if self.process is not None:
            self.process.stop(20)


@pytest.mark.parametrize(
    ("way", "namespace"), [("kustomize", "kube-system"), ("helm", "kube-system"), ("helm", "dovetail-system")]
)
def test_what_is_shipped_runs_with_what_is_shipped(
    way: str, namespace: str, programs: Programs, plane: ControlPlane, api: Client, kubelet: Kubelet, tmp_path: Path
) -> None:
    """Real arguments, real token, real rights and admission policies. A missing right would be named in the log."""
    everything = [name for name in TOGETHER if name not in ("metrics-auth", "webhook")]  # those have tests of their own
    if way == "kustomize":
        overlay = programs.overlay(*everything)
        programs.run("kubectl", "apply", "-k", overlay)
        made = programs.kustomized(overlay)
    else:
        values = switched_on(*everything)
        place = ("--namespace", namespace, "--create-namespace")
        programs.run("helm", "install", "dovetail", DEPLOY, *place, "--values", programs.values(values))
        made = programs.templated(values, namespace)
    create_all(api, (node(f"n{number}", gpus=4) for number in range(3)))
    shipped = ShippedProcess(plane, made, tmp_path, "dovetail-scheduler-0")
    shipped.start("--interpreted")
    try:
        create_all(api, (pod(f"p{number}", gpu_limits(1, memory=1000, cores=10)) for number in range(20)))
        create_all(api, [pod("too-big", gpu_limits(9))])
        everybody_settled(api)
        lease = api.get("Lease", "dovetail-scheduler", namespace)
        assert lease["spec"]["holderIdentity"] == "dovetail-scheduler-0"
        assert len([item for item in api.list("Pod") if item["spec"].get("nodeName")]) == 20
        assert "dovetail.dev/seal" in api.get("Pod", "p0")["metadata"]["annotations"]
    finally:
        shipped.stop()
    said = shipped.words()
    for line in said.splitlines():  # one JSON object for each message, as the arguments ask
        json.loads(line)
    assert "lacks verb" not in said
    assert "denied request" not in said
    assert '"level":"error"' not in said.replace(" ", "")


def test_in_another_namespace_the_account_is_limited_as_well(
    programs: Programs, plane: ControlPlane, api: Client
) -> None:
    """The policies look for the ServiceAccount's name in any namespace: a move must not take the limits away."""
    place = ("--namespace", "dovetail-system", "--create-namespace")
    values = programs.values(switched_on("hami-lock"))
    programs.run("helm", "install", "dovetail", DEPLOY, *place, "--values", values)
    create_all(api, [node("probe")])

    def refused() -> bool:
        who = ("--as", "system:serviceaccount:dovetail-system:dovetail-scheduler")
        try:
            programs.run("kubectl", *who, "label", "node", "probe", "pool=secret", "--dry-run=server")
        except Failure as failure:
            return "may not change labels" in str(failure)
        return False

    api.wait_until(refused, "the policies limit the account", 60)


def test_kustomize_in_another_namespace_is_what_helm_makes(programs: Programs, api: Client) -> None:
    """The overlay of docs/install.md."""
    page = (DEPLOY.parent / "docs" / "install.md").read_text(encoding="utf-8")
    (text,) = [one for one in re.findall(r"(?ms)^```yaml\n(.*?)^```$", page) if "replacements:" in one]
    document = yaml.safe_load(text)
    overlay = programs.overlay(*TOGETHER, **{name: document[name] for name in ("namespace", "replacements", "patches")})
    _namespace(api, document["namespace"])
    _, complaints = programs.run("kubectl", "apply", "--server-side", "--validate=strict", "-k", overlay)
    assert complaints == ""
    made = programs.kustomized(overlay)
    for item in made:  # kustomize knows few cluster-wide kinds; the API server drops the namespace of the others
        if item["kind"] in ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", *FLOW_CONTROL):
            item["metadata"].pop("namespace", None)
    theirs = programs.templated(switched_on(*TOGETHER), document["namespace"])
    assert {key_of(item): same_but_for_helm(item) for item in made} == {
        key_of(item): same_but_for_helm(item) for item in theirs
    }
