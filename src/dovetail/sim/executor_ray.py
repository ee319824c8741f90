"""Makes runs on a ray cluster whose workers have dovetail installed, or on a ray of this machine."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from dovetail.sim.executors import AHEAD, CannotRun, Finished
from dovetail.sim.runs import RunTask, Stage, run


class Ray:
    local = False

    def __init__(self, address: str | None, workers: int | None = None) -> None:
        """Connect to the cluster at `address`; without one, start a ray on this machine that ends with this process."""
        try:
            import ray
        except ImportError as missing:
            raise CannotRun("ray is not installed: pip install 'dovetail[ray]'") from missing
        self._ray: Any = ray
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # ray must send nothing about these runs
        options: dict[str, Any] = {"address": address}
        if address is None:
            options = {"address": "local", "num_cpus": workers, "_node_ip_address": "127.0.0.1"}  # loopback only
        try:
            ray.init(**options, include_dashboard=False if address is None else None, log_to_driver=False)
        except (OSError, ValueError, RuntimeError) as error:
            raise CannotRun(f"{address or 'ray'}: cannot be reached ({type(error).__name__})") from error

    def results(self, tasks: Iterable[RunTask], stages: Mapping[str, Stage]) -> Finished:
        try:
            workers = int(self._ray.cluster_resources().get("CPU", 0))
            if not workers:
                raise CannotRun("ray: the cluster has no CPU to run on; start a worker")
            put = {digest: self._ray.put(stage) for digest, stage in stages.items()}
            yield from self._finished(iter(tasks), put, AHEAD * workers)
        finally:
            self._ray.shutdown()

    def _finished(self, tasks: Iterator[RunTask], put: Mapping[str, Any], most: int) -> Finished:
        remote = self._ray.remote(run)
        running: dict[Any, RunTask] = {}
        while True:
            for task in islice(tasks, most - len(running)):
                running[remote.remote(task, put[task.stage])] = task
            if not running:
                return
            for done in self._ray.wait(list(running))[0]:
                yield running.pop(done), self._ray.get(done)
