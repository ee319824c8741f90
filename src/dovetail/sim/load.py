"""Reads traces from files in any supported format. The lists of openb are recognised by their headers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dovetail.model.visible import visible
from dovetail.sim import jobs_file, openb
from dovetail.sim.pod_names import check_pod_names
from dovetail.sim.rows import FORMAT_OF_SUFFIX, RowProblem
from dovetail.sim.trace import Job, Machine, Trace

POD_LIST = "openb_pod_list_"


def load_trace(nodes_path: Path, pods_path: Path, skip_bad: bool = False) -> tuple[Trace, list[RowProblem]]:
    """The trace, with jobs in order of arrival, and the problems of the files (only with `skip_bad`).

    Raises TraceError with file, line and field if a file is wrong or, without `skip_bad`, if a row is wrong.
    """
    machines, machine_problems = load_machines(nodes_path, skip_bad)
    jobs, job_problems = load_jobs(pods_path, skip_bad)
    check_pod_names(jobs, pods_path)
    trace = Trace(trace_name(pods_path), tuple(machines), tuple(jobs))
    return by_arrival(trace), machine_problems + job_problems


def load_machines(path: Path, skip_bad: bool = False) -> tuple[list[Machine], list[RowProblem]]:
    return (openb.read_nodes if openb.is_node_list(path) else jobs_file.read_machines)(path, skip_bad)


def load_jobs(path: Path, skip_bad: bool = False) -> tuple[list[Job], list[RowProblem]]:
    return (openb.read_pods if openb.is_pod_list(path) else jobs_file.read_jobs)(path, skip_bad)


def by_arrival(trace: Trace) -> Trace:
    """The trace with its jobs sorted by arrival.

    Jobs that arrive together keep their order: by name for openb, else as in the file.
    """
    return replace(trace, jobs=tuple(sorted(trace.jobs, key=lambda job: job.arrival)))


def trace_name(path: Path) -> str:
    """The name of the trace: `default` for openb_pod_list_default.csv.gz, `jobs` for jobs.jsonl."""
    name = path.name
    while (suffix := Path(name).suffix.lower()) in FORMAT_OF_SUFFIX or suffix == ".gz":
        name = name[: -len(suffix)]
    return visible(name.removeprefix(POD_LIST) or path.name)
