"""`dovetail trace import`: a small history of a cluster, made by hand, becomes a trace that `replay` takes."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from dovetail.sim.load import load_trace
from dovetail.sim.trace import Job, Trace
from tests.cli.conftest import Run
from tests.kube.manifests import card, container, node, pod

WHOLE = {"nvidia.com/gpu": 1}
HALF = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 4000, "nvidia.com/gpucores": 50}
DAY = "2026-11-10T"
Object = dict[str, Any]


def lived(
    name: str,
    limits: Object,
    created: str,
    placed: str = "",
    ended: str = "",
    where: str = "a",
    uid: str = "",
    namespace: str = "ml",
    **meta: Any,
) -> Object:
    """A pod with the times of its life; without `placed` it waits, without `ended` it runs."""
    said = {
        "uid": uid or f"uid-{name}",
        "namespace": namespace,
        "creationTimestamp": f"{DAY}{created}Z",
        **meta,
    }
    status: Object = {"phase": "Succeeded" if ended else "Running" if placed else "Pending"}
    if placed:
        status["conditions"] = [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": f"{DAY}{placed}Z"},
        ]
    if ended:
        done = {"exitCode": 0, "startedAt": f"{DAY}{placed}Z", "finishedAt": f"{DAY}{ended}Z"}
        status["containerStatuses"] = [{"name": "main", "state": {"terminated": done}}]
    spec = {"nodeName": where} if placed else {}
    return pod(name, container(limits, {"cpu": "2", "memory": "4Gi"}), meta=said, status=status, **spec)


def machines(heartbeat: str) -> list[Object]:
    """Two nodes with two cards of 8,000 MiB; their last heartbeat says when the dump was made."""
    ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": f"{DAY}{heartbeat}Z"}
    found = []
    for name in ("a", "b"):
        one = node(name, *(card(f"GPU-{name}{n}") for n in range(2)), allocatable={"cpu": "32", "memory": "64Gi"})
        one["status"]["conditions"] = [ready]
        found.append(one)
    return found


def gang(size: int) -> Object:
    return {"dovetail.dev/gang": "train", "dovetail.dev/gang-size": str(size)}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def dumped(name: str, *objects: Object) -> str:
    Path(name).write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))
    return name


def taken(run: Run, *words: str, code: int = 0) -> tuple[Trace, Object]:
    """The trace that is read back, and import.json."""
    done = run("trace", "import", *words, "-o", "out", "--force")
    assert done.exit_code == code, done.output
    trace, problems = load_trace(Path("out/nodes.csv"), Path("out/jobs.csv"))
    assert problems == []
    return trace, json.loads(Path("out/import.json").read_text())


def jobs_of(trace: Trace) -> dict[str, Job]:
    return {job.name: job for job in trace.jobs}


def whys(details: Object, key: str = "leftOut") -> dict[str, list[str]]:
    return {one["why"]: one["objects"] for one in details[key]}


EARLY = [
    lived("done", WHOLE, "10:00:00", "10:01:00", "10:31:00"),
    lived("half", HALF, "10:10:00", "10:10:30"),
    lived("waits", WHOLE, "10:20:00"),
    lived("vanishes", WHOLE, "10:30:00", "10:30:00", where="b"),
    *(lived(f"train-{n}", WHOLE, f"10:4{n}:00", "10:50:00", annotations=gang(2)) for n in range(2)),
]
LATE = [
    lived("half", HALF, "10:10:00", "10:10:30", "12:00:30"),
    *(lived(f"train-{n}", WHOLE, f"10:4{n}:00", "10:50:00", annotations=gang(2)) for n in range(2)),
    lived("later", WHOLE, "12:30:00", "12:30:00", "12:40:00", where="b", namespace="web"),
]


def two_dumps() -> tuple[str, ...]:
    dumped("monday.json", *machines("11:00:00"), *EARLY)
    dumped("tuesday.json", *machines("13:00:00"), *LATE)
    return "-f", "monday.json", "-f", "tuesday.json"


def test_dumps_of_two_times_are_one_history(run: Run, folder: Path) -> None:
    trace, details = taken(run, *two_dumps())
    assert [(one.name, one.gpus, one.gpu_memory_mib, one.cpu_milli, one.memory_mib) for one in trace.machines] == [
        ("a", 2, 8000, 32_000, 64 * 1024),
        ("b", 2, 8000, 32_000, 64 * 1024),
    ]
    jobs = jobs_of(trace)
    assert {name: (job.arrival, job.duration) for name, job in jobs.items()} == {
        "ml/done": (0, 30 * 60),  # from 10:01 to 10:31
        "ml/half": (10 * 60, 110 * 60),  # from 10:10:30 to 12:00:30: the second dump says when it ended
        "ml/vanishes": (30 * 60, 30 * 60),  # last seen at 11:00
        "ml/train": (41 * 60, 130 * 60),  # its second member came at 10:41; from 10:50 to 13:00, when it was last seen
        "web/later": (150 * 60, 10 * 60),
    }
    assert (jobs["ml/done"].gpus, jobs["ml/done"].gpu_milli, jobs["ml/done"].gpu_memory_mib) == (1, 1000, 0)
    assert (jobs["ml/half"].gpus, jobs["ml/half"].gpu_milli, jobs["ml/half"].gpu_memory_mib) == (1, 500, 4000)
    assert (jobs["ml/half"].cpu_milli, jobs["ml/half"].memory_mib) == (2000, 4096)
    assert (jobs["ml/train"].pods, jobs["ml/train"].gpus) == (2, 1)
    assert {job.tenant for job in trace.jobs} == {"ml", "web"}
    assert details["begin"] == "2026-11-10T10:00:00.000Z"
    assert details["unfinished"] == ["ml/train"]
    assert whys(details) == {"ended before it got a node": ["ml/waits"]}
    assert whys(details, "remarks") == {"missing in a later dump: it ends when it was last seen": ["ml/vanishes"]}


def test_the_trace_is_replayed_as_it_is(run: Run, folder: Path) -> None:
    taken(run, *two_dumps())
    files = ("--nodes", "out/nodes.csv", "--pods", "out/jobs.csv", "--mode", "time", "--policy", "binpack/binpack")
    result = json.loads(run("replay", *files, "-o", "json").stdout)
    # Five jobs on four cards, and nobody waits: when the gang of two comes at 10:41, `done` has ended at 10:30, so that
    # `half` and `vanishes` have one card each. The last to end is the gang, at 41 + 130 minutes.
    assert (result["jobs"], result["finished"], result["never_placed"]) == (5, 5, 0)
    assert (result["makespan"], result["delays"]["longest"]) == (171 * 60, 0)


@pytest.mark.parametrize(
    ("running", "expected"), [("until-now", 130 * 60), ("forever", None), ("skip", "left out")], ids=str
)
def test_pods_that_had_not_ended(run: Run, folder: Path, running: str, expected: object) -> None:
    trace, details = taken(run, *two_dumps(), "--running", running)
    if expected == "left out":
        assert "ml/train" not in jobs_of(trace)
        assert whys(details)["had not ended (--running skip)"] == ["ml/train-0", "ml/train-1"]
    else:
        assert jobs_of(trace)["ml/train"].duration == expected


def test_a_pod_that_waits_to_the_end_wants_its_gpu_until_then(run: Run, folder: Path) -> None:
    dumped("now.json", *machines("11:00:00"), lived("waits", WHOLE, "10:20:00"))
    trace, details = taken(run, "-f", "now.json")
    assert [(job.name, job.duration) for job in trace.jobs] == [("ml/waits", 40 * 60)]
    assert details["unfinished"] == ["ml/waits"]


def test_a_namespace_of_which_a_dump_has_no_pod_is_not_in_that_dump(run: Run, folder: Path) -> None:
    dumped("nodes.json", *machines("11:00:00"))
    dumped("ml.json", lived("runs", WHOLE, "10:00:00", "10:00:00"))
    dumped("web.json", lived("other", WHOLE, "10:30:00", "10:30:00", namespace="web"))
    _, details = taken(run, "-f", "nodes.json", "-f", "ml.json", "-f", "web.json")
    assert details["unfinished"] == ["ml/runs", "web/other"]
    assert whys(details, "remarks") == {}


def test_a_snapshot_has_the_pods_of_all_namespaces(run: Run, folder: Path) -> None:
    dumped("early.json", *machines("11:00:00"), lived("ran", WHOLE, "10:00:00", "10:00:00"))
    marker = {"apiVersion": "dovetail.dev/v1", "kind": "Snapshot", "metadata": {"name": "cluster"}}
    other = lived("other", WHOLE, "10:30:00", "10:30:00", namespace="web")
    dumped("late.json", {**marker, "taken": f"{DAY}13:00:00Z"}, *machines("12:59:00"), other)
    trace, details = taken(run, "-f", "early.json", "-f", "late.json")
    assert {name: job.duration for name, job in jobs_of(trace).items()} == {
        "ml/ran": 60 * 60,  # last seen at 11:00; the snapshot of 13:00 has no pod of its namespace
        "web/other": 150 * 60,
    }
    assert details["unfinished"] == ["web/other"]


def test_pods_of_one_name_are_different_jobs(run: Run, folder: Path) -> None:
    pods = [
        lived("db-0", WHOLE, "10:00:00", "10:00:00", "10:10:00", uid="one"),
        lived("db-0", WHOLE, "10:20:00", "10:20:00", "10:40:00", uid="two"),
    ]
    dumped("now.json", *machines("11:00:00"), *pods)
    trace, _ = taken(run, "-f", "now.json")
    assert {job.name: job.duration for job in trace.jobs} == {"ml/db-0": 600, "ml/db-0:2": 1200}


def test_a_gang_that_was_made_again_is_two_gangs_and_more_members_than_it_needs_are_jobs(
    run: Run, folder: Path
) -> None:
    first = [lived(f"w-{n}", WHOLE, "10:00:00", "10:00:00", "10:10:00", uid=f"f{n}", annotations=gang(2)) for n in "01"]
    again = [
        lived(f"w-{n}", WHOLE, "10:15:00", "10:15:00", "10:45:00", uid=f"s{n}", annotations=gang(2)) for n in "012"
    ]
    dumped("now.json", *machines("11:00:00"), *first, *again)
    trace, details = taken(run, "-f", "now.json")
    assert {job.name: (job.pods, job.duration) for job in trace.jobs} == {
        "ml/train": (2, 600),
        "ml/train:2": (2, 1800),
        "ml/w-2": (1, 1800),
    }
    assert whys(details, "remarks") == {"member of a gang beyond its minimum: a job of its own": ["ml/w-2"]}


def test_daemons_are_taken_off_their_machine_and_static_pods_are_named(run: Run, folder: Path) -> None:
    daemon = [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "controller": True}]
    static = [{"apiVersion": "v1", "kind": "Node", "name": "a", "controller": True}]
    pods = [
        lived("agent-x", {}, "09:00:00", "09:00:00", ownerReferences=daemon),
        lived("etcd-a", {}, "09:00:00", "09:00:00", ownerReferences=static),
        lived("done", WHOLE, "10:00:00", "10:01:00", "10:31:00"),
    ]
    dumped("now.json", *machines("11:00:00"), *pods)
    trace, details = taken(run, "-f", "now.json")
    # The agent asks for 2 cores and 4 GiB of the 32 cores and 64 GiB of `a`.
    assert [(one.cpu_milli, one.memory_mib) for one in trace.machines] == [(30_000, 60 * 1024), (32_000, 64 * 1024)]
    assert [job.name for job in trace.jobs] == ["ml/done"]
    assert whys(details) == {
        "made by a DaemonSet for one node: CPU and memory are taken off the machine": ["ml/agent-x"],
        "made by its node (a static pod), not by a scheduler": ["ml/etcd-a"],
    }


def test_gpu_types_and_node_selectors_become_models(run: Run, folder: Path) -> None:
    nodes = machines("11:00:00")
    nodes.append(node("c", card("GPU-c0", model="NVIDIA L4", memory=4000), labels={"pool": "l4"}))
    by_type = lived("by-type", WHOLE, "10:00:00", "10:00:00", annotations={"nvidia.com/use-gputype": "L4"})
    by_pool = lived("by-pool", WHOLE, "10:00:00", "10:00:00")
    by_pool["spec"]["nodeSelector"] = {"pool": "l4"}
    by_host = lived("by-host", WHOLE, "10:00:00", "10:00:00")
    by_host["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "a"}
    nodes[0]["metadata"]["labels"] = {"kubernetes.io/hostname": "a"}
    percent = {"nvidia.com/gpu": 1, "nvidia.com/gpumem-percentage": 25}
    quarter = lived("quarter", percent, "10:00:00", "10:00:00", where="c")
    dumped("now.json", *nodes, by_type, by_pool, by_host, quarter)
    trace, details = taken(run, "-f", "now.json")
    jobs = jobs_of(trace)
    assert jobs["ml/by-type"].models == jobs["ml/by-pool"].models == ("NVIDIA L4",)
    assert jobs["ml/by-host"].models == ("NVIDIA A100-SXM4-80GB",)  # of `a`; `b` has the same, and is not meant
    assert jobs["ml/quarter"].gpu_memory_mib == 1000  # 25 % of 4,000 MiB
    assert whys(details, "remarks") == {
        "percentage of GPU memory: taken of the GPUs of its node": ["ml/quarter"],
        "rules about nodes (selector, affinity, taints) that GPU models do not say": ["ml/by-host"],
    }


def test_containers_that_want_different_parts_are_left_out_and_named(run: Run, folder: Path) -> None:
    two = lived("two", WHOLE, "10:00:00", "10:00:00")
    two["spec"]["containers"].append(container(HALF, name="side"))
    dumped("now.json", *machines("11:00:00"), two, lived("done", WHOLE, "10:00:00", "10:01:00", "10:31:00"))
    _, details = taken(run, "-f", "now.json")
    why = "its containers ask for different parts of GPUs, or for GPUs of several vendors"
    assert whys(details) == {why: ["ml/two"]}


def test_nothing_of_the_names_is_in_an_anonymous_trace(run: Run, folder: Path) -> None:
    trace, _ = taken(run, *two_dumps(), "--anonymize")
    text = "".join(Path(f"out/{name}").read_text() for name in ("jobs.csv", "nodes.csv", "import.json"))
    for name in ("ml", "web", "done", "half", "train", "later", "vanishes", "waits"):
        assert f"{name}/" not in text
        assert f"/{name}" not in text
    assert {job.tenant for job in trace.jobs} == {"ns-1", "ns-2"}
    plain, _ = taken(run, *two_dumps())
    shapes = [(job.arrival, job.duration, job.gpus, job.pods) for job in plain.jobs]
    assert [(job.arrival, job.duration, job.gpus, job.pods) for job in trace.jobs] == shapes


def test_the_same_dumps_give_the_same_bytes_in_any_order(run: Run, folder: Path) -> None:
    words = two_dumps()
    files = ("out/jobs.csv", "out/nodes.csv", "out/import.json")
    taken(run, *words)
    first = [Path(name).read_bytes() for name in files]
    taken(run, "-f", "tuesday.json", "-f", "monday.json")
    assert [Path(name).read_bytes() for name in files] == first


def test_the_lines_say_what_was_left_out(run: Run, folder: Path) -> None:
    done = run("trace", "import", *two_dumps(), "-o", "out")
    assert "running   1 job had not ended: these end when they were last seen" in done.stdout
    assert "left out  1 × ended before it got a node: ml/waits" in done.stdout
    with Path("out/jobs.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 5


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "no history to import: name dumps of nodes and pods with -f, or say --live, or --journal DIR"),
        (("-f", "pods.json"), "there is no Node in it, and a trace needs machines"),
        (("-f", "nodes.json"), "there is no pod that a trace can have"),
        (("-f", "pods.json", "--journal", "j"), "--journal is a history of its own"),
        (("--journal", "j"), "j"),
    ],
)
def test_errors_name_the_fix(run: Run, folder: Path, words: tuple[str, ...], said: str) -> None:
    dumped("nodes.json", *machines("11:00:00"))
    dumped("pods.json", *EARLY)
    done = run("trace", "import", *words, "-o", "out")
    assert done.exit_code == 2
    assert said in done.stderr
    assert not Path("out").exists()


def test_files_are_not_overwritten(run: Run, folder: Path) -> None:
    words = two_dumps()
    assert run("trace", "import", *words, "-o", "out").exit_code == 0
    done = run("trace", "import", *words, "-o", "out")
    assert done.exit_code == 2
    assert "out/jobs.csv: is there already; add --force" in done.stderr
