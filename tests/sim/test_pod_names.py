"""Pods of one replay have different names, whatever the jobs are called; and somebody comes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.sim.inflation import replay
from dovetail.sim.load import load_trace
from dovetail.sim.orders import Order, Orders, draw_order
from dovetail.sim.pod_names import check_pod_names, pod_names
from dovetail.sim.trace import Job, Machine, Trace, TraceError
from tests.properties import with_examples

MACHINE = Machine("m", 64_000, 65_536, 8)


def whole(name: str, pods: int = 1, gpus: int = 1) -> Job:
    return Job(name, gpus=gpus, gpu_milli=1000, pods=pods)


def arriving(*names: str, jobs: tuple[Job, ...]) -> list[str]:
    """What they are called when they arrive in this order."""
    trace = Trace("t", (MACHINE,), jobs)
    by_name = sorted(job.name for job in jobs)
    order = Order(0, np.array([by_name.index(name) for name in names]), np.array([0]))
    return [job.name for job in order.jobs(trace)]


def test_a_copy_passes_over_a_name_that_a_job_has() -> None:
    jobs = (whole("b"), whole("b-copy-2"))
    assert arriving("b", "b", "b", jobs=jobs) == ["b", "b-copy-3", "b-copy-4"]
    assert arriving("b-copy-2", "b-copy-2", jobs=jobs) == ["b-copy-2", "b-copy-2-copy-2"]


def test_a_copy_of_a_gang_passes_over_a_name_that_one_of_its_pods_would_share() -> None:
    jobs = (whole("a", pods=2), whole("a-copy-2.1"))
    assert arriving("a", "a", jobs=jobs) == ["a", "a-copy-3"]


def test_a_job_that_is_called_like_a_copy_can_be_replayed() -> None:
    trace = Trace("t", (MACHINE,), (whole("b"), whole("b-copy-2")))
    found = replay(trace, draw_order(trace, 42), "best-fit", mode="interpreted")
    assert (found.decisions, found.failed) == (10, 2)  # 10 ≤ 1.3 × 8


names = st.sampled_from(["a", "b", "a-copy-2", "a-copy-3", "b-copy-2", "a.0", "b.1", "a-copy-2.1", "a-copy-2-copy-2"])


@with_examples(100)
@given(st.dictionaries(names, st.integers(1, 3), min_size=1), st.lists(st.integers(0, 8), max_size=30))
def test_no_two_pods_have_one_name(sizes: dict[str, int], picks: list[int]) -> None:
    jobs = tuple(whole(name, pods) for name, pods in sizes.items())
    try:
        check_pod_names(jobs, "jobs.csv")
    except TraceError:
        return
    order = Order(0, np.array([pick % len(jobs) for pick in picks], np.int64), np.array([0]))
    pods = [pod for job in order.jobs(Trace("t", (MACHINE,), jobs)) for pod in pod_names(job)]
    assert len(set(pods)) == len(pods)


def test_a_job_that_is_called_like_a_pod_of_a_gang_is_refused(tmp_path: Path) -> None:
    nodes, jobs = tmp_path / "nodes.csv", tmp_path / "jobs.csv"
    nodes.write_text("name,cpu_milli,memory_mib,gpus\nm,64000,65536,8\n", encoding="utf-8")
    jobs.write_text("name,gpus,pods\na,1,2\na.0,1,\n", encoding="utf-8")
    with pytest.raises(TraceError, match=r"jobs\.csv: job 'a\.0' is called like a pod of job 'a', whose 2 pods"):
        load_trace(nodes, jobs)
    jobs.write_text("name,gpus,pods\na,1,2\na.2,1,\na.0,1,2\n", encoding="utf-8")
    assert len(load_trace(nodes, jobs)[0].jobs) == 3  # a.0 and a.1, a.2, a.0.0 and a.0.1


def test_jobs_that_all_ask_for_too_much_at_once_are_said() -> None:
    machine = Machine("m", 64_000, 65_536, 3)
    trace = Trace("huge", (machine,), (whole("j", gpus=4),))
    with pytest.raises(TraceError, match=r"huge: .* 1\.3 times the 3 GPUs, and none is left: .*; raise --ratio"):
        draw_order(trace, 42)  # 4 > 1.3 × 3
    assert len(draw_order(trace, 42, ratio=1.4).arrivals) == 1  # 4 ≤ 1.4 × 3


def test_a_published_order_in_which_nobody_comes_is_said(tmp_path: Path) -> None:
    path = tmp_path / "orders.npz"
    np.savez(path, arrivals_42=np.array([], np.int32), nodes_42=np.array([0]))
    with pytest.raises(TraceError, match="arrivals_42 is empty"):
        Orders.open(path).order(42, Trace("t", (MACHINE,), (whole("a"),)))
