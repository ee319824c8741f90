"""A folder of published curves: which traces are taken, which are named, and what is wrong with a table."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from dovetail.sim.published import ALLOCATED_FILE, COLUMNS, FRAGMENTED_FILE, experiments
from dovetail.sim.trace import TraceError

PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,1000,1024,1,1000\n"
NODES = "sn,cpu_milli,memory_mib,gpu,model\nn,64000,262144,{gpus},T4\n"
HEADER = ",".join(["workload", "sc_policy", "tune", "seed", *map(str, COLUMNS)])


def row(trace: str, seed: int = 42) -> str:
    return ",".join([f"openb_pod_list_{trace}", "06-FGD", "1.3", str(seed), *(["0.5"] * len(COLUMNS))])


class Folder:
    """As `make repro` expects it; every table of curves has a row for each of the traces."""

    def __init__(self, path: Path, *traces: str) -> None:
        self.path = path
        (path / "expected").mkdir()
        for name in (ALLOCATED_FILE, FRAGMENTED_FILE):
            self.write(name, "\n".join([HEADER, *map(row, traces)]) + "\n")
        self.write("openb_node_list_gpu_node.csv", NODES.format(gpus=2))

    def write(self, name: str, text: str) -> None:
        data = text.encode()
        (self.path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)

    def order(self, name: str) -> None:
        np.savez(self.path / name, arrivals_42=np.array([0]), nodes_42=np.array([0]))

    def traces(self) -> list[str]:
        return [one.trace.name for one in experiments(self.path)[0]]


@pytest.mark.parametrize(
    ("pods", "order"),
    [
        ("openb_pod_list_x.csv", "openb_order_x.npz"),
        ("openb_pod_list_x.csv.gz", "openb_order_x.npz"),
        ("x.csv", "x.npz"),
        ("x.csv.gz", "openb_order_x.npz"),
        ("openb_pod_list_x.csv", "x.npz"),
    ],
)
def test_pods_and_order_find_each_other_by_name(tmp_path: Path, pods: str, order: str) -> None:
    folder = Folder(tmp_path, "x")
    folder.write(pods, PODS)
    folder.order(order)
    found, lacking = experiments(tmp_path)
    assert [(one.trace.name, list(one.curves)) for one in found] == [("x", [("fgd", 42)])]
    assert lacking == []


def test_jobs_of_our_own_format_are_taken_with_their_order(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "mine")
    folder.write("mine.csv", "name,gpus\na,1\n")
    folder.write("notes.csv", "who,what\nme,nothing\n")
    folder.order("mine.npz")
    found, lacking = experiments(tmp_path)
    assert [one.trace.name for one in found] == ["mine"]
    assert lacking == []


def test_a_list_beside_its_own_gz_counts_once(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "x")
    for name in ("openb_pod_list_x.csv", "openb_pod_list_x.csv.gz", "openb_node_list_gpu_node.csv.gz"):
        folder.write(name, NODES.format(gpus=2) if "node" in name else PODS)
    folder.order("openb_order_x.npz")
    assert folder.traces() == ["x"]


def test_pods_that_lack_something_are_named(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "x", "lone")
    for name in ("x", "lone", "secret"):
        folder.write(f"openb_pod_list_{name}.csv", PODS)
    folder.write("other.csv", PODS)
    for name in ("x", "secret"):
        folder.order(f"openb_order_{name}.npz")
    found, lacking = experiments(tmp_path)
    assert [one.trace.name for one in found] == ["x"]
    lone, secret, other = lacking
    assert "openb_pod_list_lone.csv: has no order and is left aside; call it openb_order_lone.npz" in lone
    assert "openb_pod_list_secret.csv: nothing is published about it" in secret
    assert "other.csv: has no order" in other


def test_the_machines_are_those_with_gpus_or_the_only_ones(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "x")
    folder.write("openb_pod_list_x.csv", PODS)
    folder.order("openb_order_x.npz")
    folder.write("openb_node_list_all_node.csv", NODES.format(gpus=7))
    assert experiments(tmp_path)[0][0].trace.gpu_capacity_milli == 2000
    (tmp_path / "openb_node_list_gpu_node.csv").unlink()
    assert experiments(tmp_path)[0][0].trace.gpu_capacity_milli == 7000
    folder.write("openb_node_list.csv", NODES.format(gpus=9))
    with pytest.raises(TraceError, match=r"which machines\? there are openb_node_list\.csv, openb_node_list_all_node"):
        experiments(tmp_path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        ("\n", ":1: the header lacks workload, sc_policy, tune, seed, 0, …"),
        (HEADER.replace("sc_policy", "policy") + "\n", ":1: the header lacks sc_policy; it needs workload"),
        (HEADER.removesuffix(",130") + "\n", ":1: the header lacks 130"),
        (f"{HEADER}\n{row('x')}\n{row('x').removesuffix(',0.5')}\n", ":3: has 134 cells, the header has 135"),
        (f"{HEADER}\nx,06-FGD\n", ":2: has 2 cells"),
        (f"{HEADER}\n{row('x').replace('1.3', 'much')}\n", ":2: openb_pod_list_x, 06-FGD: could not convert"),
        (f"{HEADER}\n\n{row('x').replace('0.5', '?', 1)}\n", ":3: openb_pod_list_x, 06-FGD: could not convert"),
        (f'{HEADER}\n"x', "cannot be read"),
    ],
)
@pytest.mark.parametrize("table", [ALLOCATED_FILE, FRAGMENTED_FILE])
def test_a_broken_table_names_file_and_line(tmp_path: Path, table: str, text: str, says: str) -> None:
    folder = Folder(tmp_path, "x")
    folder.write("openb_pod_list_x.csv", PODS)
    folder.order("openb_order_x.npz")
    folder.write(table, text)
    with pytest.raises(TraceError) as caught:
        experiments(tmp_path)
    assert str(tmp_path / table) in str(caught.value)
    assert says in str(caught.value)


def test_nothing_to_compare_says_what_each_lacks(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "x")
    folder.write("openb_pod_list_x.csv", PODS)
    with pytest.raises(TraceError, match=r"(?s)no trace has pods, an order and published curves.*x\.csv: has no order"):
        experiments(tmp_path)
