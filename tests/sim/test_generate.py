"""Generated workloads keep to their parameters, fit their clusters, and are the same everywhere."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from dataclasses import fields
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.sim.arrivals import HOURLY, Rhythm
from dovetail.sim.chance import Chance, Weighted, exp, log
from dovetail.sim.clusters import parse_cluster
from dovetail.sim.generate import generate
from dovetail.sim.gpu_models import GPU_MODELS
from dovetail.sim.jobs_file import read_jobs, read_machines, write_jobs, write_machines
from dovetail.sim.summary import summarise
from dovetail.sim.trace import Job, Machine, Trace, TraceError
from dovetail.sim.workload import DEFAULT_CLUSTER, RANGES, SHARE_FIELDS, WorkloadParameters
from tests.properties import with_examples

CLUSTER = parse_cluster(DEFAULT_CLUSTER)


def made(cluster: str = DEFAULT_CLUSTER, **parameters: float) -> Trace:
    return generate(WorkloadParameters(**parameters), parse_cluster(cluster))  # type: ignore[arg-type]


def fits(job: Job, machine: Machine) -> bool:
    return (
        machine.cpu_milli >= job.cpu_milli
        and machine.memory_mib >= job.memory_mib
        and machine.gpus >= job.gpus
        and machine.gpu_memory_mib >= job.gpu_memory_mib
        and (not job.models or machine.model in job.models)
    )


def room(job: Job, machine: Machine) -> int:
    """Pods of a whole-GPU job that an empty machine holds."""
    if not fits(job, machine):
        return 0
    ratios = [(machine.cpu_milli, job.cpu_milli), (machine.memory_mib, job.memory_mib), (machine.gpus, job.gpus)]
    return min(have // want for have, want in ratios if want)


clusters = st.lists(
    st.tuples(st.integers(1, 5), st.sampled_from(sorted(GPU_MODELS)), st.integers(1, 8)), min_size=1, max_size=3
).map(lambda parts: ",".join(f"{count}x{model}:{gpus}" for count, model, gpus in parts))
portions = st.floats(0, 0.33)


@with_examples(100)
@given(clusters, st.integers(0, 2**32 - 1), portions, portions, portions)
def test_every_job_fits_some_machine_and_every_gang_the_cluster(
    cluster: str, seed: int, cpu_only: float, share: float, multi_gpu: float
) -> None:
    trace = made(
        cluster, jobs=40, seed=seed, cpu_only=cpu_only, share=share, multi_gpu=multi_gpu, gangs=0.5, constrained=0.5
    )
    assert len(trace.jobs) == 40
    for job in trace.jobs:
        assert any(fits(job, machine) for machine in trace.machines), job
        if job.pods > 1:
            assert sum(room(job, machine) for machine in trace.machines) >= job.pods
        assert 0 <= job.gpu_milli <= 1000
    assert [job.arrival for job in trace.jobs] == sorted(job.arrival for job in trace.jobs)
    assert sorted(job.name for job in trace.jobs) == [job.name for job in trace.jobs]


def test_jobs_that_nobody_can_take_are_made_when_asked_for() -> None:
    trace = made(jobs=1000, seed=3, impossible=0.2)
    hopeless = [job for job in trace.jobs if not any(fits(job, machine) for machine in trace.machines)]
    assert 120 < len(hopeless) < 300  # about 200


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_the_mix_is_as_asked(seed: int) -> None:
    trace = made(jobs=4000, seed=seed, cpu_only=0.2, share=0.3, multi_gpu=0.1, gangs=0.1, constrained=0.25, urgent=0.1)
    jobs = trace.jobs
    gpu_jobs = [job for job in jobs if job.gpus]
    shares = [job for job in gpu_jobs if job.gpu_milli < 1000]
    whole = [job for job in gpu_jobs if job.gpu_milli == 1000]
    parts = {
        "cpu only": (4000 - len(gpu_jobs)) / 4000,
        "share": len(shares) / 4000,
        "several": sum(job.gpus > 1 for job in jobs) / 4000,
        "gangs": sum(job.pods > 1 for job in whole) / len(whole),
        "constrained": sum(bool(job.models) for job in gpu_jobs) / len(gpu_jobs),
        "memory": sum(bool(job.gpu_memory_mib) for job in shares) / len(shares),
        "urgent": sum(job.priority == 100 for job in jobs) / 4000,
    }
    asked = {
        "cpu only": 0.2,
        "share": 0.3,
        "several": 0.1,
        "gangs": 0.1,
        "constrained": 0.25,
        "memory": 0.5,
        "urgent": 0.1,
    }
    assert parts == {name: pytest.approx(part, abs=0.05) for name, part in asked.items()}
    assert not any(job.gpu_memory_mib for job in whole)


@pytest.mark.parametrize("load", [0.5, 1.0, 3.0])
def test_the_load_is_as_asked(load: float) -> None:
    found = summarise(made(jobs=3000, seed=5, load=load))
    assert found.load == pytest.approx(load, rel=0.02)


def test_durations_are_heavy_tailed_around_the_median() -> None:
    seconds = sorted(job.duration or 0.0 for job in made(jobs=4000, seed=2, median_seconds=600, bursts=0).jobs)
    assert seconds[2000] == pytest.approx(600, rel=0.15)
    assert seconds[3800] > 10 * seconds[2000]  # the logarithm deviates by 1.9: exp(1.645 × 1.9) = 22.8
    assert seconds[-1] <= 86_400
    assert {job.duration for job in made(jobs=50, sigma=0, bursts=0).jobs} == {1800.0}


def test_days_are_busier_than_nights() -> None:
    jobs = made("1xT4:4", jobs=3000, seed=1, rhythm=0.8, bursts=0).jobs
    days = int(jobs[-1].arrival // 86_400)
    assert days > 20
    by_hour = Counter(int(job.arrival % 86_400 // 3600) for job in jobs if job.arrival < days * 86_400)
    assert by_hour[15] > 3 * by_hour[3]
    even = Counter(int(job.arrival % 86_400 // 3600) for job in made("1xT4:4", jobs=3000, rhythm=0, bursts=0).jobs)
    assert max(even.values()) < 1.6 * min(even.values())


def test_bursts_are_equal_jobs_close_together() -> None:
    def followers(**parameters: float) -> int:
        jobs = made("8xT4:4", jobs=2000, seed=4, **parameters).jobs
        return sum(
            late.arrival - early.arrival < 15 and (early.cpu_milli, early.tenant) == (late.cpu_milli, late.tenant)
            for early, late in pairwise(jobs)
        )

    assert followers(bursts=0.5) > 2 * followers(bursts=0)


def test_tenants_differ_in_size_and_taste() -> None:
    trace = made(jobs=4000, seed=6, tenants=5)
    counts = summarise(trace).tenants
    assert set(counts) == {"serving", "research", "training", "data", "serving-2"}
    assert next(iter(counts)) == "serving"

    def part(tenant: str, gpus: int) -> float:
        return sum(job.gpus == gpus for job in trace.jobs if job.tenant == tenant) / counts[tenant]

    assert part("data", 0) > 3 * part("training", 0)
    assert {job.tenant for job in made(jobs=50, tenants=1).jobs} == {"serving"}


def test_gpu_memory_of_a_share_fits_its_smallest_gpu() -> None:
    trace = made("2xT4:4,2xA10:4", jobs=500, gpu_memory=1, share=0.8)
    asked = [job.gpu_memory_mib for job in trace.jobs if job.gpu_memory_mib]
    assert len(asked) > 300
    assert all(256 <= amount <= 23_028 and amount % 256 == 0 for amount in asked)
    assert all(job.gpu_memory_mib <= 15_360 for job in trace.jobs if job.models != ("A10",))


def test_a_cluster_without_gpus_takes_jobs_without() -> None:
    trace = made("3xCPU", jobs=20, cpu_only=1, share=0, multi_gpu=0)
    assert not any(job.gpus for job in trace.jobs)
    with pytest.raises(TraceError, match="no GPU"):
        made("3xCPU", jobs=20)
    with pytest.raises(TraceError, match="no machine"):
        generate(WorkloadParameters(), ())


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    """On any machine, and tomorrow. Whoever changes the generator changes the sums, and says so in the changelog."""
    trace = made(jobs=2000, seed=7)
    write_jobs(tmp_path / "jobs.csv", trace.jobs)
    write_machines(tmp_path / "nodes.csv", trace.machines)
    assert read_jobs(tmp_path / "jobs.csv") == (list(trace.jobs), [])
    assert read_machines(tmp_path / "nodes.csv") == (list(trace.machines), [])
    sums = [hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()[:16] for name in ("jobs.csv", "nodes.csv")]
    assert sums == ["b51ef0c814698743", "a5bd7cfa2e266dda"]
    assert made(jobs=2000, seed=8).jobs != trace.jobs


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "'' is not a kind of machine; write COUNTxMODEL:GPUS, such as"),
        ("16xT4:4,", "'' is not a kind of machine"),
        ("T4", "'T4' is not a kind of machine"),
        ("-1xT4", "'-1xT4' is not a kind of machine"),
        ("1xT4:x", "'1xT4:x' is not a kind"),
        ("0xT4", "'0xT4' has no machine"),
        ("1xT4:0", "0 GPUs per machine; take 1 to 1,024"),
        ("1xT4:9999", "9999 GPUs per machine"),
        ("1xA100:8", "'A100' is no model known here; did you mean A100-PCIE-40GB or A100-SXM4-40GB or A100-SXM4-80GB?"),
        ("1xT5", "did you mean T4?"),
        ("1xCPU:4", "machines without GPU are 1xCPU"),
        ("999999xT4", "more than 100,000 machines"),
        ("9" * 5000 + "xT4", "is not a kind of machine"),
    ],
)
def test_a_cluster_that_cannot_be_read(text: str, says: str) -> None:
    with pytest.raises(TraceError) as caught:
        parse_cluster(text)
    assert says in str(caught.value)


def test_a_cluster_in_a_line() -> None:
    machines = parse_cluster("2xT4:2, 1xCPU, 1xT4")
    assert [(machine.name, machine.gpus) for machine in machines] == [
        ("t4-000", 2),
        ("t4-001", 2),
        ("cpu-000", 0),
        ("t4-002", 4),  # as many as usual
    ]
    assert machines[0] == Machine("t4-000", 48_000, 2 * 96 * 1024, 2, "T4", 15_360)
    assert len(CLUSTER) == 64


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"share": 1.5}, "share: 1.5 is not a share from 0 to 1"),
        ({"share": 0.6, "cpu_only": 0.6}, r"cpu_only \+ share \+ multi_gpu: 1.21 is not at most 1"),
        ({"jobs": 0}, "jobs: 0 is not a number from 1"),
        ({"load": math.nan}, "load: nan is not a number"),
        ({"seed": -1}, "seed: -1"),
        ({"burst_size": 1}, "burst_size: 1 is not"),
    ],
)
def test_parameters_are_checked(parameters: dict[str, float], says: str) -> None:
    with pytest.raises(TraceError, match=says):
        made(DEFAULT_CLUSTER, **parameters)


def test_every_parameter_has_its_range() -> None:
    assert {field.name for field in fields(WorkloadParameters)} == SHARE_FIELDS | set(RANGES)


@with_examples(100)
@given(st.floats(1e-300, 1e300))
def test_log_is_the_logarithm(x: float) -> None:
    assert log(x) == pytest.approx(math.log(x), rel=1e-14, abs=1e-15)


@with_examples(100)
@given(st.floats(-700, 700))
def test_exp_is_the_exponential(x: float) -> None:
    assert exp(x) == pytest.approx(math.exp(x), rel=1e-12)


@with_examples(100)
@given(st.floats(0, 1), st.floats(0, 1e7))
def test_the_rhythm_can_be_undone(strength: float, seconds: float) -> None:
    rhythm = Rhythm(strength)
    assert rhythm.amount(rhythm.moment(seconds)) == pytest.approx(seconds, abs=1e-3)
    assert sum(HOURLY) == 0


def test_draws_are_what_they_are_called() -> None:
    chance = Chance(1)
    normals = [chance.normal() for _ in range(5000)]
    assert sum(normals) / 5000 == pytest.approx(0, abs=0.05)
    assert sum(x * x for x in normals) / 5000 == pytest.approx(1, abs=0.1)
    assert sum(chance.exponential(10) for _ in range(5000)) / 5000 == pytest.approx(10, rel=0.1)
    assert sorted(chance.permutation(50)) == list(range(50))
    drawn = Counter(Weighted((("a", 3.0), ("never", 0.0), ("b", 1.0))).draw(chance) for _ in range(4000))
    assert drawn["never"] == 0
    assert drawn["a"] / drawn["b"] == pytest.approx(3, rel=0.2)
