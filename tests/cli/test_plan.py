"""`plan`: exit codes, where things land, and what is said about what does not."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.conftest import PlanJson, Run

DEMO = ("demo/cluster.yaml", "demo/demo-a.yaml")


def files(examples: Path, *names: str) -> list[str]:
    return [word for name in names for word in ("-f", str(examples / name))]


def cards(plan: dict[str, Any]) -> Counter[tuple[str, str]]:
    """(node, card) -> pods on it."""
    return Counter((p["node"], device["uuid"]) for p in plan["placements"] for device in p["devices"])


def nodes(plan: dict[str, Any]) -> list[int]:
    return sorted(Counter(placement["node"] for placement in plan["placements"]).values())


# The guide's five replicas on two nodes with two GPUs each. An axis that is not named has its default.


@pytest.mark.parametrize(
    ("name", "per_node", "per_card"),
    [
        ("node-binpack", [5], [2, 3]),  # GPU spread is the default
        ("node-spread", [2, 3], [1, 1, 1, 2]),
        ("gpu-binpack", [5], [5]),  # node binpack is the default
        ("gpu-spread", [5], [2, 3]),
        ("gpu-node-spread", [2, 3], [1, 1, 1, 2]),
        ("gpu-binpack-node-spread", [2, 3], [2, 3]),
    ],
)
def test_guide(examples: Path, plan_json: PlanJson, name: str, per_node: list[int], per_card: list[int]) -> None:
    plan = plan_json(*files(examples, "guide/cluster.yaml", f"guide/{name}.yaml"))
    assert nodes(plan) == per_node
    assert sorted(cards(plan).values()) == per_card


# Koordinator's example: a gang of three on one node; of five, four and one.


@pytest.mark.parametrize(("replicas", "per_node"), [(3, [3]), (5, [1, 4])])
def test_koordinator(examples: Path, plan_json: PlanJson, replicas: int, per_node: list[int]) -> None:
    config = examples / "koordinator" / "config" / "dovetail.yaml"
    names = ("cluster.yaml", "gang.yaml", f"vgpu-job-{replicas}.yaml")
    plan = plan_json("--config", config, *files(examples, *(f"koordinator/{name}" for name in names)))
    assert nodes(plan) == per_node
    assert {placement["policy"]["node"] for placement in plan["placements"]} == {"fit-plus"}
    assert plan["pending"] == []


def test_the_configuration_may_come_from_the_environment(
    examples: Path, plan_json: PlanJson, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOVETAIL_CONFIG", str(examples / "koordinator" / "config" / "dovetail.yaml"))
    plan = plan_json(
        *files(examples, "koordinator/cluster.yaml", "koordinator/gang.yaml", "koordinator/vgpu-job-3.yaml")
    )
    assert plan["placements"][0]["policy"]["node"] == "fit-plus"


# Exit codes.


def test_all_placed_is_0(examples: Path, run: Run) -> None:
    assert run("plan", *files(examples, *DEMO)).exit_code == 0


@pytest.mark.parametrize("output", ["table", "wide", "json", "yaml"])
def test_something_pending_is_3(examples: Path, run: Run, output: str) -> None:
    result = run("plan", *files(examples, "what-if"), "-o", output)
    assert result.exit_code == 3
    assert "summariser-0" in result.stdout


def test_a_refused_request_is_2_and_still_a_plan(examples: Path, run: Run) -> None:
    odd = (examples / "demo" / "demo-b.yaml").read_text(encoding="utf-8").replace("spread", "sideways")
    result = run("plan", "-o", "json", "-f", "-", *files(examples, *DEMO), stdin=odd)
    assert result.exit_code == 2
    plan = json.loads(result.stdout)
    assert {pending["reason"] for pending in plan["pending"]} == {"InvalidRequest"}
    assert "sideways" in plan["pending"][0]["message"]
    assert len(plan["placements"]) == 4  # demo-a is none the worse for it


@pytest.mark.parametrize(
    ("stdin", "says"),
    [
        ("a: [1", "stdin"),
        ("just words", "stdin"),
        ("apiVersion: v1\nkind: Pod\nmetadata: 3\n", "metadata"),
    ],
)
def test_broken_input_is_2(run: Run, stdin: str, says: str) -> None:
    result = run("plan", "-f", "-", stdin=stdin)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert says in result.stderr
    assert result.stderr.startswith("dovetail: ")


def test_a_missing_file_is_named(run: Run) -> None:
    result = run("plan", "-f", "nowhere.yaml")
    assert result.exit_code == 2
    assert "nowhere.yaml: cannot be read: No such file or directory" in result.stderr


@pytest.mark.parametrize(
    ("spec", "reason", "says"),
    [
        ("schedulingGates: [{name: example.com/hold}]", "SchedulingGated", "gates are removed: example.com/hold"),
        ("resourceClaims: [{name: gpu}]", "ResourceClaimsNotSupported", "ask by a resource such as nvidia.com/gpu"),
    ],
)
def test_what_is_not_placed_yet_is_pending_not_wrong(
    examples: Path, run: Run, spec: str, reason: str, says: str
) -> None:
    pod = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec:\n  {spec}\n  containers: [{{name: main}}]\n"
    for command in (("plan",), ("explain", "p")):
        result = run(*command, "-o", "json", "-f", "-", *files(examples, "demo/cluster.yaml"), stdin=pod)
        assert result.exit_code == 3
        found = json.loads(result.stdout)
        found = found["pending"][0] if command == ("plan",) else found
        assert found["reason"] == reason
        assert says in found["message"]


# Policies.


@pytest.mark.parametrize(
    ("option", "says"),
    [
        (
            ("--node-policy", "binpak"),
            "--node-policy: 'binpak' is no node policy; write one of balanced-network, best-fit, binpack, dot-product,",
        ),
        (
            ("--gpu-policy", "binpack,topology"),
            "--gpu-policy: 'topology' is no GPU policy; write one of best-fit, binpack,",
        ),
        (("--gpu-policy", "binpack,binpack"), "--gpu-policy: 'binpack,binpack' names a policy twice"),
        (
            ("--gpu-policy", "binpack,spread,mutex,numa,random"),
            "--gpu-policy: 'binpack,spread,mutex,numa,random' chains more than 4 policies",
        ),
        (("--gpu-policy", "binpack,"), "--gpu-policy: '' is no GPU policy"),
    ],
)
def test_an_unknown_policy_lists_the_right_ones(examples: Path, run: Run, option: tuple[str, ...], says: str) -> None:
    result = run("plan", *option, *files(examples, *DEMO))
    assert result.exit_code == 2
    assert says in result.stderr


def test_an_unknown_policy_in_an_annotation_lists_the_right_ones(examples: Path, run: Run) -> None:
    text = (examples / "demo" / "demo-a.yaml").read_text(encoding="utf-8")
    text = text.replace("node-scheduler-policy: binpack", "node-scheduler-policy: binpak")
    result = run("plan", "-f", "-", *files(examples, "demo/cluster.yaml"), stdin=text)
    assert result.exit_code == 2
    assert "binpak" in result.output
    assert "spread-replicas" in result.output


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("gpuPolicy: binpak", "gpuPolicy: 'binpak' is no GPU policy; write one of"),
        ("gpuPolicy: spread,spread", "gpuPolicy: 'spread,spread' names a policy twice"),
        ("nodePolicy: mutex", "nodePolicy: 'mutex' is no node policy; write one of"),
        ("policyArguments: {binpack: {x: 1}}", "policyArguments.binpack.x: no such argument; the policy takes none"),
    ],
)
def test_what_is_wrong_in_the_configuration_names_the_file(
    examples: Path, run: Run, tmp_path: Path, line: str, says: str
) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(f"apiVersion: dovetail.dev/v1\nkind: Config\n{line}\n", encoding="utf-8")
    result = run("plan", "--config", config, *files(examples, *DEMO))
    assert result.exit_code == 2
    assert f"{config}: {says}" in result.stderr


def test_wrong_policy_arguments_name_the_file(examples: Path, run: Run, tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    text = "apiVersion: dovetail.dev/v1\nkind: Config\nnodePolicy: fit-plus\n"
    text += "policyArguments: {fit-plus: {resources: {cpu: {type: Sideways, weight: 1}}}}\n"
    config.write_text(text, encoding="utf-8")
    result = run("plan", "--config", config, *files(examples, *DEMO))
    assert result.exit_code == 2
    assert str(config) in result.stderr
    assert "MostAllocated" in result.stderr


def test_the_options_decide_where_the_pod_does_not(examples: Path, plan_json: PlanJson) -> None:
    guide = files(examples, "guide/cluster.yaml", "guide/gpu-binpack.yaml")  # names the GPU policy only
    plan = plan_json("--node-policy", "spread", "--gpu-policy", "spread", *guide)
    assert {(p["policy"]["node"], p["policy"]["gpu"]) for p in plan["placements"]} == {("spread", "binpack")}
    assert nodes(plan) == [2, 3]


# Input and output.


def test_stdin_is_a_file_like_any(examples: Path, run: Run) -> None:
    text = (examples / "demo" / "cluster.yaml").read_bytes()
    result = run("plan", "-f", "-", *files(examples, "demo/demo-a.yaml"), stdin=text)
    assert result.exit_code == 0


def test_order_of_files_does_not_matter(examples: Path, plan_json: PlanJson) -> None:
    one, other = files(examples, *DEMO), files(examples, *reversed(DEMO))
    assert plan_json(*one) == plan_json(*other)


def test_namespace_is_that_of_objects_without_one(examples: Path, plan_json: PlanJson) -> None:
    plan = plan_json("-n", "prod", *files(examples, *DEMO))
    assert {placement["namespace"] for placement in plan["placements"]} == {"prod"}
    what_if = plan_json("-n", "prod", *files(examples, "what-if"))
    assert {pending["namespace"] for pending in what_if["pending"]} == {"search"}


def test_yaml_is_the_same_document(examples: Path, run: Run) -> None:
    as_json = run("plan", *files(examples, "what-if"), "-o", "json").stdout
    as_yaml = run("plan", *files(examples, "what-if"), "-o", "yaml").stdout
    assert json.loads(as_json) == yaml.safe_load(as_yaml)


def test_the_table(examples: Path, run: Run) -> None:
    said = run("plan", *files(examples, *DEMO)).stdout
    assert "PLACED (4)" in said
    assert "binpack × binpack" in said
    assert "6 of 4" not in said
    assert "4 → 2 of 4" in said  # whole GPUs of the T4 node
    assert said.splitlines()[-1] == (
        "4 pods: 4 placed, 0 pending · nodes used: 1 · GPUs used: 2 · whole GPUs free: 8 → 6"
    )


def test_wide_has_a_row_per_gpu(examples: Path, run: Run) -> None:
    narrow = run("plan", *files(examples, *DEMO)).stdout
    wide = run("plan", "-o", "wide", *files(examples, *DEMO)).stdout
    assert wide.count("NVIDIA A10G") == 4
    assert "NVIDIA A10G" not in narrow
    assert "0 → 15,000 of 15,360 MiB" in wide


def test_pending_says_why_in_numbers(examples: Path, run: Run) -> None:
    said = run("plan", *files(examples, "what-if")).stdout
    assert "PENDING (2)" in said
    assert "GPU memory short by 1,024 MiB" in said
    assert "dedicated=training:NoSchedule" in said


def test_colours(examples: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    what_if = files(examples, "what-if")
    assert "\x1b[" not in run("plan", *what_if).output
    assert "\x1b[" not in run("plan", "--color", "never", *what_if).output
    assert "\x1b[" in run("plan", "--color", "always", *what_if).output
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in run("plan", "--color", "auto", *what_if).output


def test_other_kinds_are_noted_not_refused(examples: Path, run: Run) -> None:
    """Notes are counted, and shown when wide."""
    config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\n"
    narrow = run("plan", "-f", "-", *files(examples, *DEMO), stdin=config)
    wide = run("plan", "-o", "wide", "-f", "-", *files(examples, *DEMO), stdin=config)
    assert (narrow.exit_code, wide.exit_code) == (0, 0)
    assert "on what was filled in or left out; -o wide shows them" in narrow.stderr
    assert "1 ConfigMap" in wide.stderr


def test_nothing_to_place(examples: Path, run: Run) -> None:
    result = run("plan", *files(examples, "demo/cluster.yaml"))
    assert result.exit_code == 0
    assert "0 pods" in result.stdout


@pytest.mark.parametrize("text", ["", "\n---\n", "# a comment\n", "---\n---\n"])
def test_nothing_at_all_is_2(run: Run, text: str) -> None:
    """`kubectl … | dovetail plan -f -` where kubectl failed."""
    result = run("plan", "-f", "-", stdin=text)
    assert result.exit_code == 2
    assert "dovetail: stdin: holds no object" in result.stderr


def test_an_empty_folder_is_2(run: Run, tmp_path: Path) -> None:
    result = run("plan", "-f", tmp_path)
    assert result.exit_code == 2
    assert "the folder holds no .yaml" in result.stderr


def test_no_nodes(examples: Path, run: Run) -> None:
    result = run("plan", "-o", "json", *files(examples, "demo/demo-a.yaml"))
    assert result.exit_code == 3
    assert {pending["reason"] for pending in json.loads(result.stdout)["pending"]} == {"NoNodes"}


@pytest.mark.parametrize("folder", ["demo", "guide", "koordinator", "what-if"])
def test_every_folder_of_examples_is_a_plan(examples: Path, run: Run, folder: str) -> None:
    assert run("plan", *files(examples, folder)).exit_code == (3 if folder == "what-if" else 0)


EXISTING = """
apiVersion: v1
kind: Pod
metadata: {name: bad, namespace: other, uid: 1f0c, annotations: {hami.io/gpu-scheduler-policy: nonsense}}
spec: {schedulerName: dovetail, containers: [{name: m, resources: {limits: {nvidia.com/gpu: 1}}}]}
"""


def test_a_wrong_pod_of_the_cluster_is_pending_and_no_mistake_in_the_plan(examples: Path, run: Run) -> None:
    """`kubectl get nodes,pods -A -o yaml | dovetail plan -f - -f mine.yaml`: any tenant's pod made it exit code 2."""
    files = ("-f", "-", "-f", examples / "demo" / "cluster.yaml", "-f", examples / "demo" / "demo-a.yaml")
    result = run("plan", *files, stdin=EXISTING)
    assert result.exit_code == 3
    assert "warning: stdin#1 Pod other/bad" in result.stderr
    assert "InvalidRequest" in result.stdout
    assert run("plan", *files, "--strict", stdin=EXISTING).exit_code == 2
    new = EXISTING.replace("uid: 1f0c, ", "")
    assert run("plan", *files, stdin=new).exit_code == 2
