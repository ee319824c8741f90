"""`explain`: why here, why not, and the change that would help."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from dovetail.engine.why.changes import other_policies
from dovetail.engine.why.explain import verdicts
from dovetail.engine.why.suggest import alternatives
from dovetail.model.decision import Decision
from dovetail.model.pod import Group, Pod
from tests.builders import ask, cluster, node, pod
from tests.cli.conftest import Run


def demo(examples: Path, letter: str = "a") -> list[str]:
    return ["-f", str(examples / "demo" / "cluster.yaml"), "-f", str(examples / "demo" / f"demo-{letter}.yaml")]


@pytest.mark.parametrize("words", [["demo-a-1"], ["pod", "demo-a-1"], ["pod/demo-a-1"], ["po/demo-a-1"]])
def test_a_placed_pod(examples: Path, run: Run, words: list[str]) -> None:
    result = run("explain", *words, *demo(examples))
    assert result.exit_code == 0
    assert "default/demo-a-1: placed  (node binpack × GPU binpack)" in result.stdout
    assert "Why here: 2 nodes could take it" in result.stdout
    assert "ip-10-0-61-248" in result.stdout  # the runner-up


def test_runners_up_are_scored_before_the_pod_came(examples: Path, run: Run) -> None:
    document = json.loads(run("explain", "demo-a-1", "-o", "json", *demo(examples)).stdout)
    best, other = document["nodes"]
    assert (best["node"], other["node"]) == ("ip-10-0-52-161", "ip-10-0-61-248")
    assert best["score"] > other["score"] == 0  # only demo-a-0 is there already, on the T4 node
    assert document["node"] == "ip-10-0-52-161"
    assert document["state"] == "placed"


@pytest.mark.parametrize(
    "words", [["summariser"], ["deployment/summariser"], ["deploy", "summariser"], ["summariser-0"]]
)
def test_a_pending_pod(examples: Path, run: Run, words: list[str]) -> None:
    result = run("explain", *words, "-n", "search", "-f", examples / "what-if")
    assert result.exit_code == 3
    assert "search/summariser-0: pending" in result.stdout
    assert "GPU memory short by 1,024 MiB on 1 node" in result.stdout
    assert "GPU type does not match (the nodes have NVIDIA L4) on 2 nodes" in result.stdout
    assert "Nearest miss: gpu-a100-1" in result.stdout
    assert result.stdout.split("as tried:\n")[1].splitlines() == [
        "  tolerate the taint dedicated=training:NoSchedule: it then lands on gpu-a100-2",
        "  ask for 38,912 MiB of GPU memory instead of 39,936: it then lands on gpu-a100-1",
        "  if pod search/embedder-6d8b7c9f4-hn2tl (priority 0) left node gpu-a100-1: it then lands on gpu-a100-1",
    ]


def test_the_change_does_place_it(examples: Path, run: Run) -> None:
    text = (examples / "what-if" / "summariser.yaml").read_text(encoding="utf-8").replace("39936", "38912")
    result = run("explain", "summariser-0", "-f", examples / "what-if" / "cluster.yaml", "-f", "-", stdin=text)
    assert result.exit_code == 0
    assert "gpu-a100-1" in result.stdout


def test_a_workload_stands_for_its_first_pending_pod(examples: Path, run: Run) -> None:
    text = (examples / "what-if" / "summariser.yaml").read_text(encoding="utf-8").replace("39936", "38912")
    result = run("explain", "summariser", "-f", examples / "what-if" / "cluster.yaml", "-f", "-", stdin=text)
    assert result.exit_code == 3
    assert "search/summariser-1: pending" in result.stdout


def test_a_running_pod(examples: Path, run: Run) -> None:
    result = run("explain", "anna-0", "-f", examples / "what-if")
    assert result.exit_code == 0
    assert "notebooks/anna-0: running" in result.stdout
    assert "gpu-l4-1" in result.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["demo-a-9"], "there is no pod 'demo-a-9' in the manifests; did you mean demo-a-"),
        (["a", "b", "c"], "name one pod"),
        (["service/web"], "cannot explain a 'service'"),
        (["zzz"], "there is no pod 'zzz' in the manifests"),
        (["job/demo-a"], "there is no Job 'demo-a' in the manifests"),
    ],
)
def test_an_unknown_pod_is_2(examples: Path, run: Run, words: list[str], says: str) -> None:
    result = run("explain", *words, *demo(examples))
    assert result.exit_code == 2
    assert says in result.stderr


def test_the_right_pod_in_the_wrong_namespace(examples: Path, run: Run) -> None:
    result = run("explain", "anna-0", "-n", "search", "-f", examples / "what-if")
    assert result.exit_code == 2
    assert (
        "there is no pod 'anna-0' in namespace search in the manifests; it is in namespace notebooks" in result.stderr
    )


def test_json_and_yaml_are_one_document(examples: Path, run: Run) -> None:
    arguments = ("explain", "summariser", "-f", examples / "what-if")
    document = json.loads(run(*arguments, "-o", "json").stdout)
    assert document == yaml.safe_load(run(*arguments, "-o", "yaml").stdout)
    assert document["state"] == "pending"
    assert document["reason"] == "CardInsufficientMemory"  # of the nearest miss; most nodes have another GPU type
    assert document["nearest"] == "gpu-a100-1"
    assert document["suggestion"] == document["suggestions"][0]
    assert [one["node"] for one in document["suggestions"]] == ["gpu-a100-2", "gpu-a100-1", "gpu-a100-1"]
    assert {row["node"] for row in document["nodes"]} == {"gpu-a100-1", "gpu-a100-2", "gpu-l4-1", "gpu-l4-2"}


def test_wide_shows_every_node(examples: Path, run: Run) -> None:
    said = run("explain", "summariser", "-o", "wide", "-f", examples / "what-if").stdout
    assert "4/4 CardInsufficientMemory" in said
    assert "gpu-l4-2" in said


def test_a_gang_says_what_its_next_member_lacks(examples: Path, run: Run) -> None:
    folder = examples / "koordinator"
    text = (folder / "vgpu-job-3.yaml").read_text(encoding="utf-8").replace('dongle: "2"', 'dongle: "8"')
    result = run(
        "explain", "vgpu-job-3", "-f", folder / "cluster.yaml", "-f", folder / "gang.yaml", "-f", "-", stdin=text
    )
    assert result.exit_code == 3
    assert "Why: 2 of 3 members of default/gang-example fit, 3 must start together; the next finds:" in result.stdout
    assert "example.com/dongle short by 8 on 2 nodes" in result.stdout
    assert "lower minMember of default/gang-example from 3 to 2: it then lands on" in result.stdout


def test_a_refused_pod_is_not_the_nodes_fault(examples: Path, run: Run) -> None:
    text = (examples / "demo" / "demo-b.yaml").read_text(encoding="utf-8").replace("spread", "sideways")
    result = run("explain", "demo-b", "-f", examples / "demo" / "cluster.yaml", "-f", "-", stdin=text)
    assert result.exit_code == 2
    assert "sideways" in result.stdout
    assert "Nearest miss" not in result.stdout


# What is odd about the input is said, as plan does.

BROKEN = """
apiVersion: v1
kind: Pod
metadata: {name: odd, annotations: {hami.io/gpu-scheduler-policy: sideways}}
spec:
  containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]
---
apiVersion: v1
kind: Pod
metadata: {name: fussy}
spec:
  runtimeClassName: kata
  containers: [{name: main, resources: {limits: {nvidia.com/gpumem: 1000}}}]
"""


def test_what_concerns_the_pod_is_said_and_the_rest_is_counted(examples: Path, run: Run) -> None:
    """A pod of somebody else that is wrong neither hides the answer nor makes it an error."""
    files = ("-f", "-", "-f", examples / "demo" / "cluster.yaml")
    result = run("explain", "fussy", *files, stdin=BROKEN)
    assert "warning: stdin#2 Pod default/fussy: spec.runtimeClassName" in result.stderr
    assert "Pod default/odd" not in result.stderr
    assert "on other objects; -o wide shows them" in result.stderr
    assert result.exit_code == 0
    assert "default/fussy: placed" in result.stdout
    assert "error: stdin#1 Pod default/odd" in run("explain", "fussy", "-o", "wide", *files, stdin=BROKEN).stderr


def test_a_pod_that_is_wrong_itself_is_an_error(examples: Path, run: Run) -> None:
    result = run("explain", "odd", "-f", "-", "-f", examples / "demo" / "cluster.yaml", stdin=BROKEN)
    assert "error: stdin#1 Pod default/odd" in result.stderr
    assert result.exit_code == 2


def test_they_are_in_the_json(examples: Path, run: Run) -> None:
    result = run("explain", "fussy", "-o", "json", "-f", "-", "-f", examples / "demo" / "cluster.yaml", stdin=BROKEN)
    document = json.loads(result.stdout)
    assert result.stderr == ""
    assert [len(document[key]) for key in ("warnings", "errors")] == [1, 1]
    assert any("nvidia.com/gpu" in note for note in document["notes"])  # one card, as HAMi's webhook fills in


def test_a_single_node_is_not_one_of_several(run: Run) -> None:
    cluster = "apiVersion: dovetail.dev/v1\nkind: Cluster\nnodes: [{name: n, cpu: 1}]\n---\n"
    asking = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{resources: {requests: {cpu: 2}}}]}\n"
    said = run("explain", "p", "-f", "-", stdin=cluster + asking).stdout
    assert "Why: the only node cannot take it:" in said


@pytest.mark.parametrize(
    ("asking", "alone", "axes"),
    [
        (pod("p", ask(1)), True, set()),  # one card: whichever fits
        (pod("p"), True, set()),
        (pod("p", ask(2)), True, {"GPU"}),
        (pod("p", ask(1), ask(1)), True, {"GPU"}),
        (pod("p", ask(1), gpu_policy="mutex"), True, {"GPU"}),
        (pod("p", ask(1)), False, {"GPU", "node"}),
        (pod("p", ask(2), node_policy="fgd"), True, {"node"}),  # it chooses the cards itself
        (pod("p", ask(1), node_policy="fgd", gpu_policy="mutex"), False, {"node"}),
    ],
)
def test_a_policy_is_tried_only_where_it_can_matter(asking: Pod, alone: bool, axes: set[str]) -> None:
    sentences = [change.sentence for change in other_policies(asking, alone)]
    assert {sentence.split()[2] for sentence in sentences} == axes


def test_no_kernel_is_compiled_for_a_policy_that_does_not_help(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler, tried = cluster(node("n", gpus=1), node("m", gpus=1)), list[str]()
    place = scheduler.place

    def counted(groups: Sequence[Group]) -> Sequence[Decision]:
        tried.extend(",".join(one.profile.device) for group in groups for one in group.pods)
        return place(groups)

    monkeypatch.setattr(scheduler, "place", counted)
    wanted = pod("p", ask(2, 8000))
    first = alternatives(scheduler, Group(wanted.key, (wanted,)), wanted)[0]
    assert first.kind == "fewer-cards"
    assert not alternatives(scheduler, Group(wanted.key, (pod("q", ask(2), ask(9)),)), pod("q", ask(2), ask(9)))
    assert set(tried) == {"spread"}


def test_a_pod_that_asks_two_vendors_is_told_which_is_missing() -> None:
    scheduler = cluster(node("n", gpus=1))
    [verdict] = verdicts(scheduler, pod("p", ask(1), ask(1, vendor="MLU")))
    assert verdict.sentence == "node has no MLU device"
