"""The kustomize base and the Helm chart in deploy/ make the same objects. Nothing is applied here."""

from __future__ import annotations

import json
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from dovetail import __version__
from dovetail.kube.live.deployed import remedy
from tests.live.rendered import (
    COMPONENTS,
    FOLDERS,
    OF_HELM,
    TOGETHER,
    Failure,
    Programs,
    by_key,
    objects,
    same_but_for_helm,
    switched_on,
    value_of,
)
from tools.controlplane.access import DEPLOY
from tools.controlplane.binaries import Binaries
from tools.controlplane.client import Object

VALUES: Object = yaml.safe_load((DEPLOY / "values.yaml").read_text(encoding="utf-8"))


@pytest.fixture
def programs(helm_binaries: Binaries, tmp_path: Path) -> Programs:
    return Programs(helm_binaries, tmp_path)


def assert_same(kustomized: list[Object], templated: list[Object]) -> None:
    ours, theirs = by_key(kustomized), by_key(templated)
    assert set(ours) == set(theirs)
    for key, item in ours.items():
        assert same_but_for_helm(theirs[key]) == same_but_for_helm(item), key


def test_the_defaults_are_equal(programs: Programs) -> None:
    kustomized = programs.kustomized(DEPLOY)
    assert_same(kustomized, programs.templated({}))
    kinds = [item["kind"] for item in kustomized]
    expected = (
        "ServiceAccount Role RoleBinding ClusterRole ConfigMap Deployment PodDisruptionBudget FlowSchema NetworkPolicy"
    )
    assert set(expected.split()) <= set(kinds)
    assert kinds.count("ValidatingAdmissionPolicy") == 4


@pytest.mark.parametrize("name", COMPONENTS)
def test_each_component_is_equal(name: str, programs: Programs) -> None:
    kustomized = programs.kustomized(programs.overlay(name))
    assert_same(kustomized, programs.templated(switched_on(name)))
    assert kustomized != programs.kustomized(programs.overlay())  # it adds something


def test_all_components_together_are_equal(programs: Programs) -> None:
    together = switched_on(*TOGETHER)
    assert_same(programs.kustomized(programs.overlay(*TOGETHER)), programs.templated(together))


def test_the_extender_and_a_webhook_alone_are_equal(programs: Programs) -> None:
    names = ("extender", "hami-lock", "webhook-alone")
    assert_same(programs.kustomized(programs.overlay(*names)), programs.templated(switched_on(*names)))


def test_the_base_names_every_component(programs: Programs) -> None:
    """`components:` of the base lists them as comments: to switch one on is to uncomment a line."""
    text = (DEPLOY / "kustomization.yaml").read_text(encoding="utf-8")
    uncommented = text.replace("components: []", "components:").replace("# - ", "- ")
    assert sorted(yaml.safe_load(uncommented)["components"]) == sorted(map(str, FOLDERS.values()))


def test_every_object_says_that_it_is_ours(programs: Programs) -> None:
    """By this label the uninstall page finds what is left."""
    for made in (programs.kustomized(programs.overlay(*TOGETHER)), programs.templated(switched_on(*TOGETHER))):
        assert {item["metadata"]["labels"].get("app.kubernetes.io/part-of") for item in made} == {"dovetail"}
    labels = programs.templated({})[0]["metadata"]["labels"]
    assert set(labels) >= OF_HELM
    assert (labels["app.kubernetes.io/version"], labels["helm.sh/chart"]) == (__version__, f"dovetail-{__version__}")


def test_the_chart_has_the_version_of_the_program() -> None:
    chart = yaml.safe_load((DEPLOY / "Chart.yaml").read_text(encoding="utf-8"))
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


def test_lint_finds_nothing(programs: Programs) -> None:
    said, _ = programs.run("helm", "lint", "--strict", DEPLOY, "--values", programs.values(switched_on(*TOGETHER)))
    assert "0 chart(s) failed" in said
    assert "[WARNING]" not in said
    assert "[ERROR]" not in said


def test_a_packed_chart_makes_the_same(programs: Programs) -> None:
    programs.run("helm", "package", DEPLOY, "--destination", programs.room)
    packed = programs.room / f"dovetail-{__version__}.tgz"
    with tarfile.open(packed) as archive:
        files = {name.removeprefix("dovetail/") for name in archive.getnames()}
    assert not [name for name in files if name.startswith(("crds/", "requirements"))]
    values = programs.values(switched_on(*TOGETHER))
    said, _ = programs.run("helm", "template", "dovetail", packed, "--namespace", "kube-system", "--values", values)
    assert_same(programs.templated(switched_on(*TOGETHER)), objects(said))


def leaves(value: Any, path: str = "") -> dict[str, Any]:
    if isinstance(value, dict) and value and path not in ("config", "resources", "nodeSelector"):
        return {
            name: leaf for key, item in value.items() for name, leaf in leaves(item, f"{path}.{key}".strip(".")).items()
        }
    return {path: value}


def test_the_schema_knows_every_value_and_no_other() -> None:
    schema = json.loads((DEPLOY / "values.schema.json").read_text(encoding="utf-8"))
    assert list(schema["properties"]) == ["global", *VALUES]
    for path in leaves(VALUES):
        here = schema
        for word in path.split("."):
            here = here["properties"][word]


def test_the_page_has_a_row_for_every_value() -> None:
    page = (DEPLOY.parent / "docs" / "install.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"(?m)^\| `([A-Za-z.]+)` \| `([^`]*)` \| .+ \|$", page))
    shown = {
        path: json.dumps(leaf) if not isinstance(leaf, str) or not leaf else leaf
        for path, leaf in leaves(VALUES).items()
    }
    del shown["config"], shown["resources"]  # described in words
    assert {path: text for path, text in rows.items() if path in shown} == shown
    assert set(rows) - set(shown) <= {"config", "resources"}


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"replica": 3}, "replica"),
        ({"replicas": "two"}, "/replicas"),
        ({"image": {"tag": "a b"}}, "/image/tag"),
        ({"image": {"digest": "abc"}}, "/image/digest"),
        ({"hamiLock": True}, "/hamiLock"),
        ({"hamiLock": {"enable": True}}, "enable"),
        ({"config": {"nodePolicy": "spread", "kind": "Configuration"}}, "/config"),
        ({"extraArgs": ["no-preemption"]}, "/extraArgs"),
        ({"spread": "maybe"}, "/spread"),
    ],
)
def test_a_slip_in_the_values_is_named(values: Object, named: str, programs: Programs) -> None:
    with pytest.raises(Failure) as refused:
        programs.templated(values)
    assert named in str(refused.value)


def test_the_image_is_said_in_one_place(programs: Programs) -> None:
    name = "registry.example.com/platform/dovetail"
    digest = "sha256:" + "0" * 64
    images = [{"name": "dovetail", "newName": name, "digest": digest}]
    kustomized = programs.kustomized(programs.overlay(*TOGETHER, images=images))
    templated = programs.templated(switched_on(*TOGETHER, image={"repository": name, "digest": digest}))
    for made in (kustomized, templated):
        found = re.findall(r'"image": "([^"]+)"', json.dumps(made))
        assert found
        assert set(found) == {f"{name}@{digest}"}


def test_values_reach_the_deployment(programs: Programs) -> None:
    values = {
        "replicas": 3,
        "extraArgs": ["--node-selector=pool=a"],
        "podLabels": {"team": "ml"},
        "podAnnotations": {"example.com/a": "b"},
        "tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}],
        "spread": "DoNotSchedule",
        "sealKey": {"secretName": "keys", "required": True},
        "imagePullSecrets": [{"name": "registry"}],
        "podDisruptionBudget": {"enabled": False},
        "networkPolicy": {"metricsNamespace": "prometheus"},
    }
    made = {item["kind"]: item for item in programs.templated(values)}
    assert "PodDisruptionBudget" not in made
    template = made["Deployment"]["spec"]["template"]
    spec = template["spec"]
    assert made["Deployment"]["spec"]["replicas"] == 3
    assert spec["containers"][0]["args"][-1] == "--node-selector=pool=a"
    assert template["metadata"]["labels"] == {"app.kubernetes.io/name": "dovetail-scheduler", "team": "ml"}
    assert template["metadata"]["annotations"]["example.com/a"] == "b"
    assert spec["tolerations"] == values["tolerations"]
    assert {rule["whenUnsatisfiable"] for rule in spec["topologySpreadConstraints"]} == {"DoNotSchedule"}
    assert spec["volumes"][-1]["secret"] == {"secretName": "keys", "optional": False, "defaultMode": 0o440}
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    allowed = made["NetworkPolicy"]["spec"]["ingress"][0]["from"][0]["namespaceSelector"]["matchLabels"]
    assert allowed == {"kubernetes.io/metadata.name": "prometheus"}


def test_values_reach_the_extender_and_the_webhook_alone(programs: Programs) -> None:
    """They were ignored there: a cluster whose registry needs a password could not start the extender's image."""
    values = {
        "replicas": 3,
        "image": {"pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "registry"}],
        "tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}],
        "nodeSelector": {"kubernetes.io/os": "linux", "pool": "system"},
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "high",
        "podLabels": {"team": "ml"},
        "podAnnotations": {"example.com/a": "b"},
        "spread": "DoNotSchedule",
        "extraArgs": ["--binds-at-once=32"],
        "resources": {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"memory": "2Gi"}},
        "sealKey": {"secretName": "keys", "required": True},
        "networkPolicy": {"metricsNamespace": "prometheus"},
    }
    made = programs.templated(switched_on("extender", "webhook-alone", **values))
    deployments = {item["metadata"]["name"]: item for item in made if item["kind"] == "Deployment"}
    assert set(deployments) == {"dovetail-extender", "dovetail-webhook"}
    for name, item in deployments.items():
        template = item["spec"]["template"]
        for key in ("imagePullSecrets", "tolerations", "nodeSelector", "affinity", "priorityClassName"):
            assert template["spec"][key] == values[key]
        assert template["spec"]["containers"][0]["imagePullPolicy"] == "Always"
        assert {rule["whenUnsatisfiable"] for rule in template["spec"]["topologySpreadConstraints"]} == {
            "DoNotSchedule"
        }
        assert template["metadata"]["labels"] == {"app.kubernetes.io/name": name, "team": "ml"}
        assert template["metadata"]["annotations"] == values["podAnnotations"]
    spec = deployments["dovetail-extender"]["spec"]
    assert spec["replicas"] == 3
    (container,) = spec["template"]["spec"]["containers"]
    assert (container["resources"], container["args"][-1]) == (values["resources"], "--binds-at-once=32")
    assert spec["template"]["spec"]["volumes"][-1]["secret"]["secretName"] == "keys"
    alone = deployments["dovetail-webhook"]["spec"]
    assert (alone["replicas"], alone["template"]["spec"]["containers"][0]["args"][-1]) == (2, "--log-format=json")
    allowed = re.findall(r'"kubernetes.io/metadata.name": "(\w+)"', json.dumps(made))
    assert set(allowed) == {"prometheus"}


def test_without_network_policies_there_is_none(programs: Programs) -> None:
    """One for the webhook's port alone would close the port of the metrics."""
    for components in (("webhook",), ("extender", "webhook-alone")):
        made = programs.templated(switched_on(*components, networkPolicy={"enabled": False}))
        assert "NetworkPolicy" not in {item["kind"] for item in made}


@pytest.mark.parametrize("others", [("extender", "webhook"), ("webhook", "webhook-alone")])
def test_components_that_exclude_each_other_are_refused(others: tuple[str, ...], programs: Programs) -> None:
    """With the extender no pod would answer at the webhook's Service, and the API server would refuse all GPU pods."""
    with pytest.raises(Failure, match=r"webhookAlone\.enabled"):
        programs.templated(switched_on(*others))


def test_monitoring_has_the_dashboards_as_they_are_and_labels_by_which_prometheus_selects(programs: Programs) -> None:
    labels = {"release": "prometheus"}
    templated = programs.templated({"monitoring": {"enabled": True, "labels": labels}})
    for made in (programs.kustomized(programs.overlay("monitoring")), templated):
        (dashboards,) = [item for item in made if item["metadata"]["name"] == "dovetail-dashboards"]
        assert dashboards["metadata"]["labels"]["grafana_dashboard"] == "1"  # by which Grafana's sidecar selects
        files = {path.name: path.read_text(encoding="utf-8") for path in (DEPLOY / "monitoring").glob("*.json")}
        assert len(files) == 4
        assert dashboards["data"] == files
    labelled = [item["kind"] for item in templated if labels.items() <= item["metadata"]["labels"].items()]
    assert sorted(labelled) == ["PrometheusRule", "ServiceMonitor"]


@pytest.mark.parametrize("monitor", ["monitoring", "service-monitor"])
@pytest.mark.parametrize("parts", [(), ("webhook",), ("webhook-alone",), ("extender", "webhook-alone")])
def test_prometheus_finds_the_metrics_of_every_deployment(
    monitor: str, parts: tuple[str, ...], programs: Programs
) -> None:
    """The ServiceMonitor selected the scheduler only: the extender and the webhook in pods of its own were not read."""
    names = (monitor, *parts)
    for made in (programs.kustomized(programs.overlay(*names)), programs.templated(switched_on(*names))):
        deployments = {item["metadata"]["name"]: item for item in made if item["kind"] == "Deployment"}
        assert deployments
        for name, item in deployments.items():
            assert len(ports_read(made, item["spec"]["template"])) == 1, name


def ports_read(made: list[Object], template: Object) -> list[int]:
    """The ports of these pods that a ServiceMonitor has Prometheus read: through Services that both select."""
    (monitor,) = [item["spec"] for item in made if item["kind"] == "ServiceMonitor"]
    (rule,) = monitor["selector"]["matchExpressions"]
    (endpoint,) = monitor["endpoints"]
    assert rule["operator"] == "In"
    named = {port["name"]: port["containerPort"] for port in template["spec"]["containers"][0]["ports"]}
    return [
        named[port["targetPort"]]
        for item in made
        if item["kind"] == "Service" and item["metadata"]["labels"].get(rule["key"]) in rule["values"]
        if item["spec"]["selector"].items() <= template["metadata"]["labels"].items()
        for port in item["spec"]["ports"]
        if port["name"] == endpoint["port"]
    ]


def test_another_configuration_starts_new_pods(programs: Programs) -> None:
    def template(**config: Any) -> Object:
        made = programs.templated({"config": VALUES["config"] | config})
        (deployment,) = [item for item in made if item["kind"] == "Deployment"]
        found: Object = deployment["spec"]["template"]
        return found

    assert template() == template()
    assert template() != template(nodePolicy="spread")


def test_messages_name_components_that_exist() -> None:
    for name in ("hami-lock", "metrics-auth", "queue-status", "pod-group-status"):
        assert name in COMPONENTS
        assert VALUES[value_of(name)] == {"enabled": False}
        assert remedy(name) == f"kubectl apply -k deploy/optional/{name} (Helm: {value_of(name)}.enabled=true)"
