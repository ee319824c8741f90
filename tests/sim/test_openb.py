"""The openb trace as published, and orders of arrival: read, or drawn by the same protocol."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.sim.load import by_arrival, load_trace
from dovetail.sim.openb import is_node_list, is_pod_list, read_nodes, read_pods
from dovetail.sim.orders import Orders, draw_order
from dovetail.sim.trace import Job, Machine, Trace, TraceError
from tests.properties import with_examples

PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
SHORT_PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\n"
NODES = "sn,cpu_milli,memory_mib,gpu,model\n"
File = Callable[[str, str], Path]


@pytest.fixture
def file(tmp_path: Path) -> File:
    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def trace(*milli: int, gpus: int = 10) -> Trace:
    """One-GPU jobs j0, j1, … of so many milli, and machines of one GPU."""
    machines = tuple(Machine(f"m{number}", 8000, 8192, 1) for number in range(gpus))
    jobs = tuple(Job(f"j{number}", gpus=1, gpu_milli=each) for number, each in enumerate(milli))
    return Trace("small", machines, jobs)


def test_a_pod_is_a_job(file: File) -> None:
    path = file("pods.csv", PODS + "web,6000,12288,1,460,V100M16|V100M32|V100M16,LS,Running,100,500,110\n")
    [job], problems = read_pods(path)
    assert job == Job(
        "web",
        cpu_milli=6000,
        memory_mib=12288,
        gpus=1,
        gpu_milli=460,
        models=("V100M16", "V100M32", "V100M16"),  # as it stands: people group by it
        arrival=100.0,
        duration=390.0,  # 500 - 110
        tenant="LS",
    )
    assert problems == []


def test_a_pod_that_never_ran_lasts_from_its_creation(file: File) -> None:
    path = file("pods.csv", PODS + "web,6000,12288,1,460,,BE,Pending,100,500,\n")
    assert read_pods(path)[0][0].duration == 400.0


def test_a_pod_without_times_comes_by_position_and_stays(file: File) -> None:
    path = file("pods.csv", SHORT_PODS + "b,1000,1024,1,1000\na,1000,1024,0,0\n")
    jobs, _ = read_pods(path)
    assert [(job.name, job.arrival, job.duration) for job in jobs] == [("a", 1.0, None), ("b", 0.0, None)]


def test_a_node_is_a_machine_whose_gpu_memory_is_known_by_its_model(file: File) -> None:
    path = file("nodes.csv", NODES + "b,64000,262144,2,T4\na,32000,262144,0,\nc,96000,393216,8,G2\nd,1,1,1,XYZ\n")
    machines, _ = read_nodes(path)
    assert [(machine.name, machine.gpus, machine.gpu_memory_mib) for machine in machines] == [
        ("a", 0, 0),
        ("b", 2, 15_360),
        ("c", 8, 32_768),  # anonymous: our guess
        ("d", 1, 32_768),
    ]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (
            "web,6000,12288,1,1460,,LS,Running,1,2,1",
            "pods.csv:3: gpu_milli: '1460' is not a whole number from 0 to 1,000",
        ),
        ("web,6000,12288,1,460,,LS,Running,9,2,9", "pods.csv:3: deletion_time: 2 is before the pod began at 9"),
        ("web,6000,12288,1,460,,LS,Running,-9,2,", "pods.csv:3: creation_time: '-9' is not a number of seconds"),
        ("web,6000,12288,1,460,T4||A10,LS,Running,1,2,1", "pods.csv:3: gpu_spec: 'T4||A10' is not"),
        ("web,6000,12288,0,460,,LS,Running,1,2,1", "pods.csv:3: gpu_milli: 460 of no GPU"),
        ("good,6000,12288,1,460,,LS,Running,1,2,1", "pods.csv:3: name: 'good' was used in line 2"),
        ("web,6000,12288,1", "pods.csv:3: has 4 cells, the header has 11"),
    ],
)
def test_a_broken_pod_is_named_or_skipped(file: File, row: str, says: str) -> None:
    path = file("pods.csv", f"{PODS}good,1,1,0,0,,LS,Running,1,2,1\n{row}\nlast,1,1,0,0,,LS,Running,1,2,1\n")
    with pytest.raises(TraceError) as caught:
        read_pods(path)
    assert says in str(caught.value)
    jobs, problems = read_pods(path, skip_bad=True)
    assert [job.name for job in jobs] == ["good", "last"]
    assert len(problems) == 1
    assert says in str(problems[0])


def test_openb_files_are_known_by_their_header(file: File) -> None:
    pods = file("openb_pod_list_tiny.csv", SHORT_PODS + "p,1000,1024,1,1000\n")
    nodes = file("nodes.csv", NODES + "n,64000,262144,2,T4\n")
    assert is_pod_list(pods)
    assert not is_node_list(pods)
    assert is_node_list(nodes)
    found, _ = load_trace(nodes, pods)
    assert found.name == "tiny"
    assert found.gpu_capacity_milli == 2000


def test_orders_name_copies_and_ties(tmp_path: Path) -> None:
    path = tmp_path / "orders.npz"
    np.savez(path, arrivals_42=np.array([1, 0, 1, 1], np.int32), nodes_42=np.array([1, 0], np.int32))
    small = trace(500, 300, gpus=2)
    order = Orders.open(path).order(42, small)
    assert [job.name for job in order.jobs(small)] == ["j1", "j0", "j1-copy-2", "j1-copy-3"]
    assert [machine.name for machine in order.machines(small)] == ["m1", "m0"]


def test_orders_count_by_name_however_the_trace_is_sorted(tmp_path: Path) -> None:
    path = tmp_path / "orders.npz"
    np.savez(path, arrivals_1=np.array([0, 1]), nodes_1=np.array([0]))
    late_first = Trace("t", (Machine("m", 1, 1),), (Job("b", arrival=1.0), Job("a", arrival=2.0)))
    assert [job.name for job in Orders.open(path).order(1, late_first).jobs(late_first)] == ["a", "b"]


@pytest.mark.parametrize(
    ("arrivals", "nodes", "says"),
    [
        ([0, 2], [0, 1], "arrivals_42[1] is 2, but the trace has 2 jobs (0 to 1)"),
        ([-1], [0, 1], "arrivals_42[0] is -1"),
        ([0.5], [0, 1], "arrivals_42 is not a list of whole numbers"),
        ([0], [0, 2], "nodes_42[1] is 2, but the trace has 2 machines"),
        ([0], [0, 0], "nodes_42 does not name each of the 2 machines once"),
        ([0], [0], "nodes_42 does not name each of the 2 machines once"),
    ],
)
def test_an_order_of_another_trace(tmp_path: Path, arrivals: list[float], nodes: list[int], says: str) -> None:
    path = tmp_path / "orders.npz"
    np.savez(path, arrivals_42=np.array(arrivals), nodes_42=np.array(nodes))
    with pytest.raises(TraceError) as caught:
        Orders.open(path).order(42, trace(500, 300, gpus=2))
    assert says in str(caught.value)


def test_an_order_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "orders.npz"
    with pytest.raises(TraceError, match="there is no such file"):
        Orders.open(path)
    np.savez(path, arrivals_42=np.array([0]), nodes_42=np.array([0]), arrivals_43=np.array([0]), nodes_43=np.array([0]))
    with pytest.raises(TraceError, match="has no order for seed 7; there are 42, 43"):
        Orders.open(path).order(7, trace(500, gpus=1))


@pytest.mark.parametrize("content", [b"", b"garbage", b"PK\x03\x04 and then nothing", b"\x93NUMPY\x01\x00 garbage"])
def test_a_file_that_holds_no_orders(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "orders.npz"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=r"orders\.npz: "):
        Orders.open(path)


def test_other_arrays_are_no_orders(tmp_path: Path) -> None:
    path = tmp_path / "orders.npz"
    np.savez(path, arrivals_x=np.array([0]), nodes_42=np.array([0]))
    with pytest.raises(TraceError, match="holds no orders"):
        Orders.open(path)
    with (tmp_path / "lone.npz").open("wb") as lone:
        np.save(lone, np.array([1]))
    with pytest.raises(TraceError, match="cannot be read as a file of orders"):
        Orders.open(tmp_path / "lone.npz")


@with_examples(100)
@given(st.lists(st.integers(1, 1000), min_size=1, max_size=40), st.integers(1, 40), st.integers(0, 2**32))
def test_a_drawn_order_follows_the_protocol(milli: list[int], gpus: int, seed: int) -> None:
    small = trace(*milli, gpus=gpus)
    order = draw_order(small, seed)
    cap = 1.3 * gpus * 1000
    asked = sum(job.gpu_demand_milli for job in order.jobs(small))
    counts = Counter(order.arrivals.tolist())
    assert asked <= cap
    assert sorted(order.nodes.tolist()) == list(range(gpus))
    if sum(milli) < cap:  # filled up: everybody comes first, copies after them, until the next would be too much
        assert asked > cap - 1000
        assert sorted(order.arrivals.tolist()[: len(milli)]) == list(range(len(milli)))
    else:
        assert max(counts.values(), default=1) == 1
        assert asked > cap - 1000
    assert order.arrivals.tolist() == draw_order(small, seed).arrivals.tolist()


def test_seeds_differ() -> None:
    small = trace(*range(10, 500, 10))
    assert draw_order(small, 1).arrivals.tolist() != draw_order(small, 2).arrivals.tolist()


def test_the_cap_counts_one_gpu_of_a_job() -> None:
    """As in the paper's simulator: a copy of a job of four GPUs counts 1000, not 4000, when the cap is looked at."""
    whole = Trace("t", (Machine("m", 1, 1, 4),), (Job("j", gpus=4, gpu_milli=1000),))
    order = draw_order(whole, 0, ratio=1.3)  # cap 5200: 4000 + 1000 ≤ 5200, then 8000 + 1000 > 5200
    assert len(order.arrivals) == 2


def test_no_demand_needs_no_copies() -> None:
    idle = Trace("t", (Machine("m", 1, 1, 4),), (Job("a"), Job("b", gpus=1)))
    assert sorted(draw_order(idle, 0).arrivals.tolist()) == [0, 1]


def test_endless_copies_are_refused() -> None:
    tiny = Trace("t", tuple(Machine(f"m{n}", 1, 1, 1000) for n in range(100)), (Job("a", gpus=1, gpu_milli=1),))
    with pytest.raises(TraceError, match="copies would be needed"):
        draw_order(tiny, 0)


# The numbers below are those of the published files.


def test_the_default_trace(openb: Path) -> None:
    found, problems = load_trace(openb / "openb_node_list_gpu_node.csv", openb / "openb_pod_list_default.csv")
    assert problems == []
    assert found.name == "default"
    assert len(found.machines) == 1213
    assert found.gpu_capacity_milli == 6_212_000
    assert sum(machine.cpu_milli for machine in found.machines) == 107_018_000
    jobs = found.jobs
    assert len(jobs) == 8152
    assert sum(job.gpu_demand_milli for job in jobs) == 6_086_800
    kinds = Counter("cpu" if not job.gpus else "share" if job.gpu_milli < 1000 else min(job.gpus, 2) for job in jobs)
    assert kinds == {"cpu": 1088, "share": 3078, 1: 3911, 2: 75}
    assert found == by_arrival(found)
    assert all(job.duration is not None for job in jobs)


def test_models_of_gpuspec33(openb: Path) -> None:
    jobs, _ = read_pods(openb / "openb_pod_list_gpuspec33.csv")
    specs = Counter("|".join(job.models) for job in jobs)
    assert specs[""] == 5764
    assert specs["T4"] == 1291
    assert specs["V100M16|V100M32"] == 141


@pytest.mark.parametrize(("name", "pods"), [("default", 8152), ("multigpu50", 9061)])
def test_published_orders(openb: Path, name: str, pods: int) -> None:
    found, _ = load_trace(openb / "openb_node_list_gpu_node.csv", openb / f"openb_pod_list_{name}.csv")
    orders = Orders.open(openb / f"openb_order_{name}.npz")
    assert orders.seeds == tuple(range(42, 52))
    assert len(found.jobs) == pods
    for seed in (42, 51):
        published, drawn = orders.order(seed, found), draw_order(found, seed)
        for order in (published, drawn):
            asked = sum(job.gpu_demand_milli for job in order.jobs(found))
            assert 1.298 < asked / found.gpu_capacity_milli <= 1.3  # 8 GPUs are 0.13 %
        assert len(drawn.arrivals) == pytest.approx(len(published.arrivals), rel=0.05)
