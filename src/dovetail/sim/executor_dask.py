"""Makes runs on a dask.distributed cluster. Its workers need dovetail installed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from dovetail.sim.executors import AHEAD, CannotRun, Finished
from dovetail.sim.runs import RunTask, Stage, run

CONNECT_TIMEOUT = "20s"


class Dask:
    local = False

    def __init__(self, address: str) -> None:
        try:
            from distributed import Client
        except ImportError as missing:
            raise CannotRun("dask is not installed: pip install 'dovetail[dask]'") from missing
        try:
            self._client: Any = Client(f"tcp://{address}", timeout=CONNECT_TIMEOUT)
        except (OSError, ValueError) as error:
            raise CannotRun(f"dask://{address}: no scheduler answers ({type(error).__name__})") from error

    def results(self, tasks: Iterable[RunTask], stages: Mapping[str, Stage]) -> Finished:
        """Results as runs finish. A stage is sent once; workers then pass it on to each other."""
        try:
            workers = sum(self._client.nthreads().values())
            if not workers:
                raise CannotRun(f"{self._client.scheduler.address}: the cluster has no worker; start one")
            sent = {digest: self._client.scatter(stage, hash=False) for digest, stage in stages.items()}
            yield from self._finished(iter(tasks), sent, AHEAD * workers)
        finally:
            self._client.close()

    def _finished(self, tasks: Iterator[RunTask], sent: Mapping[str, Any], most: int) -> Finished:
        from distributed import as_completed

        running: dict[Any, RunTask] = {}

        def hand_out(count: int) -> list[Any]:
            new = {self._client.submit(run, task, sent[task.stage], pure=False): task for task in islice(tasks, count)}
            running.update(new)
            return list(new)

        completed = as_completed(hand_out(most))
        for future in completed:
            yield running.pop(future), future.result()
            future.release()
            completed.update(hand_out(1))
