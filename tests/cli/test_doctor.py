"""`dovetail doctor` on files: what it finds, what it says, how it ends. Cards have 8,000 MiB."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dovetail.kube.conversion.seals import SEAL, Seals
from dovetail.kube.conversion.settings import Settings
from dovetail.kube.doctor.survey import Survey, look
from dovetail.kube.doctor.table import CHECKS
from dovetail.kube.doctor.table import findings as findings_of
from dovetail.kube.live.reader import PodReader
from dovetail.kube.objects import core as objects
from tests.cli.conftest import Run
from tests.kube.manifests import ALLOCATED, CORES, GPU, MEM, Object, card, container, node, pod

KEY = "0123456789abcdef" * 2
TO_ALLOCATE = "hami.io/vgpu-devices-to-allocate"
WHOLE = {GPU: 1, MEM: 8000, CORES: 100}


def running(name: str, record: str, where: str = "n", sealed: str | None = None, **notes: str) -> Object:
    """A pod of ours with this record; `sealed`: with a seal that says this."""
    annotations = {ALLOCATED: record, **notes}
    if sealed is not None:
        annotations[SEAL] = Seals((KEY.encode(),)).seal(f"uid-{name}", where, {ALLOCATED: sealed})
    meta = {"namespace": "ml", "uid": f"uid-{name}", "annotations": annotations}
    return pod(name, container(WHOLE), meta=meta, nodeName=where, schedulerName="dovetail")


def found(run: Run, tmp_path: Path, *items: Object, options: tuple[object, ...] = ()) -> tuple[int, list[Any]]:
    path = tmp_path / "cluster.json"
    path.write_text("\n".join(json.dumps(item) for item in items), encoding="utf-8")
    result = run("doctor", "-f", path, "-o", "json", *options)
    document = json.loads(result.stdout)
    assert document["checked"]["checks"] == [check.name for check in CHECKS]
    return result.exit_code, [(one["check"], one["object"]) for one in document["findings"]]


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    path.write_text(f"{KEY}\n", encoding="utf-8")
    return path


THERE = node("n", card("GPU-0"), card("GPU-1"), card("GPU-2"))


def record(uuid: str) -> str:
    return f"{uuid},NVIDIA,8000,100:;"


def test_nothing_found_ends_with_0(run: Run, tmp_path: Path, keys: Path) -> None:
    sound = running("p", record("GPU-0"), sealed=record("GPU-0"))
    assert found(run, tmp_path, THERE, sound, options=("--seal-key-file", keys)) == (0, [])


@pytest.mark.parametrize(
    ("pods", "check"),
    [
        ([running("p", record("GPU-1"), sealed=record("GPU-0"))], ("record-changed", "Pod ml/p")),
        ([running("p", record("GPU-0"))], ("record-unsealed", "Pod ml/p")),
        ([running(name, record("GPU-0"), sealed=record("GPU-0")) for name in "pq"], ("card-overbooked", "Node n")),
        ([running("p", record("GPU-9"), sealed=record("GPU-9"))], ("card-unregistered", "Node n")),
    ],
)
def test_each_check_finds_its_fault(
    pods: list[Object], check: tuple[str, str], run: Run, tmp_path: Path, keys: Path
) -> None:
    code, findings = found(run, tmp_path, THERE, *pods, options=("--seal-key-file", keys))
    assert code == 3
    assert set(findings) == {check}


@pytest.mark.parametrize(
    "lie", [{"record": "?"}, {"record": record("GPU-1"), TO_ALLOCATE: record("GPU-0")}, {"record": record("GPU-0") * 2}]
)
def test_records_that_contradict_each_other_or_the_request(lie: Any, run: Run, tmp_path: Path) -> None:
    assert found(run, tmp_path, THERE, running("p", **lie)) == (3, [("record-doubtful", "Pod ml/p")])


def without_record(name: str, where: str = "n") -> Object:
    item = running(name, record("GPU-0"), where)
    del item["metadata"]["annotations"][ALLOCATED]
    return item


def test_a_running_pod_without_a_record_is_named(run: Run, tmp_path: Path) -> None:
    assert found(run, tmp_path, THERE, without_record("p")) == (3, [("record-missing", "Pod ml/p")])


def test_where_kubelet_picks_the_cards_no_record_is_expected(run: Run, tmp_path: Path) -> None:
    stock = node("n", allocatable={GPU: "2"})
    stock["metadata"]["labels"] = {"dovetail.dev/enforcer": "stock"}
    item = without_record("p")
    item["spec"]["containers"] = [container({GPU: 1})]
    assert found(run, tmp_path, stock, item) == (0, [])


def test_what_is_charged_by_guess_is_not_called_over_booked(run: Run, tmp_path: Path) -> None:
    """Three cards with a valid pod each. The fourth pod has no record and is charged one of these cards, of which
    16,000 of 8,000 MiB are then charged; that these two pods share a card is no fact."""
    valid = [running(f"p{n}", record(f"GPU-{n}")) for n in range(3)]
    assert found(run, tmp_path, THERE, *valid, without_record("q")) == (3, [("record-missing", "Pod ml/q")])


def test_what_an_unverified_pod_is_charged_is_not_called_over_booked() -> None:
    """Its record fails its check, so that it may have any card; each has a valid pod already."""
    seals = Seals((KEY.encode(),))
    seals.since = 1.0  # records are sealed, and pods of that time must have a seal
    valid = [running(f"p{n}", record(f"GPU-{n}"), sealed=record(f"GPU-{n}")) for n in range(3)]
    lie = running("q", record("GPU-0"))
    lie["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    seen = look(
        PodReader({"dovetail": Settings(seals=seals)}),
        [msgspec.convert(THERE, objects.Node)],
        [msgspec.convert(item, objects.Pod) for item in (*valid, lie)],
        now=2e9,
        settle_seconds=0.0,
        seals=True,
    )
    names = {
        one.check
        for one in findings_of(Survey(seen, (), (), {}, complete=False, now=2e9, names=frozenset({"dovetail"})))
    }
    assert "record-unverified" in names
    assert "card-overbooked" not in names


def test_a_pod_without_a_record_does_not_hide_who_really_shares_a_card(run: Run, tmp_path: Path) -> None:
    pods = (running("p", record("GPU-0")), running("q", record("GPU-0")), without_record("r"))
    _, findings = found(run, tmp_path, THERE, *pods)
    assert set(findings) == {("record-missing", "Pod ml/r"), ("card-overbooked", "Node n")}


def test_a_node_that_takes_no_gpu_pods(run: Run, tmp_path: Path) -> None:
    few = node("n", card("GPU-0"), card("GPU-1"), allocatable={GPU: "1"})
    assert found(run, tmp_path, few) == (3, [("node-unsettled", "Node n")])


def test_a_register_that_cannot_be_read_is_named(run: Run, tmp_path: Path) -> None:
    """Pods found "no such device" there, and only the scheduler's log said why."""
    rubbish = node("n", card("GPU-0"))
    rubbish["metadata"]["annotations"]["hami.io/node-nvidia-register"] = "rubbish"
    half = node("m", card("GPU-0"))
    half["metadata"]["annotations"]["hami.io/node-nvidia-register"] = '[{"id": "GPU-1"}, {}]'
    code, listed = found(run, tmp_path, rubbish, half)
    assert code == 3
    assert [one for one in listed if one[0] == "node-doubtful"] == [
        ("node-doubtful", "Node m"),
        ("node-doubtful", "Node n"),
    ]
    said = run("doctor", "-f", tmp_path / "cluster.json").stdout
    assert "hami.io/node-nvidia-register is neither JSON nor" in said


def test_without_a_key_it_says_that_seals_are_not_checked(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    item = running("p", record("GPU-1"), sealed=record("GPU-0"))
    path.write_text(json.dumps(THERE) + "\n" + json.dumps(item), encoding="utf-8")
    result = run("doctor", "-f", path)
    assert result.exit_code == 0
    assert "seals are not checked; name the scheduler's keys with --seal-key-file" in result.stderr
    assert "Nothing found on 1 node and 1 running pod." in result.stdout


def test_people_read_what_is_wrong_and_what_to_do(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    items = (THERE, running("p", record("GPU-0")), running("q", record("GPU-0")))
    path.write_text("\n".join(json.dumps(item) for item in items), encoding="utf-8")
    said = run("doctor", "-f", path).stdout
    assert "card GPU-0: memory 16,000 of 8,000 MiB in use by ml/p, ml/q" in said
    assert "card-overbooked: delete one of them" in said


@pytest.mark.parametrize(
    ("text", "complaint"), [("short", "key 1 has 5 characters; write 32 to 1,024"), ("", "has no key"), (None, "")]
)
def test_keys_that_cannot_be_used(text: str | None, complaint: str, run: Run, tmp_path: Path) -> None:
    path, keys = tmp_path / "cluster.json", tmp_path / "keys"
    path.write_text(json.dumps(THERE), encoding="utf-8")
    if text is not None:
        keys.write_text(text, encoding="utf-8")
    result = run("doctor", "-f", path, "--seal-key-file", keys)
    assert result.exit_code == 2
    assert (complaint or "there is no such file") in result.stderr


@pytest.mark.parametrize("text", ["", '{"apiVersion": "v1", "kind": "List", "items": []}'], ids=["empty", "no items"])
def test_no_objects_are_no_good_news(text: str, run: Run, tmp_path: Path) -> None:
    """`kubectl get … | dovetail doctor -f -` where kubectl failed."""
    path = tmp_path / "cluster.json"
    path.write_text(text, encoding="utf-8")
    result = run("doctor", "-f", path)
    assert result.exit_code == 2
    assert "there is nothing to examine" in result.stderr


def test_a_running_pod_beyond_the_bound_holds_its_nodes_cards(run: Run, examples: Path, tmp_path: Path) -> None:
    limits = {"limits": {"nvidia.com/gpu": "257"}}
    spec = {"nodeName": "ip-10-0-61-248", "containers": [{"name": "c", "image": "i", "resources": limits}]}
    item = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "uid": "u"}, "spec": spec}
    path = tmp_path / "over.json"
    path.write_text(json.dumps({**item, "status": {"phase": "Running"}}), encoding="utf-8")
    result = run("plan", "-f", examples / "demo" / "cluster.yaml", "-f", path, "-o", "json")
    nodes = {one["name"]: one for one in json.loads(result.stdout)["nodes"]}
    assert nodes["ip-10-0-61-248"]["whole_gpus_free"] == {"before": 0, "after": 0}


def test_help_names_every_check(run: Run) -> None:
    said = run("doctor", "--help").output
    assert [check.name for check in CHECKS if check.name not in said] == []


def test_a_cluster_that_cannot_be_reached_is_refused(run: Run, tmp_path: Path) -> None:
    result = run("doctor", "--kubeconfig", tmp_path / "none")
    assert result.exit_code == 2


def test_a_number_beyond_64_bits_is_looked_at_like_any_other(run: Run, tmp_path: Path) -> None:
    """A plan says that Kubernetes cannot hold it; doctor has no check of requests, and must not fail by it."""
    huge = pod("huge", container({GPU: 10**26}), meta={"namespace": "ml", "uid": "u"}, schedulerName="dovetail")
    assert found(run, tmp_path, THERE, huge) == (0, [])
