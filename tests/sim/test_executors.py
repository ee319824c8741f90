"""The same comparison finds the same in this process, on dask and on ray; what is not there is said."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from dovetail.sim.compare import RunResults, run_all
from dovetail.sim.executors import CannotRun, Here, ProcessPool, executor_on
from tests.sim.small_runs import found, quiet, small_plan, timeless


def found_on(where: str) -> list[object]:
    findings = RunResults(small_plan())
    run_all(findings, quiet, on=where, workers=1)
    return [timeless(result) for result in findings.results]


def found_here() -> list[object]:
    return [timeless(result) for result in found(small_plan(), None).results]


@pytest.fixture
def dask_address() -> Iterator[str]:
    """A cluster of one worker on the loopback, which ends with the test."""
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=1, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address=None
    ) as cluster:
        yield cluster.scheduler_address.replace("tcp://", "dask://")


@pytest.mark.slow
def test_dask_finds_the_same(dask_address: str) -> None:
    assert found_on(dask_address) == found_here()


@pytest.mark.slow
def test_ray_finds_the_same() -> None:
    if find_spec("ray") is None:
        pytest.skip("ray is not installed (some 200 MB): pip install 'dovetail[ray]' to run this test")
    assert found_on("ray") == found_here()


@pytest.mark.parametrize(
    ("where", "module", "says"),
    [
        ("dask://127.0.0.1:1", "distributed", r"pip install 'dovetail\[dask\]'"),
        ("ray", "ray", r"pip install 'dovetail\[ray\]'"),
        ("ray://127.0.0.1:1", "ray", r"pip install 'dovetail\[ray\]'"),
    ],
)
def test_a_missing_extra_is_named(where: str, module: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(CannotRun, match=says):
        executor_on(where)


@pytest.mark.parametrize("where", ["", "dask", "dask://", "ray://", "slurm://x:1", "head:8786"])
def test_nowhere_is_refused(where: str) -> None:
    with pytest.raises(CannotRun, match=r"is nowhere to run; write ray, ray://HOST:PORT or dask://HOST:PORT"):
        executor_on(where)


def test_no_more_processes_than_runs() -> None:
    assert isinstance(executor_on(None, workers=8, tasks=1), Here)
    assert isinstance(executor_on(None, workers=1, tasks=8), Here)
    assert isinstance(executor_on(None, workers=2, tasks=8), ProcessPool)
