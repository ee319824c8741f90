"""An operator may say which policies pods name: each pair of policies is compiled once, and tenants choose them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from dovetail.cli.main import cli
from dovetail.cli.settings import KNOWN
from dovetail.kube.conversion.requests import Template, pod_from
from dovetail.kube.conversion.settings import Settings
from dovetail.kube.objects.problems import Problems
from dovetail.model.pod import Pod
from dovetail.model.reason import Reason
from tests.kube.live.stage import read, waiting

ONLY_SPREAD = replace(KNOWN, allowed_policies=frozenset({"spread", "numa"}))


def pod_with(settings: Settings, node: str = "", gpu: str = "") -> Pod:
    item = waiting("p")
    named = {"dovetail.dev/node-policy": node, "dovetail.dev/gpu-policy": gpu}
    item["metadata"]["annotations"] = {key: value for key, value in named.items() if value}
    source = read(item)
    return pod_from(Template("Pod p", "spec", "ml", "p", source.metadata, source.spec), settings, Problems())


@pytest.mark.parametrize(
    ("node", "gpu", "wrong"),
    [
        ("", "", ""),
        ("binpack", "spread", ""),  # the default, by name
        ("spread", "", ""),
        ("", "numa,spread", ""),
        ("", "numa,mutex", "mutex"),
        ("best-fit", "binpack", "best-fit, binpack"),
    ],
)
def test_a_pod_names_allowed_policies_only(node: str, gpu: str, wrong: str) -> None:
    assert pod_with(KNOWN, node, gpu).refusal is None
    refusal = pod_with(ONLY_SPREAD, node, gpu).refusal
    if not wrong:
        assert refusal is None
        return
    assert refusal is not None
    assert refusal.reason is Reason.POLICY_NOT_ALLOWED
    assert refusal.message == f"the policy {wrong} is not allowed on this cluster; write one of numa, spread"


CLUSTER = """
apiVersion: v1
kind: Node
metadata: {name: n}
status: {allocatable: {cpu: 8, memory: 32Gi, pods: 110}}
---
apiVersion: v1
kind: Pod
metadata: {name: p, annotations: {dovetail.dev/node-policy: best-fit}}
spec: {schedulerName: dovetail, containers: [{name: c, image: x}]}
"""


def plan(tmp_path: Path, allowed: str) -> tuple[int, str]:
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    config = tmp_path / "config.yaml"
    config.write_text(f"apiVersion: dovetail.dev/v1\nkind: Config\nallowedPolicies: {allowed}\n")
    result = CliRunner().invoke(cli, ["plan", "-f", str(tmp_path / "cluster.yaml"), "--config", str(config)])
    return result.exit_code, result.output


def test_plan_refuses_by_the_same_configuration(tmp_path: Path) -> None:
    assert "the policy best-fit is not allowed on this cluster; write one of spread" in plan(tmp_path, "[spread]")[1]
    assert "best-fit is not allowed" not in plan(tmp_path, "[best-fit]")[1]
    assert "best-fit is not allowed on this cluster; remove the annotation" in plan(tmp_path, "[]")[1]


def test_a_name_that_no_policy_has_is_a_mistake_of_the_configuration(tmp_path: Path) -> None:
    code, text = plan(tmp_path, "[spraed]")
    assert code == 2
    assert "allowedPolicies: 'spraed' is no policy; write one of" in text
